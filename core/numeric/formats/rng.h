// SPDX-License-Identifier: MIT
// Counter-based random numbers. Each value depends only on the counter, so any element can be
// computed anywhere, in any order, on any number of threads.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace halfscope {

/// splitmix64 (Steele, Lea, Flood 2014; public-domain constants of S. Vigna): a bijection of the
/// 64-bit integers that passes BigCrush as a counter-based generator.
HS_HD constexpr uint64_t splitmix64(uint64_t counter) noexcept {
  uint64_t z = counter + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Returns the start of the sequence of one site at one step: three rounds of splitmix64, one per
/// number.
HS_HD constexpr uint64_t random_key(uint64_t seed, uint64_t step, uint64_t site) noexcept {
  return splitmix64(splitmix64(splitmix64(seed) ^ step) ^ site);
}

/// Returns the word of element `index` in a sequence. For one key, distinct indices give distinct
/// words.
HS_HD constexpr uint64_t random_word(uint64_t key, uint64_t index) noexcept {
  return splitmix64(key ^ index);
}

/// Step between the words of random_draw. They follow splitmix64 as published: a state that
/// advances by a constant. Its start is hashed, so that related keys give unrelated sequences.
inline constexpr uint64_t kDrawStep = 0x9E3779B97F4A7C15u;
HS_HD constexpr uint64_t draw_start(uint64_t key) noexcept { return splitmix64(key); }

/// Returns 32 random bits for element `index`. Two neighbours share a word, because computing a
/// word costs more than a rounding and both its halves are equally good.
HS_HD constexpr uint32_t random_draw(uint64_t key, uint64_t index) noexcept {
  const uint64_t word = splitmix64(draw_start(key) + index / 2 * kDrawStep);
  return static_cast<uint32_t>(word >> (index % 2 * 32));
}

/// Returns 64 random bits for one element that depend only on these four numbers: a draw of
/// stochastic rounding (Rounding::random).
HS_HD constexpr uint64_t random_word(uint64_t seed, uint64_t step, uint64_t site,
                                     uint64_t index) noexcept {
  return random_word(random_key(seed, step, site), index);
}

}  // namespace halfscope
