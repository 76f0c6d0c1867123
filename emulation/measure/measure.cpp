// SPDX-License-Identifier: MIT
// The tap's driver: picks the kernels of the instruction set in use, treats the rare inputs
// (infinities, NaNs, fp32 subnormals, formats without a kernel), and spreads chunks over threads.
// A chunk is read completely before it is rounded, so the output may be the input.
#include "emulation/measure/measure.h"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "core/numeric/round.h"
#include "emulation/isa.h"
#include "emulation/measure/kernels.h"
#include "emulation/measure/round_spec.h"

namespace halfscope {
namespace {

using measure_detail::Kernels;
using measure_detail::RoundCounts;
using measure_detail::RoundKind;
using measure_detail::RoundSpec;
using measure_detail::Survey;

constexpr uint32_t kMagnitude = 0x7fffffffu;
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint32_t kSmallestNormal = 0x00800000u;

/// Below this many elements, starting threads costs more than it saves.
constexpr int64_t kThreadedFrom = 32768;

static_assert(kSumChunk == measure_detail::kChunk);

const Kernels& active_kernels() {
#if defined(__x86_64__)
  switch (active_isa()) {
    case Isa::avx512:
      return measure_detail::avx512_kernels();
    case Isa::avx2:
      return measure_detail::avx2_kernels();
    case Isa::baseline:
      break;
  }
#endif
  return measure_detail::baseline_kernels();
}

/// What one call works with, looked up once per array.
struct Tap {
  const Kernels& kernels;
  const FloatFormat& format;
  RoundSpec spec;

  explicit Tap(const FloatFormat& wanted)
      : kernels(active_kernels()), format(wanted), spec(measure_detail::make_round_spec(wanted)) {}
};

uint32_t magnitude_bits(float x) noexcept { return std::bit_cast<uint32_t>(x) & kMagnitude; }

void round_elements(const Tap& tap, const float* in, float* out, int64_t n) {
  if (tap.spec.kind != RoundKind::reference) {
    tap.kernels.round(in, out, n, tap.spec);
    return;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = round_to_format(in[i], tap.format).value;
}

/// Copies a chunk with zeros for infinities and NaNs, which it counts; returns how many.
int64_t set_aside_non_finite(const float* in, int64_t n, float* finite, TensorStats& stats) {
  const int64_t before = stats.non_finite();
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = magnitude_bits(in[i]);
    finite[i] = magnitude < kInfinity ? in[i] : 0.0f;
    if (magnitude < kInfinity) continue;
    ++(magnitude > kInfinity ? stats.nan : in[i] > 0 ? stats.pos_inf : stats.neg_inf);
  }
  return stats.non_finite() - before;
}

/// fp32 subnormals: their histogram bins, and what becomes of them in a format with fp32's
/// exponents (in the others the kernels count them like any value). Returns how many.
int64_t count_fp32_subnormals(const Tap& tap, const float* finite, int64_t n, TensorStats& stats) {
  const bool wide = tap.spec.kind == RoundKind::carry || tap.spec.kind == RoundKind::copy;
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = magnitude_bits(finite[i]);
    if (magnitude == 0 || magnitude >= kSmallestNormal) continue;
    ++count;
    ++stats.exponents[static_cast<size_t>(std::bit_width(magnitude) - 1)];
    if (!wide) continue;
    const uint8_t flags = round_to_format(finite[i], tap.format).flags;
    stats.underflow += (flags & kFlushed) != 0;
    stats.subnormal += (flags & kSubnormal) != 0;
  }
  return count;
}

int64_t count_at_least(const float* finite, int64_t n, uint32_t magnitude) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += magnitude_bits(finite[i]) >= magnitude;
  return count;
}

/// Formats without a kernel: the reference itself.
void measure_by_reference(const Tap& tap, const float* in, float* out, int64_t n,
                          TensorStats& stats, double* sum, double* sum_sq) {
  float unused[kSumChunk];
  const size_t size = static_cast<size_t>(n);
  TensorStats chunk = measure({in, size}, {out != nullptr ? out : unused, size}, tap.format);
  *sum = chunk.sum;
  *sum_sq = chunk.sum_sq;
  chunk.sum = chunk.sum_sq = 0.0;
  stats.merge(chunk);
}

