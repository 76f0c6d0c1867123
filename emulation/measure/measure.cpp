// SPDX-License-Identifier: MIT
// The tap's driver: chooses the kernels of the active instruction set, handles rare inputs
// (infinities, NaNs, fp32 subnormals), and distributes chunks over threads. A chunk is read
// completely before it is rounded, so the output may be the input.
#include "emulation/measure/measure.h"

#include <omp.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <iterator>
#include <vector>

#include "core/numeric/formats/round.h"
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

/// Below this many elements, starting threads takes longer than it saves.
constexpr int64_t kThreadedFrom = 32768;

/// 24 MiB, like the threshold that C libraries' memcpy has with large caches.
constexpr int64_t kStreamFrom = int64_t{6} << 20;

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

/// Context of one call, looked up once per array.
struct ArrayTap {
  const Kernels& kernels;
  const FloatFormat& format;
  const TensorRounding& rounding;
  RoundSpec spec;
  bool stream;

  ArrayTap(const FloatFormat& wanted, const TensorRounding& how, bool past_caches)
      : kernels(active_kernels()),
        format(wanted),
        rounding(how),
        spec(measure_detail::make_round_spec(wanted, how)),
        stream(past_caches) {}
  /// With the spec that these two have.
  ArrayTap(const FloatFormat& wanted, const TensorRounding& how, const RoundSpec& known)
      : kernels(active_kernels()), format(wanted), rounding(how), spec(known), stream(false) {}
};

/// Returns whether stores should bypass the caches. Larger arrays would not stay there anyway. In
/// place, the line is already in the cache.
bool should_stream(const float* in, const float* out, int64_t n) {
  return in != out && n >= kStreamFrom;
}

/// Orders a thread's streaming stores before its next operations.
void end_streaming(const ArrayTap& tap) {
#if defined(__x86_64__)
  if (tap.stream) _mm_sfence();
#else
  static_cast<void>(tap);
#endif
}

uint32_t magnitude_bits(float x) noexcept { return std::bit_cast<uint32_t>(x) & kMagnitude; }

/// Copies a chunk with zeros in place of infinities and NaNs; counts these and returns their
/// number.
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

/// Adds fp32 subnormals to their histogram bins and returns their number.
int64_t count_fp32_subnormals(const ArrayTap& tap, const float* finite, int64_t n,
                              TensorStats& stats) {
  int64_t powers[23] = {};
  tap.kernels.subnormals(finite, n, powers);
  int64_t count = 0;
  for (size_t p = 0; p < std::size(powers); ++p) {
    stats.exponents[p] += powers[p];
    count += powers[p];
  }
  return count;
}

int64_t count_at_least(const float* finite, int64_t n, uint32_t magnitude) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += magnitude_bits(finite[i]) >= magnitude;
  return count;
}

/// Measures elements first .. first + n of the call's array.
void measure_one_chunk(const ArrayTap& tap, int64_t first, const float* in, float* out, int64_t n,
                       TensorStats& stats, double* sum, double* sum_sq) {
  const uint64_t index = tap.rounding.from(first).first;
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
  int64_t fp32_subnormal = 0;
  if (survey.max_bits != 0) {
    const uint32_t min_bits = survey.min_below + 1;
    stats.min_abs = std::min(stats.min_abs, std::bit_cast<float>(min_bits));
    if (min_bits < kSmallestNormal) fp32_subnormal = count_fp32_subnormals(tap, finite, n, stats);
  }
  zero -= fp32_subnormal;
  stats.zero += zero;

  // With fp32's exponents only fp32 subnormals can become zero or subnormal.
  const bool wide = tap.spec.kind == RoundKind::carry && fp32_subnormal == 0;
  if (!wide && tap.spec.kind != RoundKind::copy) {
    RoundCounts counts;
    tap.kernels.round_count(in, out, n, tap.spec, index, tap.stream, counts);
    stats.overflow += counts.beyond - non_finite;
    stats.underflow += counts.zero - zero;
    stats.subnormal += counts.below_normal - counts.zero;
    return;
  }
  if (tap.spec.kind == RoundKind::copy) stats.subnormal += fp32_subnormal;
  if (survey.max_bits >= tap.spec.overflow_from) {
    stats.overflow += count_at_least(finite, n, tap.spec.overflow_from);
  }
  if (out != nullptr) tap.kernels.round(in, out, n, tap.spec, index, tap.stream);
}

