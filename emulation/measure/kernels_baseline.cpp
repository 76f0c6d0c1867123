// SPDX-License-Identifier: MIT
// Measuring kernels without intrinsics. Branch-free element functions in loops that the compiler
// vectorises for any processor; the histogram is eight interleaved tables, so that equal
// neighbours do not wait for each other's counter.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/numeric/tensor_stats.h"
#include "emulation/measure/kernels.h"

namespace halfscope::measure_detail {
namespace {

constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint32_t kQuietBit = 0x00400000u;

// The cut removes payload bits that the format lacks; results that are not NaN have none there.

struct RoundCopy {
  explicit RoundCopy(const RoundSpec&) {}
  uint32_t operator()(uint32_t x) const { return x | ((x & ~kSign) > kInfinity ? kQuietBit : 0u); }
};

struct RoundCarry {
  uint32_t last_bit, below_half, kept;
  explicit RoundCarry(const RoundSpec& spec)
      : last_bit(spec.last_bit), below_half(spec.last_bit / 2 - 1), kept(spec.kept) {}
  uint32_t operator()(uint32_t x) const {
    // Half a step less 1, and 1 more if the kept mantissa is odd: ties go to even.
    const uint32_t rounded = x + below_half + ((x & last_bit) != 0 ? 1u : 0u);
    return ((x & ~kSign) > kInfinity ? x | kQuietBit : rounded) & kept;
  }
};

struct RoundMagic {
  // Magnitudes as signed integers: every vector unit compares those, and they order like floats.
  int32_t low, high, kept, overflow, max_finite;
  float magic;
  explicit RoundMagic(const RoundSpec& spec)
      : low(static_cast<int32_t>(spec.exponent_low)),
        high(static_cast<int32_t>(spec.exponent_high)),
        kept(static_cast<int32_t>(spec.kept & ~kSign)),
        overflow(static_cast<int32_t>(spec.overflow)),
        max_finite(std::bit_cast<int32_t>(spec.max_finite)),
        magic(spec.magic) {}
  /// The magnitude of the rounded value.
  int32_t magnitude(float x) const {
    const int32_t input = std::bit_cast<int32_t>(x) & 0x7fffffff;
    int32_t power = input & 0x7f800000;
    power = power < low ? low : power;
    power = power > high ? high : power;
    const float shift = std::bit_cast<float>(power) * magic;  // exact
    const float rounded = (x + shift) - shift;
    const int32_t result = std::bit_cast<int32_t>(rounded) & kept;
    // A NaN stays what the addition made of it: quiet, with its payload.
    const int32_t limit = input > 0x7f800000 ? 0x7fffffff : max_finite;
    return result > limit ? overflow : result;
  }
  uint32_t operator()(uint32_t x) const {
    return static_cast<uint32_t>(magnitude(std::bit_cast<float>(x))) | (x & kSign);
  }
};

template <class Round>
void round_loop(const float* in, float* out, int64_t n, const RoundSpec& spec) {
  const Round round(spec);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = std::bit_cast<float>(round(std::bit_cast<uint32_t>(in[i])));
  }
}

void round(const float* in, float* out, int64_t n, const RoundSpec& spec) {
  switch (spec.kind) {
    case RoundKind::copy:
      return round_loop<RoundCopy>(in, out, n, spec);
    case RoundKind::carry:
      return round_loop<RoundCarry>(in, out, n, spec);
    case RoundKind::half:
    case RoundKind::magic:
      return round_loop<RoundMagic>(in, out, n, spec);
    case RoundKind::reference:
      return;
  }
}

template <bool kStore>
void round_count_loop(const float* in, float* out, int64_t n, const RoundSpec& spec,
                      RoundCounts& counts) {
  const RoundMagic round(spec);
  int32_t zero = 0, below_normal = 0, non_finite = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float x = in[i];
    const int32_t magnitude = round.magnitude(x);
    if constexpr (kStore) {
      const uint32_t sign = std::bit_cast<uint32_t>(x) & kSign;
      out[i] = std::bit_cast<float>(static_cast<uint32_t>(magnitude) | sign);
    }
    // Sign bits of differences instead of conditions, which would become branches.
    zero -= (magnitude - 1) >> 31;
    below_normal -= (magnitude - round.low) >> 31;
    non_finite -= (0x7f7fffff - magnitude) >> 31;
  }
  counts = {.zero = zero, .below_normal = below_normal, .non_finite = non_finite};
}

void round_count(const float* in, float* out, int64_t n, const RoundSpec& spec,
                 RoundCounts& counts) {
  return out == nullptr ? round_count_loop<false>(in, out, n, spec, counts)
                        : round_count_loop<true>(in, out, n, spec, counts);
}

void find_extremes(const float* in, int64_t n, Survey& result) {
  uint32_t max = 0, min_below = ~uint32_t{0};
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(in[i]) & ~kSign;
    max = std::max(max, magnitude);
    min_below = std::min(min_below, magnitude - 1);  // zero wraps to the largest
  }
  result.max_bits = max;
  result.min_below = min_below;
}

/// The 16 partial sums as a balanced tree (core/numeric/tensor_stats.h).
double add_partials(double* partial) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int j = 0; j < half; ++j) partial[j] += partial[j + half];
  }
  return partial[0];
}

void add_sums(const float* in, int64_t n, Survey& result) {
  double sum[16] = {};
  double sum_sq[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 16; ++j) {
      const double x = static_cast<double>(in[i + j]);
      sum[j] += x;
      sum_sq[j] += x * x;
    }
  }
  for (int j = 0; i + j < n; ++j) {
    const double x = static_cast<double>(in[i + j]);
    sum[j] += x;
    sum_sq[j] += x * x;
  }
  result.sum = add_partials(sum);
  result.sum_sq = add_partials(sum_sq);
}

void count_exponents(const float* in, int64_t n, int64_t* exponents, Survey& result) {
  constexpr int kTables = 8;
  uint32_t table[kTables][256] = {};
  const auto exponent = [in](int64_t i) { return std::bit_cast<uint32_t>(in[i]) << 1 >> 24; };
  int64_t i = 0;
  for (; i + kTables <= n; i += kTables) {
    for (int t = 0; t < kTables; ++t) ++table[t][exponent(i + t)];
  }
  for (; i < n; ++i) ++table[0][exponent(i)];
  for (int t = 1; t < kTables; ++t) {
    for (int e = 0; e < 256; ++e) table[0][e] += table[t][e];
  }
  result.exponent_zero = table[0][0];
  for (int e = 1; e < 255; ++e) exponents[e] += table[0][e];
}

bool survey(const float* in, int64_t n, int64_t* exponents, Survey& result) {
  find_extremes(in, n, result);
  if (result.max_bits >= kInfinity) return false;
  add_sums(in, n, result);
  count_exponents(in, n, exponents, result);
  return true;
}

}  // namespace

const Kernels& baseline_kernels() noexcept {
  static constexpr Kernels kKernels = {
      .round = round, .round_count = round_count, .survey = survey};
  return kKernels;
}

}  // namespace halfscope::measure_detail
