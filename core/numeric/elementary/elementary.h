// SPDX-License-Identifier: MIT
// exp, expm1, log, log1p, pow, sin, cos, tanh, erf and erfc in double that give the same bits on
// every processor, compiler and GPU, unlike those of C libraries and CUDA. They use only IEEE 754's
// +, -, * and / and integers, never contracted to a fused multiply-add: compile files that include
// this with -ffp-contract=off, for nvcc with --fmad=false.
//
// Errors are below one unit in the last place (docs/semantics.md has the figures). A result is the
// rounded sum of an exact number and a much smaller correction. To get these, sums of two doubles
// are computed together with their error (Moller 1965, Dekker 1971) and quotients in two parts.
// Apart from sin and cos nothing branches: all cases are computed and one is chosen, so that
// compilers can vectorize. The polynomials are in elementary_tables.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/host_device.h"
#include "core/numeric/elementary/elementary_tables.h"

namespace halfscope::elementary {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Bits.

HS_HD inline uint64_t bits_of(double x) noexcept { return std::bit_cast<uint64_t>(x); }
HS_HD inline double from_bits(uint64_t bits) noexcept { return std::bit_cast<double>(bits); }
HS_HD inline double magnitude(double x) noexcept { return from_bits(bits_of(x) & ~(1ull << 63)); }
/// Returns the magnitude of x (x >= 0) with the sign of `of`.
HS_HD inline double with_sign(double x, double of) noexcept {
  return from_bits(bits_of(x) | (bits_of(of) & (1ull << 63)));
}
/// Returns the first 26 significant bits; the product of two such numbers is exact.
HS_HD inline double upper_half(double x) noexcept { return from_bits(bits_of(x) & (~0ull << 27)); }

/// Added to a number below 2^51, it removes the fraction and leaves the nearest integer plus the
/// exponent's bias in the low bits. Shifted to the exponent field, these bits are a power of two.
inline constexpr double kShifter = 0x1.8p52 + 1023.0;
/// Returns 2^k, given k + kShifter, for -1022 <= k <= 1023.
HS_HD inline double power_of_two(double shifted) noexcept {
  return from_bits(bits_of(shifted) << 52);
}

// Polynomials.

struct Powers {
  double x1, x2, x4, x8, x16;
};
/// Returns Table::c[First] + Table::c[First + 1] x + ..., `Count` terms. Estrin's scheme: the
/// halves do not wait for each other.
template <class Table, size_t First, size_t Count>
HS_HD inline double terms(const Powers& x) noexcept {
  if constexpr (Count == 1) {
    return Table::c[First];
  } else {
    constexpr size_t kLow = std::bit_floor(Count - 1);
    const double power = kLow == 1   ? x.x1
                         : kLow == 2 ? x.x2
                         : kLow == 4 ? x.x4
                         : kLow == 8 ? x.x8
                                     : x.x16;
    return terms<Table, First, kLow>(x) + power * terms<Table, First + kLow, Count - kLow>(x);
  }
}
template <class Table>
HS_HD inline double polynomial(double x) noexcept {
  const double x2 = x * x, x4 = x2 * x2, x8 = x4 * x4;
  return terms<Table, 0, sizeof(Table::c) / sizeof(double)>({x, x2, x4, x8, x8 * x8});
}

// Numbers in two parts.

/// high + low; |low| is at most about half a unit in the last place of high.
struct Pair {
  double high, low;
};
/// Returns a + b exactly, for |a| >= |b| or a = 0.
HS_HD inline Pair sum_of_ordered(double a, double b) noexcept {
  const double sum = a + b;
  return {sum, (a - sum) + b};
}
/// Returns a + b exactly.
HS_HD inline Pair sum(double a, double b) noexcept {
  const double sum = a + b, b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}
/// Returns a * b exactly, unless it underflows.
HS_HD inline Pair product(double a, double b) noexcept {
  const double product = a * b;
  const double a_high = upper_half(a), b_high = upper_half(b);
  const double a_low = a - a_high, b_low = b - b_high;
  return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}
/// Returns a * b with an error of some 2^-104.
HS_HD inline Pair product(Pair a, Pair b) noexcept {
  const Pair p = product(a.high, b.high);
  return sum_of_ordered(p.high, p.low + (a.high * b.low + a.low * b.high));
}
/// Returns n / d with an error of some 2^-76. The high part has 26 bits, so the remainder of n is
/// exact.
HS_HD inline Pair quotient(Pair n, Pair d) noexcept {
  const double inverse = 1.0 / d.high;
  const double q = upper_half(n.high * inverse);
  const double d_high = upper_half(d.high), d_low = d.high - d_high;
  const double rest = ((n.high - q * d_high) - q * d_low) + (n.low - q * d.low);
  return {q, rest * inverse};
}

// The exponential function.

/// x + low = k ln 2 + r + c.
struct Reduced {
  double shifted;  ///< k + kShifter
  double k, r, c;
};
/// Reduces x, for |x| <= 746 and |low| up to a unit in the last place of x.
HS_HD inline Reduced reduce(double x, double low) noexcept {
  const double shifted = x * kLog2E + kShifter;
  const double k = shifted - kShifter;
  const double high = x - k * kLn2High;  // exact
  const double back = k * kLn2Low - low;
  const double r = high - back;
  return {shifted, k, r, (high - r) - back};
}
/// Returns start + e^(r + c) - 1 in two parts, where |start| is 0 or at least |r|. Half of the
/// square has an exact part that is added separately, because the terms before it may nearly
/// cancel.
HS_HD inline Pair exp_of_rest(double start, double r, double c) noexcept {
  const double r_high = upper_half(r);
  const Pair first = sum_of_ordered(start, r);
  const Pair second = sum_of_ordered(first.high, 0.5 * r_high * r_high);
  const double rest = 0.5 * (r - r_high) * (r + r_high) + r * r * r * polynomial<ExpTail>(r);
  return {second.high, second.low + (first.low + (c * (1.0 + r) + rest))};
}
/// Returns x * 2^k, rounded once if it is subnormal, for -1075 <= k <= 1024 and 1/2 <= x < 2.
/// `shifted` is k + kShifter.
HS_HD inline double scaled(double x, double k, double shifted) noexcept {
  const bool tiny = k < -1021.0;
  const bool huge = k > 1023.0;
  const double power = power_of_two(shifted + (tiny ? 64.0 : huge ? -1.0 : 0.0));
  return x * power * (tiny ? 0x1p-64 : huge ? 2.0 : 1.0);
}
/// Returns x, limited to the range beyond which e^x is certainly 0 or infinite.
HS_HD inline double within_range(double x) noexcept {
  return x > 710.0 ? 710.0 : x < -746.0 ? -746.0 : x;
}
HS_HD inline double exp(double x) noexcept {
  const Reduced by = reduce(within_range(x), 0.0);
  const double square = by.r * by.r;
  const Pair first = sum_of_ordered(1.0, by.r);
  const double rest = 0.5 * square + square * by.r * polynomial<ExpTail>(by.r);
  return scaled(first.high + (first.low + (by.c * first.high + rest)), by.k, by.shifted);
}
/// Returns e^(x + low), a little more accurate.
HS_HD inline double exp_of_sum(double x, double low) noexcept {
  const double within = within_range(x);
  const Reduced by = reduce(within, within == x ? low : 0.0);
  const Pair power = exp_of_rest(1.0, by.r, by.c);
  return scaled(power.high + power.low, by.k, by.shifted);
}

/// (high + low) 2^k
struct ScaledPair {
  double high, low, k, shifted;
};
/// Returns e^x - 1 for -40 <= x <= 710: 2^k ((1 - 2^-k) + e^(r + c) - 1).
HS_HD inline ScaledPair expm1_in_parts(double x) noexcept {
  const Reduced by = reduce(x, 0.0);
  const double inverse = power_of_two(kShifter - (by.k > 200.0 ? 200.0 : by.k));
  const double start = 1.0 - inverse, start_low = (1.0 - start) - inverse;
  const Pair value = exp_of_rest(start, by.r, by.c);
  return {value.high, value.low + start_low, by.k, by.shifted};
}
/// Returns e^x - 1.
HS_HD inline double expm1(double x) noexcept {
  const ScaledPair parts = expm1_in_parts(x > 710.0 ? 710.0 : x < -40.0 ? -40.0 : x);
  const double result = scaled(parts.high + parts.low, parts.k, parts.shifted);
  return magnitude(x) < 0x1p-54 ? x : result;
}

HS_HD inline double tanh(double x) noexcept {
  // E / (E + 2) with E = e^(2 |x|) - 1; from 20 on it is 1.
  const double twice = 2.0 * magnitude(x);
  const ScaledPair parts = expm1_in_parts(twice > 40.0 ? 40.0 : twice);
  const double power = power_of_two(parts.shifted);
  const Pair e = sum_of_ordered(parts.high * power, parts.low * power);
  const Pair under = sum(e.high, 2.0);
  const Pair result = quotient(e, {under.high, under.low + e.low});
  return with_sign(result.high + result.low, x);
}

// The logarithm.

/// x = 2^k m with sqrt(1/2) <= m < sqrt(2), for finite x > 0.
struct Split {
  double k, m;
};
HS_HD inline Split split(double x) noexcept {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd, kBias = 1023, kExponent = 0x7ffull << 52;
  const bool subnormal = x < 0x1p-1022;
  const uint64_t bits = bits_of(subnormal ? x * 0x1p54 : x);
  const uint64_t above = bits - kSqrtHalf + (kBias << 52);  // exponent k + bias
  const double biased = from_bits((above >> 52) | bits_of(0x1p52)) - 0x1p52;
  return {biased - (subnormal ? 1023.0 + 54.0 : 1023.0),
          from_bits(bits - (above & kExponent) + (kBias << 52))};
}
/// Returns log((1 + f) 2^k), where f is at most sqrt(2) - 1: 2 artanh(f / (2 + f)) + k log(2).
HS_HD inline double log_of_parts(Pair f, double k) noexcept {
  const Pair under = sum_of_ordered(2.0, f.high);
  const Pair q = quotient(f, {under.high, under.low + f.low});
  const double s = q.high + q.low, z = s * s;
  const double tail = s * z * (kThirdHigh + z * polynomial<AtanhTail>(z));
  const Pair first = sum_of_ordered(k * kLn2High, 2.0 * q.high);
  return first.high + (first.low + (k * kLn2Low + 2.0 * (q.low + tail)));
}
/// Returns `result`, or the special value for arguments without a logarithm.
HS_HD inline double log_or_special(double x, double result) noexcept {
  const double beyond = x == 0.0 ? -kInfinity : x < 0.0 ? kNaN : x;
  return x > 0.0 && x < kInfinity ? result : beyond;
}
HS_HD inline double log(double x) noexcept {
  const Split parts = split(x);
  return log_or_special(x, log_of_parts({parts.m - 1.0, 0.0}, parts.k));
}
/// Returns log(1 + x).
HS_HD inline double log1p(double x) noexcept {
  const Pair u = sum(1.0, x);
  const Split parts = split(u.high);
  const double inverse = power_of_two(kShifter - (parts.k > 200.0 ? 200.0 : parts.k));
  const Pair f = sum_of_ordered(parts.m - 1.0, u.low * inverse);
  const double result = log_or_special(u.high, log_of_parts(f, parts.k));
  return magnitude(x) < 0x1p-54 ? x : x == kInfinity ? x : result;
}

// Powers.

/// Returns log(x) for finite x > 0 with an error of some 2^-65.
HS_HD inline Pair log_in_parts(double x) noexcept {
  const Split parts = split(x);
  const Pair q = quotient({parts.m - 1.0, 0.0}, sum(parts.m, 1.0));
  const Pair s = sum_of_ordered(q.high, q.low);
  const Pair z = sum_of_ordered(q.high * q.high, q.low * (2.0 * q.high + q.low));
  const double tail = kThirdLow + z.high * polynomial<AtanhTail>(z.high);
  const Pair cubic = product(product(s, z), sum_of_ordered(kThirdHigh, tail));
  const Pair first = sum_of_ordered(parts.k * kLn2High, 2.0 * s.high);
  const Pair second = sum_of_ordered(first.high, 2.0 * cubic.high);
  const double low = second.low + (first.low + (parts.k * kLn2Low + 2.0 * (s.low + cubic.low)));
  return sum_of_ordered(second.high, low);
}
HS_HD inline bool is_integer(double x) noexcept {
  const double m = magnitude(x);
  return m >= 0x1p52 || (m + 0x1p52) - 0x1p52 == m;
}
/// Returns a^b, with the special cases of C's Annex F.
HS_HD inline double pow(double a, double b) noexcept {
  const double base = magnitude(a);
  const bool whole = is_integer(b), odd = whole && magnitude(b) < 0x1p53 && !is_integer(0.5 * b);
  const Pair log_base = log_in_parts(base);
  const Pair p = product(b, log_base.high);
  double result = exp_of_sum(p.high, p.low + b * log_base.low);
  const bool base_is_end = base == 0.0 || base == kInfinity;
  result = base_is_end ? ((base == 0.0) == (b < 0.0) ? kInfinity : 0.0) : result;
  const double one_or_end = base == 1.0 ? 1.0 : (base < 1.0) == (b < 0.0) ? kInfinity : 0.0;
  result = magnitude(b) == kInfinity ? one_or_end : result;
  result = a < 0.0 && !whole && base < kInfinity ? kNaN : result;
  result = odd ? with_sign(result, a) : result;
  result = a != a || b != b ? kNaN : result;
  return a == 1.0 || b == 0.0 ? 1.0 : result;
}

// Sine and cosine.

/// x = (4 n + quadrant) pi / 2 + r + c with |r| <= pi / 4.
struct Angle {
  uint64_t quadrant;
  double r, c;
};
/// Returns the upper 64 bits of a product.
HS_HD inline uint64_t upper_product(uint64_t a, uint64_t b) noexcept {
  const uint64_t a1 = a >> 32, a0 = a & 0xffffffff, b1 = b >> 32, b0 = b & 0xffffffff;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + ((a0 * b1 + (middle & 0xffffffff)) >> 32);
}
/// Reduces any finite |x| >= 2^20, after Payne and Hanek (1983): x = m 2^e with an integer m. Only
/// those 192 bits of 2 / pi count that make a difference below 4 in m 2^e 2 / pi.
HS_HD inline Angle reduce_huge_angle(double x) noexcept {
  const uint64_t bits = bits_of(x) & ~(1ull << 63);
  const uint64_t m = (bits & ((1ull << 52) - 1)) | (1ull << 52);
  const uint64_t at = (bits >> 52) - 1075 + 62;  // e + 62: the first bit, as 64 zeros come first
  const uint64_t word = at / 64, shift = at % 64;
  uint64_t window[3];
  for (uint64_t i = 0; i < 3; ++i) {
    const uint64_t next = shift == 0 ? 0 : two_over_pi_word(word + i + 1) >> (64 - shift);
    window[i] = (two_over_pi_word(word + i) << shift) | next;
  }
  const uint64_t low = m * window[2];
  const uint64_t middle = m * window[1] + upper_product(m, window[2]);
  const uint64_t carry = middle < m * window[1] ? 1 : 0;
  const uint64_t high = m * window[0] + upper_product(m, window[1]) + carry;
  // Two bits before the point, 190 after it; to the nearest quarter turn.
  uint64_t fraction[3] = {(high << 2) | (middle >> 62), (middle << 2) | (low >> 62), low << 2};
  const bool above = (fraction[0] >> 63) != 0;
  const uint64_t quadrant = (high >> 62) + (above ? 1 : 0);
  if (above) {  // negated
    fraction[2] = ~fraction[2] + 1;
    fraction[1] = ~fraction[1] + (fraction[2] == 0 ? 1 : 0);
    fraction[0] = ~fraction[0] + (fraction[2] == 0 && fraction[1] == 0 ? 1 : 0);
  }
  double scale = 1.0;
  while ((fraction[0] >> 63) == 0) {  // about 60 times at most: no double is closer to pi / 2 n
    fraction[0] = (fraction[0] << 1) | (fraction[1] >> 63);
    fraction[1] = (fraction[1] << 1) | (fraction[2] >> 63);
    fraction[2] <<= 1;
    scale *= 0.5;
  }
  const double first = static_cast<double>(fraction[0] >> 11) * 0x1p-53 * scale;
  const double second =
      static_cast<double>(((fraction[0] & 2047) << 42) | (fraction[1] >> 22)) * 0x1p-106 * scale;
  const Pair r = product(sum_of_ordered(first, second), {kHalfPiHigh, kHalfPiLow});
  const bool negative = above != (x < 0.0);
  return {x < 0.0 ? 0 - quadrant : quadrant, negative ? -r.high : r.high,
          negative ? -r.low : r.low};
}
HS_HD inline Angle reduce_angle(double x) noexcept {
  if (magnitude(x) >= 0x1p20) return reduce_huge_angle(x);
  const double shifted = x * kTwoOverPi + kShifter;
  const double k = shifted - kShifter;
  const Pair first = sum(x - k * kHalfPi1, -k * kHalfPi2);  // x - k kHalfPi1 is exact
  const Pair second = sum(first.high, -k * kHalfPi3);
  const Pair r = sum_of_ordered(second.high, (first.low + second.low) - k * kHalfPi4);
  return {bits_of(shifted) - bits_of(kShifter), r.high, r.low};
}
HS_HD inline double sin_of_rest(double r, double c) noexcept {
  const double z = r * r;
  return r + (c * (1.0 - 0.5 * z) + z * r * polynomial<SinTail>(z));
}
HS_HD inline double cos_of_rest(double r, double c) noexcept {
  const double r_high = upper_half(r), z = r * r;
  const Pair first = sum_of_ordered(1.0, -0.5 * r_high * r_high);
  const double rest = z * z * polynomial<CosTail>(z) - 0.5 * (r - r_high) * (r + r_high) - r * c;
  return first.high + (first.low + rest);
}
/// Returns sin(x + quarters pi / 2).
HS_HD inline double sin_of_turned(double x, uint64_t quarters) noexcept {
  if (!(magnitude(x) < kInfinity)) return kNaN;
  const Angle angle = reduce_angle(x);
  const uint64_t quadrant = angle.quadrant + quarters;
  const double result =
      (quadrant & 1) != 0 ? cos_of_rest(angle.r, angle.c) : sin_of_rest(angle.r, angle.c);
  return (quadrant & 2) != 0 ? -result : result;
}
HS_HD inline double sin(double x) noexcept {
  return magnitude(x) < 0x1p-27 ? x : sin_of_turned(x, 0);
}
HS_HD inline double cos(double x) noexcept { return sin_of_turned(x, 1); }

// The error function.

/// Returns erf(x) for |x| <= 1/2.
HS_HD inline Pair erf_near(double x) noexcept {
  const Pair first = product(x, kTwoOverRootPiHigh);
  const double z = x * x;
  const double low = first.low + x * (kTwoOverRootPiLow + z * polynomial<ErfTail>(z));
  return {first.high, magnitude(x) < 0x1p-900 ? 0.0 : low};  // where products are not exact
}
/// Returns erfc(x) for 1/2 <= x <= 27.3: e^(-x^2) times a nearly constant function, divided by 1 +
/// 3 x / 2 (the idea is Shepherd and Laframboise's, 1981).
HS_HD inline ScaledPair erfc_far(double x) noexcept {
  const Pair square = product(x, x);
  const Reduced by = reduce(-square.high, -square.low);
  const Pair power = exp_of_rest(1.0, by.r, by.c);
  const double t = (x - 3.5) / (x + 3.5);
  const double tail = kErfcMiddleLow + t * polynomial<ErfcTail>(t);
  const Pair over =
      product(sum_of_ordered(power.high, power.low), sum_of_ordered(kErfcMiddleHigh, tail));
  const Pair more = sum_of_ordered(x, 0.5 * x), under = sum(more.high, 1.0);
  const Pair value = quotient(over, {under.high, under.low + more.low});
  return {value.high, value.low, by.k, by.shifted};
}
/// Returns from - x, for x at most as large.
HS_HD inline double complement(double from, double x_high, double x_low) noexcept {
  const Pair first = sum_of_ordered(from, -x_high);
  return first.high + (first.low - x_low);
}
HS_HD inline double erfc(double x) noexcept {
  const double m = magnitude(x);
  const Pair near = erf_near(x);
  const ScaledPair far = erfc_far(m > 27.3 ? 27.3 : m);
  const double positive = scaled(far.high + far.low, far.k, far.shifted);
  // For x < 0: 2 - erfc(-x).
  const double power = power_of_two(far.k < -200.0 ? kShifter - 200.0 : far.shifted);
  const double negative = complement(2.0, far.high * power, far.low * power);
  const double beyond = x < 0.0 ? negative : positive;
  return m < 0.5 ? complement(1.0, near.high, near.low) : beyond;
}
HS_HD inline double erf(double x) noexcept {
  const double m = magnitude(x);
  const Pair near = erf_near(m);
  const ScaledPair far = erfc_far(m > 6.0 ? 6.0 : m);  // beyond it is 1
  const double power = power_of_two(far.shifted);
  const double beyond = complement(1.0, far.high * power, far.low * power);
  return with_sign(m < 0.5 ? near.high + near.low : beyond, x);
}

}  // namespace halfscope::elementary
