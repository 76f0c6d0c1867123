// SPDX-License-Identifier: MIT
// The vocabulary of rounding: modes and their names, the definition of tininess, and the flags that
// a rounding reports. The rounding itself is in round.h.
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
  nearest_even,  ///< an impossible tie to even (only one significand bit) goes away from zero
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

/// Decides when a nonzero result counts as tiny (IEEE 754-2019, 7.5): if the value is below the
/// smallest normal number after rounding with unbounded exponent range (x86 SSE, RISC-V, MPFR), or
/// before rounding (Arm, Power). The two differ only just below the smallest normal number.
enum class Tininess : uint8_t { after_rounding, before_rounding };

/// A rounding. Stochastic mode drops a fraction 0 <= f < 1 of the last place and rounds away from
/// zero if floor(f * 2^N) + R >= 2^N, where N is `random_bits` and R the low N bits of `random`.
/// With uniform R that happens with probability f - d, 0 <= d < 2^-N. Exact values never change.
struct Rounding {
  RoundingMode mode = RoundingMode::nearest_even;
  Tininess tininess = Tininess::after_rounding;
  uint64_t random = 0;   ///< stochastic: new for every rounding, e.g. random_word() in rng.h
  int random_bits = 32;  ///< stochastic: 1..32, clamped to that range
};

/// Rounding of the elements of a tensor: the mode, and for stochastic rounding the number of random
/// bits per element. The words are derived from (seed, step, value, element) when the tensor is
/// rounded (rng.h).
struct RoundingChoice {
  RoundingMode mode = RoundingMode::nearest_even;
  int random_bits = 32;

  friend constexpr bool operator==(const RoundingChoice&, const RoundingChoice&) = default;
};

/// Returns "nearest-even", "stochastic", "stochastic:8".
std::string rounding_name(const RoundingChoice& rounding);
/// Parses the text of rounding_name(); returns nothing for any other text.
std::optional<RoundingChoice> parse_rounding(std::string_view text);

/// Effects of an operation, as a set of bits. The five of IEEE 754-2019, 7, and two about the
/// result.
enum RoundFlags : uint8_t {
  kExact = 0,
  kInexact = 1,    ///< the result differs from the exact value
  kOverflow = 2,   ///< rounded with unbounded exponent range, beyond the largest finite value
  kUnderflow = 4,  ///< tiny and inexact
  kSubnormal = 8,  ///< the result is non-zero and below the smallest normal value
  kFlushed = 16,   ///< the exact value is not zero, but the result is
  kInvalid = 32,  ///< no useful result, a signalling NaN, or a NaN that the format cannot represent
  kDivideByZero = 64,  ///< an exact infinity from finite operands
};

template <class T>
struct Rounded {
  T value;
  uint8_t flags;
};

}  // namespace halfscope
