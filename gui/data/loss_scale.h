// SPDX-License-Identifier: MIT
// The loss scale of a range of steps, and the tensors that it does not affect.
#pragma once

#include <cstdint>

#include "analysis/run_view.h"

namespace halfscope::gui {

struct LossScale {
  double log2 = 0.0;  ///< of the last step in the range that has one
  bool known = false, varies = false;
};

/// Returns the loss scale of a lane's steps `first` to `last`.
LossScale loss_scale_of(const RunView& run, int lane, int64_t first, int64_t last);

/// Returns the kind of a tensor that the loss scale does not affect: "activations".
const char* unscaled_kind(const SiteInfo& site) noexcept;

}  // namespace halfscope::gui
