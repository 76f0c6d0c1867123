// SPDX-License-Identifier: MIT
#include "python/src/measuring.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "core/numeric/formats/round_odd.h"
#include "emulation/measure/measure.h"
#include "python/src/vector_clones.h"

namespace halfscope::python {
namespace {

/// Below this many elements, starting threads takes longer than it saves.
constexpr int64_t kThreadedFrom = 32768;

/// Returns how many x are zero while y is neither zero nor NaN, which says nothing. n <= kSumChunk.
HS_VECTOR_CLONES int32_t count_zeros_beside(const float* x, const float* y, int32_t n) noexcept {
  int32_t count = 0;
  for (int32_t i = 0; i < n; ++i) {
    const uint32_t own = std::bit_cast<uint32_t>(x[i]) << 1;
    const uint32_t other = std::bit_cast<uint32_t>(y[i]) & 0x7fffffffu;
    count += static_cast<int32_t>(own == 0) & static_cast<int32_t>(other - 1u < 0x7f800000u);
  }
  return count;
}

HS_VECTOR_CLONES void subtract_floats(const float* a, const float* b, int32_t n,
                                      float* out) noexcept {
  for (int32_t i = 0; i < n; ++i) out[i] = a[i] - b[i];
}

/// Returns elements first .. first + n as fp32, in memory or converted to `buffer`.
const float* floats_of(const Elements& elements, int64_t first, int64_t n, float* buffer) {
  if (const float* floats = elements.as_floats()) return floats + first;
  elements.load(first, n, buffer);
  return buffer;
}

/// Measures chunk by chunk what `load(first, n, out, stats)` writes to `out`.
template <class Load>
TensorStats measure_chunks(int64_t n, const FloatFormat& format, const Load& load) {
  const int64_t chunks = (n + kSumChunk - 1) / kSumChunk;
  std::vector<double> sum(static_cast<size_t>(chunks)), sum_sq(static_cast<size_t>(chunks));
  TensorStats total;
#pragma omp parallel if (n >= kThreadedFrom)
  {
    TensorStats own;
#pragma omp for schedule(static) nowait
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t first = c * kSumChunk, count = std::min(kSumChunk, n - first);
      const size_t at = static_cast<size_t>(c);
      std::array<float, kSumChunk> values;
      load(first, count, values.data(), own);
      measure_chunk(values.data(), nullptr, count, format, own, &sum[at], &sum_sq[at]);
    }
#pragma omp critical(halfscope_python_merge)
    total.merge(own);
  }
  for (size_t c = 0; c < sum.size(); ++c) {
    total.sum += sum[c];
    total.sum_sq += sum_sq[c];
  }
  return total;
}

/// Writes elements of a - b as fp32.
void subtract(const Elements& a, const Elements& b, int64_t first, int64_t count, float* out) {
  if (a.kind() == ElementKind::f64) {
    std::array<double, kSumChunk> wide, past;
    a.load_doubles(first, count, wide.data());
    b.load_doubles(first, count, past.data());
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      out[i] = round_to_odd(wide[i] - past[i]);
    }
    return;
  }
  std::array<float, kSumChunk> now, past;
  subtract_floats(floats_of(a, first, count, now.data()), floats_of(b, first, count, past.data()),
                  static_cast<int32_t>(count), out);
}

}  // namespace

TensorStats measure_elements(const Elements& elements, const FloatFormat& format) {
  if (const float* floats = elements.as_floats()) {
    return measure_tensor(floats, nullptr, elements.size(), format);
  }
  return measure_chunks(
      elements.size(), format,
      [&](int64_t first, int64_t n, float* out, TensorStats&) { elements.load(first, n, out); });
}

TensorStats measure_update(const uint8_t* before, const Elements& after, const Elements* gradient,
                           const FloatFormat& format) {
  const int64_t n = after.size();
  const Elements old(before, after.kind(), std::array<int64_t, 1>{n}, {});
  TensorStats stats =
      measure_chunks(n, format, [&](int64_t first, int64_t count, float* out, TensorStats& counts) {
        subtract(after, old, first, count, out);
        if (gradient == nullptr) return;
        std::array<float, kSumChunk> buffer;
        const float* given = floats_of(*gradient, first, count, buffer.data());
        counts.lost += count_zeros_beside(out, given, static_cast<int32_t>(count));
      });
  stats.zero -= stats.lost;
  return stats;
}

TensorStats measure_squares(const Elements& squares, const Elements& mean,
                            const FloatFormat& format) {
  TensorStats stats = measure_chunks(
      squares.size(), format, [&](int64_t first, int64_t count, float* out, TensorStats& counts) {
        std::array<float, kSumChunk> buffer;
        squares.load(first, count, out);
        const float* given = floats_of(mean, first, count, buffer.data());
        counts.lost += count_zeros_beside(out, given, static_cast<int32_t>(count));  // moved below
      });
  stats.zero -= stats.lost;
  stats.underflow += stats.lost;
  stats.lost = 0;
  return stats;
}

}  // namespace halfscope::python
