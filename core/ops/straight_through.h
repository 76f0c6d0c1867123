// SPDX-License-Identifier: MIT
#pragma once

namespace halfscope {

/// Attribute of a Round whose gradient passes as if it did nothing (the straight-through estimator
/// of Bengio et al. 2013).
inline constexpr const char* kStraightThrough = "straight_through";

}  // namespace halfscope
