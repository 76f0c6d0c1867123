// SPDX-License-Identifier: MIT
// The topics of `halfscope help`: each explains a small language that flags take. Names and numbers
// come from the tables that the parsers use.
#pragma once

#include <span>
#include <string>

namespace halfscope {

struct Topic {
  const char* name;     ///< "plans"
  const char* summary;  ///< for the list of topics
  /// Returns the text, in lines of at most 80 columns. Lines that start with "  halfscope " or
  /// "  --" are examples that work as they are.
  std::string (*text)();
};

/// Returns all topics, in the order of help.
std::span<const Topic> topics();

}  // namespace halfscope
