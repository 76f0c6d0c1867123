// SPDX-License-Identifier: MIT
#include "python/src/measuring.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/numeric/formats/round_odd.h"
#include "emulation/measure/measure.h"

namespace halfscope::python {
namespace {

/// Below this many elements, starting threads takes longer than it saves.
constexpr int64_t kThreadedFrom = 32768;

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
  std::array<float, kSumChunk> past;
  a.load(first, count, out);
  b.load(first, count, past.data());
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) out[i] -= past[i];
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
        std::array<float, kSumChunk> gradients;
        gradient->load(first, count, gradients.data());
        int64_t lost = 0;
        for (int64_t i = 0; i < count; ++i) {
          // A NaN compares unequal to zero, but says nothing about an update.
          const float given = gradients[static_cast<size_t>(i)];
          lost += out[i] == 0.0f && (given < 0.0f || given > 0.0f) ? 1 : 0;
        }
        counts.lost += lost;
      });
  stats.zero -= stats.lost;
  return stats;
}

TensorStats measure_squares(const Elements& squares, const Elements& mean,
                            const FloatFormat& format) {
  int64_t flushed = 0;
  TensorStats stats = measure_chunks(
      squares.size(), format, [&](int64_t first, int64_t count, float* out, TensorStats& counts) {
        std::array<float, kSumChunk> means;
        squares.load(first, count, out);
        mean.load(first, count, means.data());
        int64_t zeros = 0;
        for (int64_t i = 0; i < count; ++i) {
          const float given = means[static_cast<size_t>(i)];
          zeros += out[i] == 0.0f && (given < 0.0f || given > 0.0f) ? 1 : 0;
        }
        counts.lost += zeros;  // moved below; a state has no lost updates
      });
  flushed = stats.lost;
  stats.lost = 0;
  stats.zero -= flushed;
  stats.underflow += flushed;
  return stats;
}

}  // namespace halfscope::python
