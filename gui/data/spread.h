// SPDX-License-Identifier: MIT
// Finds where NaN and infinities start and which tensors only pass them on. A tensor passes them on
// if one of its inputs was non-finite in the same step.
#pragma once

#include <cstdint>
#include <vector>

#include "core/observe/recording.h"

namespace halfscope::gui {

/// NaN and infinities of a tensor in one window, ordered so that the largest of several counts.
enum class Spread : uint8_t {
  none,    ///< all values are finite after rounding, or not more of them than in the reference
  passes,  ///< what the tensor is computed from was not finite either
  starts,  ///< what it is computed from was finite
};

/// Returns, for every site of the lane by SiteInfo::order, the sites that it is computed from
/// within a step, as far as layers and roles show: operands, weights, gradients of the readers.
std::vector<std::vector<int>> sites_read(const LaneInfo& lane);

}  // namespace halfscope::gui
