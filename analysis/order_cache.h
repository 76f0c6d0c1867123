// SPDX-License-Identifier: MIT
// Cache of the summation orders that FPRev found in library kernels, in the user's cache folder:
// one JSON file per key, written to a temporary file and renamed, so that concurrent runs see a
// whole file or none. Files that are unreadable or belong to another key are ignored; write errors
// too.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "core/observe/sum_order.h"

namespace halfscope {

/// Returns $HALFSCOPE_CACHE, or $XDG_CACHE_HOME/halfscope, or ~/.cache/halfscope. Empty, so that
/// nothing is kept, if none of them is defined or HALFSCOPE_CACHE is empty.
std::filesystem::path cache_folder();

/// Returns the tree as JSON: the number of leaves, the root and the children of every sum; or the
/// reason why there is none.
std::string order_to_json(const std::string& key, const ProbedOrder& order);
/// Reads that JSON. Returns nothing unless it belongs to `key` and the tree has all summands.
std::optional<ProbedOrder> order_from_json(const std::string& text, const std::string& key);

class OrderFiles final : public SumOrderCache {
 public:
  /// An empty folder name keeps nothing. A missing folder is created.
  explicit OrderFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::optional<ProbedOrder> find(const std::string& key) override;
  void store(const std::string& key, const ProbedOrder& order) override;

  /// Returns the file of that key.
  std::filesystem::path file(const std::string& key) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace halfscope
