// SPDX-License-Identifier: MIT
// Measuring kernels without intrinsics. Branch-free element functions in loops that the compiler
// vectorises for any processor. The histogram consists of eight interleaved tables, so that equal
// neighbours do not wait for each other's counter.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/numeric/formats/rng.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "emulation/measure/general_round.h"
#include "emulation/measure/kernels.h"
#include "emulation/measure/magic_round.h"

namespace halfscope::measure_detail {
namespace {

constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint32_t kQuietBit = 0x00400000u;

// The cut removes payload bits that the format lacks; values that are not NaN have no bits there.

struct RoundCopy {
  explicit RoundCopy(const RoundSpec&) {}
  uint32_t operator()(uint32_t x) const { return x | ((x & ~kSign) > kInfinity ? kQuietBit : 0u); }
};

struct RoundCarry {
  uint32_t last_bit, below_half, kept;
  explicit RoundCarry(const RoundSpec& spec)
      : last_bit(spec.last_bit), below_half(spec.last_bit / 2 - 1), kept(spec.kept) {}
  uint32_t operator()(uint32_t x) const {
    // Half a step less 1, plus 1 if the kept mantissa is odd: ties go to even.
    const uint32_t rounded = x + below_half + ((x & last_bit) != 0 ? 1u : 0u);
    return ((x & ~kSign) > kInfinity ? x | kQuietBit : rounded) & kept;
  }
};

struct RoundMagic {
  // Magnitudes as signed integers: every vector unit can compare those, and they order like floats.
  int32_t low, high, kept, overflow, max_finite;
  float magic;
  explicit RoundMagic(const RoundSpec& spec)
      : low(static_cast<int32_t>(spec.exponent_low)),
        high(static_cast<int32_t>(spec.exponent_high)),
        kept(static_cast<int32_t>(spec.kept & ~kSign)),
        overflow(static_cast<int32_t>(spec.overflow)),
        max_finite(std::bit_cast<int32_t>(spec.max_finite)),
        magic(spec.magic) {}
  /// Returns the magnitude of the rounded value.
  int32_t magnitude(float x) const {
    const int32_t input = std::bit_cast<int32_t>(x) & 0x7fffffff;
    int32_t power = input & 0x7f800000;
    power = power < low ? low : power;
    power = power > high ? high : power;
    const float shift = std::bit_cast<float>(power) * magic;  // exact
    const float rounded = (x + shift) - shift;
    const int32_t result = std::bit_cast<int32_t>(rounded) & kept;
    // A NaN stays as the addition made it: quiet, with its payload.
    const int32_t limit = input > 0x7f800000 ? 0x7fffffff : max_finite;
    return result > limit ? overflow : result;
  }
  uint32_t operator()(uint32_t x) const {
    return static_cast<uint32_t>(magnitude(std::bit_cast<float>(x))) | (x & kSign);
  }
};

/// A vector of one float, for general_round.h.
struct One {
  using I = uint32_t;
  using F = float;
  using M = bool;
  static constexpr bool kRoundsAnyWay = false;

  static int32_t as_signed(I x) { return static_cast<int32_t>(x); }
  static I zero() { return 0; }
  static I set32(uint32_t x) { return x; }
  static I set_bits(float x) { return std::bit_cast<uint32_t>(x); }
  static I and_(I a, I b) { return a & b; }
  static I and_not(I a, I b) { return a & ~b; }
  static I or_(I a, I b) { return a | b; }
  static I xor_(I a, I b) { return a ^ b; }
  static I add32(I a, I b) { return a + b; }
  static I sub32(I a, I b) { return a - b; }
  static I max_signed(I a, I b) { return as_signed(a) > as_signed(b) ? a : b; }
  static I min_signed(I a, I b) { return as_signed(a) < as_signed(b) ? a : b; }
  // Shifts by 32 or more, or by negative counts, return 0.
  static I left(I x, I count) { return count < 32 ? x << count : 0; }
  static I right(I x, I count) { return count < 32 ? x >> count : 0; }
  template <int kShift>
  static I left32(I x) {
    return x << kShift;
  }
  template <int kShift>
  static I right32(I x) {
    return x >> kShift;
  }
  static I exponent_field(I x) { return x >> 23; }
  static I from_integer(I x) { return std::bit_cast<uint32_t>(static_cast<float>(as_signed(x))); }
  static I sign_mask(I x) { return static_cast<uint32_t>(as_signed(x) >> 31); }
  static M less(I a, I b) { return as_signed(a) < as_signed(b); }
  static M both(M a, M b) { return a & b; }
  static M either(M a, M b) { return a | b; }
  static I keep_if(M m, I a) { return m ? a : 0; }
  static I choose(M m, I a, I b) { return m ? a : b; }
  static I choose_by_sign(I x, I negative, I positive) {
    return as_signed(x) < 0 ? negative : positive;
  }
  static I subtract_if(I a, M m, I b) { return a - (m ? b : 0); }
  static I count(I counter, M m) { return counter + (m ? 1 : 0); }
  static M above(I a, I b) { return a > b; }

