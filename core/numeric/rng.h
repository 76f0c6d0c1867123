// SPDX-License-Identifier: MIT
// Counter-based random numbers: the value depends on the counter alone, so any element can be
// made anywhere, in any order, on any number of threads.
#pragma once

#include <cstdint>

#include "core/numeric/host_device.h"

namespace halfscope {

/// splitmix64 (Steele, Lea, Flood 2014; public-domain constants of S. Vigna): a bijection of the
/// 64-bit integers that passes BigCrush as a counter-based generator.
HS_HD constexpr uint64_t splitmix64(uint64_t counter) noexcept {
  uint64_t z = counter + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace halfscope
