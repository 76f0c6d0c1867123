// SPDX-License-Identifier: MIT
// Orders of summation that FPRev found in kernels of libraries, kept between runs in the user's
// cache folder: one JSON file per key, written aside and renamed, so that runs at the same time
// see a whole file or none. What cannot be read, or is of something else, is as if it were not
// there; what cannot be written is not kept.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "core/observe/sum_order.h"

namespace halfscope {

/// $HALFSCOPE_CACHE, or $XDG_CACHE_HOME/halfscope, or ~/.cache/halfscope. Empty if there is none of
/// them, or HALFSCOPE_CACHE is empty: then nothing is kept.
std::filesystem::path cache_folder();

/// The tree as it is: the number of its leaves, its root and the children of every sum; or why
/// there is none.
std::string order_to_json(const std::string& key, const ProbedOrder& order);
/// Nothing unless the text is that of the key, and of a tree over all of its summands.
std::optional<ProbedOrder> order_from_json(const std::string& text, const std::string& key);

class OrderFiles final : public SumOrderCache {
 public:
  /// An empty folder keeps nothing; one that is not there is made.
  explicit OrderFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::optional<ProbedOrder> find(const std::string& key) override;
  void store(const std::string& key, const ProbedOrder& order) override;

  /// Of that key.
  std::filesystem::path file(const std::string& key) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace halfscope
