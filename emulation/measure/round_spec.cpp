// SPDX-License-Identifier: MIT
#include "emulation/measure/round_spec.h"

#include <bit>

namespace halfscope::measure_detail {
namespace {

uint32_t power_bits(int exponent) noexcept { return static_cast<uint32_t>(exponent + 127) << 23; }

RoundKind choose_kind(const FloatFormat& format) noexcept {
  const int low = format.min_exponent();
  const int high = format.max_exponent();
  const int m = format.mantissa_bits;
  // The kernels know neither saturation and flushing, nor that fnuz has no -0, nor what a NaN is
  // in a finite format, nor ties without mantissa bits.
  if (format != format.without_options() || m == 0 || format.encoding == Encoding::fnuz ||
      format.encoding == Encoding::finite) {
    return RoundKind::reference;
  }
  if (format == kFp16) return RoundKind::half;
  if (low == -126 && high == 127 && format.encoding == Encoding::ieee) {
    return m == 23 ? RoundKind::copy : RoundKind::carry;
  }
  // Adding M = 1.5 * 2^(e + 23 - m) leaves a multiple of 2^(e - m) as long as |x| < 2^(e + 1) is
  // at most a third of M, hence m <= 21. All results are normal fp32 numbers, and M is finite.
  const bool fits = m <= 21 && low - m >= -126 && high + 1 + 24 - m <= 127 && high > low;
  return fits ? RoundKind::magic : RoundKind::reference;
}

}  // namespace

RoundSpec make_round_spec(const FloatFormat& format) noexcept {
  RoundSpec spec{};
  spec.kind = choose_kind(format);
  if (spec.kind == RoundKind::reference) return spec;
  const int m = format.mantissa_bits;
  spec.last_bit = 1u << (23 - m);
  spec.kept = ~(spec.last_bit - 1);
  spec.exponent_low = power_bits(format.min_exponent());
  spec.exponent_high = power_bits(format.max_exponent() + 1);
  spec.magic = static_cast<float>(1.5 * FloatFormat::power_of_two(23 - m));
  spec.max_finite = static_cast<float>(format.max_finite());
  spec.overflow = format.has_infinity() ? 0x7f800000u : 0x7fc00000u;
  // Half a step above the largest finite value; its even mantissa, if it has one, wins a tie.
  const uint32_t max_bits = std::bit_cast<uint32_t>(spec.max_finite);
  const bool even = (max_bits & spec.last_bit) == 0;
  spec.overflow_from = max_bits + (m == 23 ? 1u : spec.last_bit / 2 + (even ? 1u : 0u));
  return spec;
}

}  // namespace halfscope::measure_detail
