// SPDX-License-Identifier: MIT
// The reference of the tap, one element after the other, and the merging of its results. The fast
// kernels of emulation/measure are tested against it, field by field and bit for bit.
#include "core/numeric/statistics/tensor_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/numeric/formats/round.h"

namespace halfscope {
namespace {

/// Returns floor(log2 |x|) for a finite nonzero x.
int floor_log2(float x) noexcept {
  const uint32_t magnitude = std::bit_cast<uint32_t>(x) & 0x7fffffffu;
  const int biased = static_cast<int>(magnitude >> 23);
  return biased != 0 ? biased - 127 : static_cast<int>(std::bit_width(magnitude)) - 1 - 149;
}

/// Returns the sum of a chunk's 16 partial sums, added as a balanced tree.
double add_tree(std::array<double, 16>& partial) noexcept {
  for (size_t half = 8; half >= 1; half /= 2) {
    for (size_t j = 0; j < half; ++j) partial[j] += partial[j + half];
  }
  return partial[0];
}

}  // namespace

void TensorStats::merge(const TensorStats& other) noexcept {
  n += other.n;
  zero += other.zero;
  pos_inf += other.pos_inf;
  neg_inf += other.neg_inf;
  nan += other.nan;
  overflow += other.overflow;
  underflow += other.underflow;
  subnormal += other.subnormal;
  lost += other.lost;
  max_abs = std::max(max_abs, other.max_abs);
  min_abs = std::min(min_abs, other.min_abs);
  sum += other.sum;
  sum_sq += other.sum_sq;
  for (size_t i = 0; i < exponents.size(); ++i) exponents[i] += other.exponents[i];
}

TensorStats measure(std::span<const float> exact, std::span<float> rounded,
                    const FloatFormat& format, const TensorRounding& rounding) noexcept {
  TensorStats stats;
  stats.n = static_cast<int64_t>(exact.size());
  for (size_t first = 0; first < exact.size(); first += static_cast<size_t>(kSumChunk)) {
    const size_t count = std::min(static_cast<size_t>(kSumChunk), exact.size() - first);
    std::array<double, 16> sum{};
    std::array<double, 16> sum_sq{};
    for (size_t i = 0; i < count; ++i) {
      const float x = exact[first + i];
      const Rounded<float> result =
          round_to_format(x, format, rounding.element(static_cast<int64_t>(first + i)));
      rounded[first + i] = result.value;
      if (std::isnan(x)) {
        ++stats.nan;
        continue;
      }
      if (std::isinf(x)) {
        ++(x > 0 ? stats.pos_inf : stats.neg_inf);
        continue;
      }
      sum[i % 16] += static_cast<double>(x);
      sum_sq[i % 16] += static_cast<double>(x) * static_cast<double>(x);
      if (x == 0.0f) {
        ++stats.zero;
        continue;
      }
      stats.overflow += (result.flags & kOverflow) != 0;
      stats.underflow += (result.flags & kFlushed) != 0;
      stats.subnormal += (result.flags & kSubnormal) != 0;
      stats.max_abs = std::max(stats.max_abs, std::fabs(x));
      stats.min_abs = std::min(stats.min_abs, std::fabs(x));
      ++stats.exponents[static_cast<size_t>(floor_log2(x) - kMinExponentBin)];
    }
    stats.sum += add_tree(sum);
    stats.sum_sq += add_tree(sum_sq);
  }
  return stats;
}

}  // namespace halfscope
