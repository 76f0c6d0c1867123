// SPDX-License-Identifier: MIT
// Words of rounding: the modes and their names, when a result counts as tiny, what a rounding
// reports. The rounding itself is in round.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/host_device.h"

namespace halfscope {

/// The five directions of IEEE 754-2019, 4.3, and two more. `odd` truncates and sets the last bit
/// if that was inexact (Boldo and Melquiond 2008), so tiny values never become zero. `stochastic`
/// is StochasticA of the P3109 draft, see Rounding.
enum class RoundingMode : uint8_t {
  nearest_even,  ///< a tie that no even significand can win (one significand bit) goes away
  nearest_away,
  toward_zero,
  up,    ///< toward +infinity
  down,  ///< toward -infinity
  odd,
  stochastic,
};

inline constexpr RoundingMode kAllRoundingModes[] = {
    RoundingMode::nearest_even, RoundingMode::nearest_away, RoundingMode::toward_zero,
    RoundingMode::up,           RoundingMode::down,         RoundingMode::odd,
    RoundingMode::stochastic};

constexpr std::string_view rounding_mode_name(RoundingMode mode) noexcept {
  switch (mode) {
    case RoundingMode::nearest_even:
      return "nearest-even";
    case RoundingMode::nearest_away:
      return "nearest-away";
    case RoundingMode::toward_zero:
      return "toward-zero";
    case RoundingMode::up:
      return "up";
    case RoundingMode::down:
      return "down";
    case RoundingMode::odd:
      return "odd";
    case RoundingMode::stochastic:
      return "stochastic";
  }
  return "unknown";
}

constexpr std::optional<RoundingMode> parse_rounding_mode(std::string_view text) noexcept {
  for (const RoundingMode each : kAllRoundingModes) {
    if (text == rounding_mode_name(each)) return each;
  }
  return std::nullopt;
}

/// When a non-zero result counts as tiny (IEEE 754-2019, 7.5): if the value is below the smallest
/// normal number as it would be rounded with unbounded exponent range (x86 SSE, RISC-V, MPFR), or
/// as it is exactly (Arm, Power). They differ just below the smallest normal number only.
enum class Tininess : uint8_t { after_rounding, before_rounding };

/// How to round. Stochastic mode drops a fraction 0 <= f < 1 of the last place and rounds away
/// from zero if floor(f * 2^N) + R >= 2^N, where N is `random_bits` and R the low N bits of
/// `random`. With uniform R that happens with probability f - d, 0 <= d < 2^-N. Exact values
/// never change.
struct Rounding {
  RoundingMode mode = RoundingMode::nearest_even;
  Tininess tininess = Tininess::after_rounding;
  uint64_t random = 0;   ///< of stochastic: fresh for every rounding, e.g. random_word() in rng.h
  int random_bits = 32;  ///< of stochastic: 1..32, nearest of these if outside
};

/// How the elements of a tensor are rounded: the mode, and of stochastic rounding the random bits
/// of each. The words come from (seed, step, value, element) when it is done (rng.h).
struct RoundingChoice {
  RoundingMode mode = RoundingMode::nearest_even;
  int random_bits = 32;

  friend constexpr bool operator==(const RoundingChoice&, const RoundingChoice&) = default;
};

/// "nearest-even", "stochastic", "stochastic:8".
std::string rounding_name(const RoundingChoice& rounding);
/// The way back; nothing for anything else.
std::optional<RoundingChoice> parse_rounding(std::string_view text);

/// What an operation did; a set of bits. The five of IEEE 754-2019, 7, and two about the result.
enum RoundFlags : uint8_t {
  kExact = 0,
  kInexact = 1,        ///< the result differs from the exact value
  kOverflow = 2,       ///< rounded with unbounded exponent range, beyond the largest finite value
  kUnderflow = 4,      ///< tiny and inexact
  kSubnormal = 8,      ///< the result is non-zero and below the smallest normal value
  kFlushed = 16,       ///< the exact value is not zero, the result is
  kInvalid = 32,       ///< no useful result, a signalling NaN, or a NaN the format cannot hold
  kDivideByZero = 64,  ///< an exact infinity from finite operands
};

template <class T>
struct Rounded {
  T value;
  uint8_t flags;
};

}  // namespace halfscope
