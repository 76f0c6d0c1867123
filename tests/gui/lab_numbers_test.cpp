// SPDX-License-Identifier: MIT
// The float lab's results, compared with known numbers and with double arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "gui/lab/float_lab.h"

namespace halfscope::gui {
namespace {

FloatFormat format_of(const char* name) { return parse_format(name).value(); }

std::string rounded_text(const char* number, const FloatFormat& format) {
  std::string problem;
  return exact_text(decode(read_number(number, format, problem).value(), format));
}

TEST(ExactDecimal, KnownNumbers) {
  EXPECT_EQ(rounded_text("0.1", kFp16), "0.0999755859375");
  EXPECT_EQ(rounded_text("0.1", kBf16), "0.10009765625");
  EXPECT_EQ(rounded_text("0.1", kFp32), "0.100000001490116119384765625");
  EXPECT_EQ(rounded_text("0.1", kE4m3fn), "0.1015625");
  EXPECT_EQ(rounded_text("0x0001", kFp16), "0.000000059604644775390625");
  EXPECT_EQ(rounded_text("0x7bff", kFp16), "65504");
  EXPECT_EQ(rounded_text("0x7f7fffff", kFp32), "340282346638528859811704183484516925440");
  EXPECT_EQ(rounded_text("0x00000001", kFp32),
            "0.0000000000000000000000000000000000000000000014012984643248170709237295832899161312"
            "8026194187651577175706828388979108268586060148663818836212158203125");
  EXPECT_EQ(rounded_text("-0", kFp16), "-0");
  EXPECT_EQ(rounded_text("1e9", kFp16), "infinity");
  EXPECT_EQ(rounded_text("nan", kFp16), "NaN");
}

TEST(ExactDecimal, Text) {
  const auto again = [](const char* text) { return ExactDecimal::parse(text).value().text(); };
  EXPECT_EQ(again("-001.500"), "-1.5");
  EXPECT_EQ(again("1e3"), "1000");
  EXPECT_EQ(again("1.25e1"), "12.5");
  EXPECT_EQ(again("12.5e-3"), "0.0125");
  EXPECT_EQ(again("-0.0"), "0");
  EXPECT_EQ(again(".5"), "0.5");
  for (const char* bad : {"", "-", ".", "1e", "1e9999", "1x", "0x10", "inf", "1.2.3", "1e+-3"}) {
    EXPECT_FALSE(ExactDecimal::parse(bad)) << bad;
  }
}

TEST(ExactDecimal, ArithmeticAgreesWithIntegers) {
  for (uint64_t i = 0; i < 2000; ++i) {
    // Up to 31 bits: sums and products are exact in int64 and shown by to_string.
    const int64_t a = static_cast<int64_t>(random_word(1, i) % 4000000007u) - 2000000003;
    const int64_t b = static_cast<int64_t>(random_word(2, i) % 4000000007u) - 2000000003;
    const ExactDecimal x(static_cast<double>(a)), y(static_cast<double>(b));
    EXPECT_EQ((x + y).text(), std::to_string(a + b));
    EXPECT_EQ((x - y).text(), std::to_string(a - b));
    EXPECT_EQ((x * y).text(), std::to_string(a * b));
    const ExactDecimal fraction(std::ldexp(static_cast<double>(a), -20));
    EXPECT_EQ((fraction + y - fraction).text(), std::to_string(b));
    EXPECT_EQ(fraction * ExactDecimal(0x1p20), x);
  }
}

TEST(LabNumbers, ReadsNumbersAndCodes) {
  std::string problem;
  EXPECT_EQ(read_number("0.1", kFp16, problem), 0x2e66u);
  EXPECT_EQ(read_number(" 0x2E66 ", kFp16, problem), 0x2e66u);
  EXPECT_EQ(read_number("0b0010111001100110", kFp16, problem), 0x2e66u);
  EXPECT_EQ(read_number("0x1.998p-4", kFp16, problem), 0x2e66u);
  EXPECT_EQ(read_number("-inf", kFp16, problem), 0xfc00u);
  EXPECT_EQ(read_number("448", kE4m3fn, problem), 0x7eu);
  EXPECT_EQ(problem, "");
  EXPECT_FALSE(read_number("0x12345", kFp16, problem));
  EXPECT_NE(problem.find("16 bits"), std::string::npos);
  for (const char* bad : {"", "abc", "0xzz", "1,5", "0x"}) {
    EXPECT_FALSE(read_number(bad, kFp16, problem)) << bad;
    EXPECT_NE(problem, "") << bad;
  }
}

TEST(LabNumbers, OpensLinks) {
  FloatLab lab;
  EXPECT_TRUE(lab.open("fp16 0.1"));
  EXPECT_EQ(lab.code, 0x2e66u);
  EXPECT_TRUE(lab.typed().has_value());
  EXPECT_TRUE(lab.open("e4m3 0x7e"));
  EXPECT_EQ(format_name(lab.shown()), "e4m3");
  EXPECT_EQ(lab.code, 0x7eu);
  EXPECT_NE(lab.note.find("e4m3fn"), std::string::npos);
  EXPECT_TRUE(lab.open("e4m3fn 0x7e"));
  EXPECT_EQ(lab.number(), 448.0f);
  EXPECT_TRUE(lab.open("  bf16 "));
  EXPECT_EQ(lab.number(), 448.0f) << "the value stays";
  EXPECT_EQ(lab.tab, LabTab::bits);
  for (const char* bad : {"", "0.1", "fp17 0.1", "fp16 zero", "e4m3fn 0x17e"}) {
    EXPECT_FALSE(lab.open(bad)) << bad;
    EXPECT_EQ(lab.format, "bf16") << "nothing changed by " << bad;
  }
}

TEST(LabNumbers, NeighboursAreToldFromTheValue) {
  EXPECT_EQ(distinct_text(0x1.994p-4f, kFp16), "0.09991455078125") << "all digits, since few";
  EXPECT_EQ(distinct_text(65504.0f, kFp16), "65504");
  EXPECT_EQ(distinct_text(std::numeric_limits<float>::infinity(), kFp16), "infinity");
  for (const FloatFormat& format : {kFp32, kTf32, kBf16, kFp16, kE4m3fn}) {
    for (const char* number : {"0.1", "3.14159", "1e-7", "-200", "0.3333333"}) {
      std::string problem;
      const float value = decode(read_number(number, format, problem).value(), format);
      for (const int by : {-1, 1}) {
        const float other = neighbour(value, by, format);
        const double read = std::stod(distinct_text(other, format));
        const double ulp = std::fabs(static_cast<double>(other) - static_cast<double>(value));
        EXPECT_LT(std::fabs(read - static_cast<double>(other)), 0.01 * ulp)
            << format_name(format) << " " << number << ": " << distinct_text(other, format);
      }
    }
  }
}

TEST(LabNumbers, BitsFormatsAndSteps) {
  FloatLab lab;
  EXPECT_EQ(lab.number(), 0x1.998p-4f);
  lab.set_bit(15, true);
  EXPECT_EQ(lab.number(), -0x1.998p-4f);
  EXPECT_FALSE(lab.typed()) << "no longer what was typed";
  lab.format = "e9m9";
  lab.format_edited();
  EXPECT_EQ(lab.shown(), kFp16);
  EXPECT_NE(lab.format_problem(), "");
  lab.set_format(kFp16);
  lab.entry = "65504";
  lab.entry_edited();
  lab.step(+1);
  EXPECT_TRUE(std::isinf(lab.number()));
  lab.step(+1);
  EXPECT_TRUE(std::isinf(lab.number())) << "the last one";
  lab.step(-2);
  EXPECT_EQ(lab.number(), 65472.0f);
  lab.entry = "0";
  lab.entry_edited();
  lab.step(-1);
  EXPECT_EQ(lab.number(), -0x1p-24f);
  lab.entry = "what";
  lab.entry_edited();
  EXPECT_NE(lab.entry_problem(), "");
  EXPECT_EQ(lab.number(), -0x1p-24f) << "bits stay while nonsense is typed";
}

TEST(LabNumbers, StepsVisitEveryValueOnce) {
  for (const char* name : {"e4m3fn", "e4m3fnuz", "e5m2", "e2m1", "e3m0"}) {
    const FloatFormat format = format_of(name);
    float value = neighbour(0.0f, -100000, format);
    int seen = 1;
    for (;;) {
      const float next = neighbour(value, 1, format);
      if (next == value) break;
      EXPECT_GT(next, value) << name;
      value = next;
      ++seen;
    }
    int values = 0;  // but for NaN, and one zero of two
    for (uint32_t code = 0; code < (1u << format.bits()); ++code) {
      const float each = decode(code, format);
      values += !std::isnan(each) && !(each == 0.0f && std::signbit(each));
    }
    EXPECT_EQ(seen, values) << name;
  }
}

TEST(LabNumbers, Texts) {
  EXPECT_EQ(formula_text(0x1.998p-4f, kFp16), "+ 1.599609375 \u00d7 2^-4");
  EXPECT_EQ(formula_text(-0x1p-24f, kFp16), "- 0.0009765625 \u00d7 2^-14");
  EXPECT_EQ(hex_float(0.0999755859375), "0x1.998p-4");
  EXPECT_EQ(code_text(0x1u, kFp16), "0x0001");
  EXPECT_EQ(code_text(0x1u, kE2m1), "0x1");
  EXPECT_EQ(kind_text(0x1p-15f, kFp16), "subnormal");
  EXPECT_EQ(kind_text(0x1p-15f, kBf16), "normal");
  EXPECT_EQ(flags_text(kExact), "exact");
  EXPECT_EQ(flags_text(kInexact | kOverflow), "inexact, overflow");
}

TEST(LabNumbers, GuardRoundSticky) {
  const RoundingPlace tie = rounding_place(2049.0, kFp16).value();
  EXPECT_EQ(tie.kept, "1.0000000000");
  EXPECT_TRUE(tie.guard && !tie.round && !tie.sticky);
  EXPECT_EQ(tie.below, 2048.0f);
  EXPECT_EQ(tie.above, 2050.0f);
  EXPECT_EQ(tie.fraction, 0.5);
  const RoundingPlace more = rounding_place(-2049.5625, kFp16).value();
  EXPECT_TRUE(more.guard && more.round && more.sticky);
  EXPECT_EQ(more.above, -2050.0f);
  const RoundingPlace tiny = rounding_place(0x1.8p-24, kFp16).value();
  EXPECT_EQ(tiny.kept, "0.0000000001");
  EXPECT_TRUE(tiny.guard && !tiny.round && !tiny.sticky);
  EXPECT_FALSE(rounding_place(0.0, kFp16));
  EXPECT_FALSE(rounding_place(INFINITY, kFp16));
  EXPECT_FALSE(rounding_place(1e300, kFp16));
  // Every rounding mode gives one of the two neighbours.
  for (uint64_t i = 0; i < 500; ++i) {
    const double x = std::ldexp(static_cast<double>(random_word(3, i) >> 20), -50);
    if (x == 0.0) continue;
    const RoundingPlace place = rounding_place(x, kFp16).value();
    EXPECT_EQ(
        static_cast<float>(round_to_format(x, kFp16, Rounding{.mode = RoundingMode::down}).value),
        place.below);
    const double nearest = round_to_format(x, kFp16).value;
    EXPECT_EQ(place.fraction > 0.5 || (place.fraction == 0.5 && place.kept.back() == '1'),
              static_cast<float>(nearest) == place.above && place.fraction > 0.0);
  }
}

TEST(LabNumbers, Calculates) {
  FloatLab lab;
  LabResult result = calculate(lab);  // 2048 + 1
  EXPECT_EQ(result.value, 2048.0f);
  EXPECT_EQ(result.exact, "2049");
  EXPECT_EQ(result.error_ulps, -0.5);
  EXPECT_EQ(result.flags, kInexact);
  lab.operation = LabOperation::div;
  lab.a = "1";
  lab.b = "3";
  result = calculate(lab);
  EXPECT_EQ(result.exact, "0.33333333333333331...");
  EXPECT_NEAR(result.error_ulps, -1.0 / 3.0, 1e-9);
  lab.b = "4";
  EXPECT_EQ(calculate(lab).exact, "0.25");
  lab.b = "0";
  result = calculate(lab);
  EXPECT_EQ(result.exact, "");
  EXPECT_EQ(result.flags, kDivideByZero);
  lab.operation = LabOperation::fma;
  lab.a = "65504";
  lab.b = "65504";
  lab.c = "-inf";
  EXPECT_TRUE(std::isinf(calculate(lab).value));
  lab.c = "0x0001";
  EXPECT_EQ(calculate(lab).exact, "4290774016.000000059604644775390625");
  lab.a = "nonsense";
  EXPECT_TRUE(std::isnan(calculate(lab).value));
}

TEST(LabNumbers, SumsStandStill) {
  const LabSums sums = accumulate(1.0f, 5000, kFp16);
  ASSERT_EQ(sums.series.size(), 5u);
  EXPECT_EQ(sums.series[0].name, "fp16");
  EXPECT_EQ(sums.series[0].stalled_after, 2048);
  EXPECT_EQ(sums.series[0].last, 2048.0f);
  EXPECT_EQ(sums.series[1].last, 5000.0f) << "compensated";
  EXPECT_NEAR(sums.series[2].last, 5000.0f, 500.0f) << "stochastic";
  EXPECT_EQ(sums.series[3].name, "bf16");
  EXPECT_EQ(sums.series[3].last, 256.0f);
  EXPECT_EQ(sums.series[4].last, 5000.0f);
  EXPECT_EQ(sums.series[4].stalled_after, -1);
  EXPECT_EQ(sums.terms.back(), 5000);
  for (const LabSeries& series : sums.series) {
    EXPECT_EQ(series.sums.size(), sums.terms.size());
    EXPECT_EQ(series.sums.back(), series.last);
  }
  EXPECT_EQ(accumulate(0.0f, 10, kFp16).series[0].stalled_after, 0);
  EXPECT_TRUE(std::isinf(accumulate(60000.0f, 10, kFp16).series[0].last));
}

TEST(LabNumbers, PresetsShowWhatTheySay) {
  for (const LabPreset& preset : lab_presets()) {
    FloatLab lab;
    preset.apply(lab);
    EXPECT_NE(lab.note, "") << preset.name;
  }
  FloatLab lab;
  lab_presets()[0].apply(lab);
  EXPECT_EQ(lab.number(), 65504.0f);
}

}  // namespace
}  // namespace halfscope::gui