void measure_one_chunk(const Tap& tap, const float* in, float* out, int64_t n, TensorStats& stats,
                       double* sum, double* sum_sq) {
  if (tap.spec.kind == RoundKind::reference) {
    return measure_by_reference(tap, in, out, n, stats, sum, sum_sq);
  }
  int64_t* const by_biased_exponent = stats.exponents.data() + (-127 - kMinExponentBin);
  Survey survey;
  float copy[kSumChunk];
  const float* finite = in;
  int64_t non_finite = 0;
  if (!tap.kernels.survey(in, n, by_biased_exponent, survey)) {
    non_finite = set_aside_non_finite(in, n, copy, stats);
    finite = copy;
    tap.kernels.survey(finite, n, by_biased_exponent, survey);
  }
  *sum = survey.sum;
  *sum_sq = survey.sum_sq;
  stats.n += n;
  stats.max_abs = std::max(stats.max_abs, std::bit_cast<float>(survey.max_bits));
  int64_t zero = survey.exponent_zero - non_finite;
  if (survey.max_bits != 0) {
    const uint32_t min_bits = survey.min_below + 1;
    stats.min_abs = std::min(stats.min_abs, std::bit_cast<float>(min_bits));
    if (min_bits < kSmallestNormal) zero -= count_fp32_subnormals(tap, finite, n, stats);
  }
  stats.zero += zero;

  if (tap.spec.kind == RoundKind::half || tap.spec.kind == RoundKind::magic) {
    RoundCounts counts;
    tap.kernels.round_count(in, out, n, tap.spec, counts);
    stats.overflow += counts.non_finite - non_finite;
    stats.underflow += counts.zero - zero;
    stats.subnormal += counts.below_normal - counts.zero;
    return;
  }
  // With fp32's exponents nothing but fp32 subnormals can become zero or subnormal.
  if (survey.max_bits >= tap.spec.overflow_from) {
    stats.overflow += count_at_least(finite, n, tap.spec.overflow_from);
  }
  if (out != nullptr) tap.kernels.round(in, out, n, tap.spec);
}

int64_t chunk_count(int64_t n) { return (n + kSumChunk - 1) / kSumChunk; }
int64_t chunk_size(int64_t chunk, int64_t n) { return std::min(kSumChunk, n - chunk * kSumChunk); }

float* advance(float* out, int64_t by) { return out == nullptr ? nullptr : out + by; }

}  // namespace

void round_array(const float* in, float* out, int64_t n, const FloatFormat& format) {
  round_elements(Tap(format), in, out, n);
}

void measure_chunk(const float* in, float* out, int64_t n, const FloatFormat& format,
                   TensorStats& stats, double* sum, double* sum_sq) {
  measure_one_chunk(Tap(format), in, out, n, stats, sum, sum_sq);
}

TensorStats measure_tensor(const float* in, float* out, int64_t n, const FloatFormat& format) {
  const Tap tap(format);
  const int64_t chunks = chunk_count(n);
  TensorStats total;
  if (n < kThreadedFrom || omp_get_max_threads() == 1 || omp_in_parallel() != 0) {
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t first = c * kSumChunk;
      double sum, sum_sq;
      measure_one_chunk(tap, in + first, advance(out, first), chunk_size(c, n), total, &sum,
                        &sum_sq);
      total.sum += sum;
      total.sum_sq += sum_sq;
    }
    return total;
  }
  std::vector<double> sum(static_cast<size_t>(chunks));
  std::vector<double> sum_sq(static_cast<size_t>(chunks));
#pragma omp parallel
  {
    TensorStats own;
#pragma omp for schedule(static) nowait
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t first = c * kSumChunk;
      measure_one_chunk(tap, in + first, advance(out, first), chunk_size(c, n), own,
                        &sum[static_cast<size_t>(c)], &sum_sq[static_cast<size_t>(c)]);
    }
#pragma omp critical(halfscope_measure_merge)
    total.merge(own);
  }
  for (size_t c = 0; c < sum.size(); ++c) {
    total.sum += sum[c];
    total.sum_sq += sum_sq[c];
  }
  return total;
}

void round_tensor(const float* in, float* out, int64_t n, const FloatFormat& format) {
  const Tap tap(format);
  if (n < kThreadedFrom || omp_get_max_threads() == 1 || omp_in_parallel() != 0) {
    round_elements(tap, in, out, n);
    return;
  }
  const int64_t chunks = chunk_count(n);
#pragma omp parallel for schedule(static)
  for (int64_t c = 0; c < chunks; ++c) {
    round_elements(tap, in + c * kSumChunk, out + c * kSumChunk, chunk_size(c, n));
  }
}

}  // namespace halfscope
