// SPDX-License-Identifier: MIT
#pragma once

#include <limits>

namespace halfscope {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace halfscope
