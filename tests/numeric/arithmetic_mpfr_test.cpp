// SPDX-License-Identifier: MIT
// Arithmetic against MPFR: precision, exponent range and mpfr_subnormalize of a format give value,
// sign and ternary (inexact). Overflow and underflow are judged on the result with unbounded
// exponent range, that is tininess after rounding (IEEE 754-2019, 7.4 and 7.5). Modes that MPFR
// lacks are in arithmetic_test.cpp.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/numeric/formats/arithmetic.h"
#include "tests/numeric/enumerated_format.h"
#include "tests/numeric/mpfr_number.h"
#include "tests/numeric/operands.h"

namespace halfscope {
namespace {

using testing::MpfrNumber;
using testing::Operands;
using testing::Operation;

class MpfrFormat {
 public:
  explicit MpfrFormat(const FloatFormat& format)
      : format_(format), a_(24), b_(24), c_(24), result_(format.mantissa_bits + 1) {}

  Rounded<double> run(Operation operation, float a, float b, float c, RoundingMode mode) {
    const mpfr_rnd_t direction = mode == RoundingMode::nearest_even  ? MPFR_RNDN
                                 : mode == RoundingMode::toward_zero ? MPFR_RNDZ
                                 : mode == RoundingMode::up          ? MPFR_RNDU
                                                                     : MPFR_RNDD;
    mpfr_set_flt(a_.get(), a, MPFR_RNDN);
    mpfr_set_flt(b_.get(), b, MPFR_RNDN);
    mpfr_set_flt(c_.get(), c, MPFR_RNDN);
    mpfr_ptr result = result_.get();
    mpfr_clear_flags();
    int ternary = calculate(operation, direction);
    uint8_t flags = kExact;
    if (mpfr_nanflag_p()) flags |= kInvalid;
    if (mpfr_divby0_p()) flags |= kDivideByZero;
    const bool finite = mpfr_number_p(result) != 0;
    const double unbounded = std::fabs(mpfr_get_d(result, MPFR_RNDN));  // wide enough
    const bool overflow = finite && unbounded > format_.max_finite();
    const bool tiny = finite && unbounded < format_.min_normal();

    const mpfr_exp_t before_min = mpfr_get_emin(), before_max = mpfr_get_emax();
    mpfr_set_emin(format_.min_exponent() - format_.mantissa_bits + 1);  // 1/2 <= |x| < 1 there
    mpfr_set_emax(format_.max_exponent() + 1);
    ternary = mpfr_check_range(result, ternary, direction);
    ternary = mpfr_subnormalize(result, ternary, direction);
    mpfr_set_emin(before_min);
    mpfr_set_emax(before_max);
    double value = mpfr_get_d(result, MPFR_RNDN);

    if (overflow) {
      flags |= kInexact | kOverflow;
      // MPFR has infinity; e4m3fn has NaN instead, and ends one value earlier.
      if (!format_.has_infinity()) {
        const bool stays = mode == RoundingMode::toward_zero ||
                           mode == (value > 0 ? RoundingMode::down : RoundingMode::up);
        value = std::copysign(
            stays ? format_.max_finite() : std::numeric_limits<double>::quiet_NaN(), value);
      }
      return {value, flags};
    }
    if (!format_.has_infinity() && std::isinf(value)) {
      return {std::copysign(std::numeric_limits<double>::quiet_NaN(), value),
              static_cast<uint8_t>(flags | kInexact | kOverflow)};
    }
    if (ternary != 0) flags |= kInexact;
    if (ternary != 0 && tiny) flags |= kUnderflow;
    if (ternary != 0 && value == 0) flags |= kFlushed;
    if (value != 0 && std::fabs(value) < format_.min_normal()) flags |= kSubnormal;
    return {value, flags};
  }

 private:
  int calculate(Operation operation, mpfr_rnd_t direction) {
    mpfr_ptr result = result_.get(), a = a_.get(), b = b_.get(), c = c_.get();
    switch (operation) {
      case Operation::add:
        return mpfr_add(result, a, b, direction);
      case Operation::sub:
        return mpfr_sub(result, a, b, direction);
      case Operation::mul:
        return mpfr_mul(result, a, b, direction);
      case Operation::div:
        return mpfr_div(result, a, b, direction);
      case Operation::sqrt:
        return mpfr_sqrt(result, a, direction);
      case Operation::fma:
        return mpfr_fma(result, a, b, c, direction);
    }
    return 0;
  }

  FloatFormat format_;
  MpfrNumber a_, b_, c_, result_;
};

class MpfrTest : public ::testing::TestWithParam<const char*> {};

TEST_P(MpfrTest, RandomAndDirectedOperands) {
  const FloatFormat format = parse_format(GetParam()).value();
  MpfrFormat oracle(format);
  Operands operands(format);
  int64_t underflows = 0, not_subnormal = 0;
  for (int i = 0; i < 60000; ++i) {
    const float a = operands.next(), b = operands.next(), c = operands.next();
    for (const RoundingMode mode : {RoundingMode::nearest_even, RoundingMode::toward_zero,
                                    RoundingMode::up, RoundingMode::down}) {
      for (const Operation each : {Operation::add, Operation::sub, Operation::mul, Operation::div,
                                   Operation::sqrt, Operation::fma}) {
        const Rounded<float> got = testing::run(each, a, b, c, format, {.mode = mode});
        const Rounded<double> want = oracle.run(each, a, b, c, mode);
        const bool nans = std::isnan(got.value) && std::isnan(want.value);
        ASSERT_TRUE((nans || testing::same_value(got.value, want.value)) && got.flags == want.flags)
            << std::hexfloat << " operation " << static_cast<int>(each) << " " << a << " " << b
            << " " << c << " " << rounding_mode_name(mode) << " gave " << got.value << " flags "
            << int{got.flags} << ", expected " << want.value << " flags " << int{want.flags};
        underflows += (got.flags & kUnderflow) != 0;
        not_subnormal +=
            (got.flags & kUnderflow) != 0 && (got.flags & (kSubnormal | kFlushed)) == 0;
      }
    }
  }
  EXPECT_GT(underflows, 1000);
  EXPECT_GT(not_subnormal, 0) << "tiny results delivered as the smallest normal value";
}

INSTANTIATE_TEST_SUITE_P(Formats, MpfrTest,
                         ::testing::Values("fp16", "bf16", "tf32", "fp32", "e4m3fn", "e5m2", "e6m9",
                                           "e3m4", "e4m5b11"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace halfscope