  static F as_float(I x) { return std::bit_cast<float>(x); }
  static I as_int(F x) { return std::bit_cast<uint32_t>(x); }
  static F set_float(float x) { return x; }
  static I max32(I a, I b) { return std::max(a, b); }
  static I min32(I a, I b) { return std::min(a, b); }
  // The products are powers of two times a few bits, so they are exact.
  static F fma(F a, F b, F c) { return a * b + c; }
  static F fnma(F a, F b, F c) { return c - a * b; }
  static F fma_up(F a, F b, F c) { return fma(a, b, c); }
  static F fma_truncate(F a, F b, F c) { return fma(a, b, c); }
  static F multiply(F a, F b) { return a * b; }
  static F subtract(F a, F b) { return a - b; }
  static F or_zero(F x) { return x > 0 ? x : 0; }
  static I to_unsigned(F x) { return x < 0x1p32f ? static_cast<uint32_t>(x) : 0; }
  static M equal(I a, I b) { return a == b; }
  static M equal_float(F a, F b) { return a == b; }
  static M differ_float(F a, F b) { return (a < b) | (a > b); }
  static M less_float(F a, F b) { return a < b; }
  static M not_up_to(I a, F b) { return a > as_int(b); }
  static I count_down(I counter, M m) { return counter - (m ? 1 : 0); }
  static I or_if(I a, M m, I bits) { return m ? a | bits : a; }
  static I or_masked(I a, I x, I mask) { return a | (x & mask); }
  static I replace_if_above(I a, F limit, I b) { return as_float(a) > limit ? b : a; }
};

/// Makes one draw at a time.
template <>
struct DrawLimits<One> {
  uint64_t start, index;
  uint32_t mask;
  DrawLimits(const RoundSpec& spec, uint64_t first)
      : start(spec.draw_start), index(first), mask(spec.random_mask) {}
  uint32_t next() {
    const uint64_t word = splitmix64(start + index / 2 * kDrawStep);
    const uint32_t draw = static_cast<uint32_t>(word >> (index % 2 * 32));
    ++index;
    return ~(draw & mask);
  }
};

template <class Round>
void round_loop(const float* in, float* out, int64_t n, const RoundSpec& spec) {
  const Round round(spec);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = std::bit_cast<float>(round(std::bit_cast<uint32_t>(in[i])));
  }
}

/// Rounds with the kinds that are written once for vectors and single numbers.
template <bool kStore, bool kCount>
void round_shared(const float* in, float* out, int64_t n, const RoundSpec& spec, uint64_t first,
                  RoundCounts* counts) {
  const auto pass = [&]<class Round>(const Round*) {
    Round round(spec, first);
    int64_t non_zero = 0, normal = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t result = round.template apply<kCount>(std::bit_cast<uint32_t>(in[i]));
      if constexpr (kStore) out[i] = std::bit_cast<float>(result);
      if constexpr (kCount) {
        non_zero += (result & ~kSign) != 0;
        normal += (result & ~kSign) >= spec.exponent_low;
      }
    }
    if constexpr (kCount) {
      *counts = {.zero = n - non_zero, .below_normal = n - normal, .beyond = round.beyond};
    }
  };
  switch (spec.kind) {
    case RoundKind::magic_way:
      return with_magic_way<One>(spec, pass);
    case RoundKind::general:
      return with_general<One>(spec, pass);
    default:
      return pass(static_cast<const RoundGeneral<One, RoundWay::nearest_even, RoundRange::fixed>*>(
          nullptr));
  }
}

void round(const float* in, float* out, int64_t n, const RoundSpec& spec, uint64_t first,
           bool /*stream*/) {
  switch (spec.kind) {
    case RoundKind::copy:
      return round_loop<RoundCopy>(in, out, n, spec);
    case RoundKind::carry:
      return round_loop<RoundCarry>(in, out, n, spec);
    case RoundKind::half:
    case RoundKind::magic:
      return round_loop<RoundMagic>(in, out, n, spec);
    case RoundKind::magic_way:
    case RoundKind::general:
      return round_shared<true, false>(in, out, n, spec, first, nullptr);
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
  counts = {.zero = zero, .below_normal = below_normal, .beyond = non_finite};
}

void round_count(const float* in, float* out, int64_t n, const RoundSpec& spec, uint64_t first,
                 bool /*stream*/, RoundCounts& counts) {
  if (spec.kind != RoundKind::half && spec.kind != RoundKind::magic) {
    return out == nullptr ? round_shared<false, true>(in, out, n, spec, first, &counts)
                          : round_shared<true, true>(in, out, n, spec, first, &counts);
  }
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

/// Adds the 16 partial sums as a balanced tree (core/numeric/statistics/tensor_stats.h).
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

void subnormals(const float* in, int64_t n, int64_t* powers) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(in[i]) & ~kSign;
    if (magnitude != 0 && magnitude < 0x00800000u) ++powers[std::bit_width(magnitude) - 1];
  }
}

}  // namespace

const Kernels& baseline_kernels() noexcept {
  static constexpr Kernels kKernels = {
      .round = round, .round_count = round_count, .survey = survey, .subnormals = subnormals};
  return kKernels;
}

}  // namespace halfscope::measure_detail
