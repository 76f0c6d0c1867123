// SPDX-License-Identifier: MIT
// Numbers in texts that are parsed again, for example "adam:lr=0.001".
#pragma once

#include <charconv>
#include <string>

namespace halfscope {

/// Returns the shortest text that parses to the same number of the same type.
template <class Real>
std::string number_text(Real value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

}  // namespace halfscope
