// SPDX-License-Identifier: MIT
// TensorStats: what the tap records about one tensor. It counts the values *before* they are
// rounded to the site's format; `overflow`, `underflow` and `subnormal` say what that rounding did
// to them. All counters are integers, so merging is exact and associative. The sums run over fixed
// 4096-element chunks in a fixed order (see measure()), so neither threads nor instruction sets
// change them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/tensor_rounding.h"

namespace halfscope {

/// Histogram bin i counts finite non-zero x with floor(log2 |x|) = i + kMinExponentBin.
inline constexpr int kMinExponentBin = -149;
inline constexpr int kMaxExponentBin = 127;
inline constexpr int kExponentBins = kMaxExponentBin - kMinExponentBin + 1;  // 277

/// Elements per partial sum.
inline constexpr int64_t kSumChunk = 4096;

struct TensorStats {
  int64_t n = 0;          ///< elements seen
  int64_t zero = 0;       ///< exact value is +0 or -0
  int64_t pos_inf = 0;    ///< exact value is +inf
  int64_t neg_inf = 0;    ///< exact value is -inf
  int64_t nan = 0;        ///< exact value is NaN
  int64_t overflow = 0;   ///< exact value finite, rounded value not, or saturated (kOverflow)
  int64_t underflow = 0;  ///< exact value not zero, rounded value zero (kFlushed)
  int64_t subnormal = 0;  ///< rounded value not zero but below the format's smallest normal
  int64_t lost = 0;       ///< updates only: not zero, but the variable kept its value
  float max_abs = 0.0f;   ///< largest finite magnitude; 0 if none
  /// Smallest nonzero finite magnitude; infinity if none.
  float min_abs = std::numeric_limits<float>::infinity();
  double sum = 0.0;     ///< of finite values
  double sum_sq = 0.0;  ///< of squares of finite values
  std::array<int64_t, kExponentBins> exponents{};

  int64_t non_finite() const noexcept { return pos_inf + neg_inf + nan; }
  int64_t non_zero() const noexcept { return n - zero; }

  /// Adds another tensor's (or step's) statistics; exact for all counters.
  void merge(const TensorStats& other) noexcept;

  friend bool operator==(const TensorStats&, const TensorStats&) = default;
};

/// Slow, obvious reference of the tap: rounds `exact` to `format` into `rounded` (same length; may
/// be the same memory) and returns the statistics. Every faster path must agree with it in every
/// field, bit for bit. The sums: element i of a 4096-element chunk goes to partial i % 16 in
/// ascending i; the 16 partials are added as a balanced tree (p[j] += p[j+8], then +4, +2, +1);
/// chunk sums are added in ascending order.
TensorStats measure(std::span<const float> exact, std::span<float> rounded,
                    const FloatFormat& format, const TensorRounding& rounding = {}) noexcept;

}  // namespace halfscope
