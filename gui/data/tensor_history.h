// SPDX-License-Identifier: MIT
// One tensor over time: the shares of its exponents in every window of the run.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "analysis/run_view.h"

namespace halfscope::gui {

class TensorHistory {
 public:
  /// Collects the windows of a tensor, unless they are the same as before.
  void update(const std::shared_ptr<const RunView>& run, int lane, int site);

  struct Moment {
    int64_t step = 0, step_count = 1;
    int low = 0;                  ///< exponent of shares[0]
    std::vector<float> shares{};  ///< of the finite values that are not zero
  };
  const std::vector<Moment>& moments() const noexcept { return moments_; }
  bool empty() const noexcept { return low_ > high_; }
  /// Returns the lowest and highest exponent in any window.
  int low() const noexcept { return low_; }
  int high() const noexcept { return high_; }
  /// Changes with every collection.
  int generation() const noexcept { return generation_; }

 private:
  std::weak_ptr<const RunView> run_{};
  int lane_ = -1, site_ = -1, low_ = 0, high_ = -1, generation_ = 0;
  std::vector<Moment> moments_{};
};

}  // namespace halfscope::gui