int64_t chunk_count(int64_t n) { return (n + kSumChunk - 1) / kSumChunk; }
int64_t chunk_size(int64_t chunk, int64_t n) { return std::min(kSumChunk, n - chunk * kSumChunk); }

float* advance(float* out, int64_t by) { return out == nullptr ? nullptr : out + by; }

}  // namespace

void round_array(const float* in, float* out, int64_t n, const FloatFormat& format,
                 const TensorRounding& rounding) {
  const ArrayTap tap(format, rounding, should_stream(in, out, n));
  tap.kernels.round(in, out, n, tap.spec, rounding.first, tap.stream);
  end_streaming(tap);
}

void measure_chunk(const float* in, float* out, int64_t n, const FloatFormat& format,
                   TensorStats& stats, double* sum, double* sum_sq,
                   const TensorRounding& rounding) {
  measure_one_chunk(ArrayTap(format, rounding, false), 0, in, out, n, stats, sum, sum_sq);
}

struct ChunkMeter::Tap {
  FloatFormat format;
  TensorRounding rounding{};
  RoundSpec spec;

  explicit Tap(const FloatFormat& wanted)
      : format(wanted), spec(measure_detail::make_round_spec(format, rounding)) {}
};

ChunkMeter::ChunkMeter(const FloatFormat& format) : tap_(std::make_unique<const Tap>(format)) {}
ChunkMeter::~ChunkMeter() = default;
ChunkMeter::ChunkMeter(ChunkMeter&&) noexcept = default;
ChunkMeter& ChunkMeter::operator=(ChunkMeter&&) noexcept = default;

void ChunkMeter::measure(const float* in, int64_t n, TensorStats& stats, double* sum,
                         double* sum_sq) const {
  const ArrayTap tap(tap_->format, tap_->rounding, tap_->spec);
  measure_one_chunk(tap, 0, in, nullptr, n, stats, sum, sum_sq);
}

TensorStats measure_tensor(const float* in, float* out, int64_t n, const FloatFormat& format,
                           const TensorRounding& rounding) {
  const ArrayTap tap(format, rounding, out != nullptr && should_stream(in, out, n));
  const int64_t chunks = chunk_count(n);
  TensorStats total;
  if (n < kThreadedFrom || omp_get_max_threads() == 1 || omp_in_parallel() != 0) {
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t first = c * kSumChunk;
      double sum, sum_sq;
      measure_one_chunk(tap, first, in + first, advance(out, first), chunk_size(c, n), total, &sum,
                        &sum_sq);
      total.sum += sum;
      total.sum_sq += sum_sq;
    }
    end_streaming(tap);
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
      measure_one_chunk(tap, first, in + first, advance(out, first), chunk_size(c, n), own,
                        &sum[static_cast<size_t>(c)], &sum_sq[static_cast<size_t>(c)]);
    }
    end_streaming(tap);
#pragma omp critical(halfscope_measure_merge)
    total.merge(own);
  }
  for (size_t c = 0; c < sum.size(); ++c) {
    total.sum += sum[c];
    total.sum_sq += sum_sq[c];
  }
  return total;
}

void round_tensor(const float* in, float* out, int64_t n, const FloatFormat& format,
                  const TensorRounding& rounding) {
  if (n < kThreadedFrom || omp_get_max_threads() == 1 || omp_in_parallel() != 0) {
    round_array(in, out, n, format, rounding);
    return;
  }
  const ArrayTap tap(format, rounding, should_stream(in, out, n));
  const int64_t chunks = chunk_count(n);
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads();
    const int64_t thread = omp_get_thread_num();
    const int64_t first = chunks * thread / threads * kSumChunk;
    const int64_t last = std::min(chunks * (thread + 1) / threads * kSumChunk, n);
    tap.kernels.round(in + first, out + first, last - first, tap.spec, rounding.from(first).first,
                      tap.stream);
    end_streaming(tap);
  }
}

}  // namespace halfscope
