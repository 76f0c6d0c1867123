// SPDX-License-Identifier: MIT
// Decides how a result is rounded from an approximation and a bound on its error.
#pragma once

#include <bit>
#include <cstdint>

#include "core/bodies/elements.h"
#include "core/numeric/elementary/quick_exp.h"
#include "gpu/bodies/stored.h"

namespace halfscope::gpu {

/// Rounds results to nearest where a bound on their error allows it.
struct Decision {
  Destination to;
  bool fp32 = to.format == format_of(Storage::fp32);  ///< rounds to fp32, without other options

  /// Returns whether few enough results of such lines are in doubt.
  static bool suits(const FloatFormat& format, int64_t size) {
    constexpr int64_t kMostTerms = 4096;
    return format.mantissa_bits <= 12 || (format == format_of(Storage::fp32) && size <= kMostTerms);
  }

  /// Sets `result` to what any number within `error` of `value` is rounded to. Returns false if
  /// they are not all rounded to the same number.
  HS_HD bool round(double value, double error, float& result) const {
    if (value == 0.0 && error == 0.0) {
      result = to.rounded(static_cast<float>(value));
      return true;
    }
    if (fp32) {
      result = static_cast<float>(value - error);
      return same(result, static_cast<float>(value + error));
    }
    const elementary::Interval near = elementary::narrow_interval(value, error);
    result = to.rounded(near.low);
    if (same(result, to.rounded(near.high))) return true;
    if (to.rounds_itself && elementary::magnitude(value) + error < half_of_least()) {
      result = value < 0.0 ? -0.0f : 0.0f;
      return true;
    }
    return round_slowly(value, error, result);
  }
  /// Same for an error relative to the value, below 2^-30.
  HS_HD bool round_share(double value, double relative, float& result) const {
    if (fp32) {
      // A unit in the last place is at least 2^-53 of the value.
      result = static_cast<float>(value);
      const uint32_t margin = static_cast<uint32_t>(relative * 0x1p53) + 1;
      if (elementary::rounds_surely(value, margin)) return true;
    }
    return round(value, elementary::magnitude(value) * relative, result);
  }

 private:
  HS_HD static bool same(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) && !is_nan(a);
  }
  /// Returns half of the least positive number of a 16-bit format, or less.
  HS_HD double half_of_least() const { return to.storage == Storage::fp16 ? 0x1p-26 : 0x1p-135; }
  HS_HD HS_SELDOM bool round_slowly(double value, double error, float& result) const {
    result = to.rounded(delivered<float>(value - error, to.format));
    return same(result, to.rounded(delivered<float>(value + error, to.format)));
  }
};

}  // namespace halfscope::gpu
