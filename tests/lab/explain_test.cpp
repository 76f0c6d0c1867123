// SPDX-License-Identifier: MIT
// Sentences about numbers, and facts of formats compared with a count over all codes.
#include "core/lab/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/lab/number_text.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"

namespace halfscope::lab {
namespace {

using testing::HasSubstr;

std::string explained(const std::string& number, const FloatFormat& format) {
  std::string problem;
  const float stored = decode(read_number(number, format, problem).value(), format);
  return explain_rounding(ExactDecimal::parse(number).value(), stored, format);
}

TEST(Explain, SaysWhyAValueIsStoredAsItIs) {
  EXPECT_EQ(explained("65536", kFp16),
            "65536 is above 65504, the largest fp16 number, so it overflows to infinity.");
  EXPECT_EQ(explained("65520", kFp16),
            "65520 is at least halfway from 65504, the largest fp16 number, to 65536, so it "
            "overflows to infinity.");
  EXPECT_THAT(explained("-65530", kFp16),
              HasSubstr("from -65504, the largest fp16 number, to -65536"));
  EXPECT_THAT(explained("65519", kFp16), testing::Not(HasSubstr("overflows")));
  EXPECT_THAT(explained("-70000", kFp16), HasSubstr("-70000 is below -65504"));
  EXPECT_THAT(explained("500", kE4m3fn), HasSubstr("no infinity, so it becomes NaN"));
  EXPECT_THAT(explained("7", kE2m1), HasSubstr("so it is clipped to 6"));
  EXPECT_EQ(
      explained("1e-8", kFp16),
      "0.00000001 is at most half of 2^-24, the smallest fp16 number, so it underflows to 0.");
  EXPECT_EQ(explained("0.5", kFp16), "fp16 represents 0.5 exactly.");
  EXPECT_EQ(
      explained("2049", kFp16),
      "The fp16 numbers near 2049 are 2 apart. 2049 is halfway between 2048 and 2050; ties go "
      "to the one whose last bit is 0.");
  EXPECT_THAT(explained("0.1", kFp16), HasSubstr("40% of the way"));
  EXPECT_THAT(explained("-0.1", kFp16), HasSubstr("40% of the way"));
  EXPECT_THAT(explained("1e-7", kFp16), HasSubstr("only 2 of 11 significant bits"));
  EXPECT_THAT(explained("65519", kFp16), HasSubstr("rounds to 65504"));
  // Ties are found with all digits, not in double.
  const std::string tie = "2.98023223876953125e-8";
  EXPECT_THAT(explained(tie, kFp16), HasSubstr("at most half of 2^-24"));
  EXPECT_THAT(explained("2.98023223876953126e-8", kFp16), HasSubstr("just over half"));
  EXPECT_THAT(explained("1.00048828125" + std::string(60, '0') + "1", kFp16),
              testing::AllOf(HasSubstr("just over half"), HasSubstr("rounds to 1.0009765625")));
  EXPECT_THAT(explained("65519.9999999", kFp16), HasSubstr("just under half"));
  EXPECT_THAT(explained("464", kE4m3fn), HasSubstr("halfway between 448 and 480"));
  EXPECT_THAT(explained("-464", kE4m3fn), HasSubstr("halfway between -448 and -480"));
  EXPECT_THAT(explained("3", parse_format("e3m0").value()), HasSubstr("away from zero"));
  EXPECT_THAT(explained("1e400", kFp16), HasSubstr("1e+400 is above 65504"));
  EXPECT_THAT(explained("1e-400", kFp16), HasSubstr("1e-400 is at most half"));
  EXPECT_EQ(explained("3", kInt8Format), "int8 represents 3 exactly.");
}

TEST(Explain, FactsAgreeWithACountOfAllCodes) {
  for (const char* name : {"fp16", "bf16", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e3m2", "e2m3",
                           "e2m1", "int8", "int4", "e3m4", "e4m3b11fnuz", "e3m0", "e5m10fn"}) {
    const FloatFormat format = parse_format(name).value();
    std::set<float> values;
    int nans = 0;
    for (uint32_t code = 0; code < uint32_t{1} << format.bits(); ++code) {
      const float value = decode(code, format);
      nans += std::isnan(value) ? 1 : 0;
      if (std::isfinite(value)) values.insert(value);
    }
    const FormatFacts facts = format_facts(format);
    EXPECT_EQ(facts.values, static_cast<int64_t>(values.size())) << name;
    EXPECT_EQ(facts.nans, nans) << name;
    EXPECT_EQ(facts.largest, static_cast<double>(*values.rbegin())) << name;
    EXPECT_EQ(facts.smallest, static_cast<double>(*values.upper_bound(0.0f))) << name;
    if (values.contains(1.0f) && values.upper_bound(1.0f) != values.end()) {
      EXPECT_EQ(facts.epsilon, static_cast<double>(*values.upper_bound(1.0f)) - 1.0) << name;
    }
    int whole = 0;
    while (values.contains(static_cast<float>(whole + 1))) ++whole;
    EXPECT_EQ(facts.last_whole, whole) << name;
    std::set<float> listed;
    for (const Binade& each : binades(format)) {
      for (int64_t i = 0; i < each.count; ++i) {
        const double value = each.first + static_cast<double>(i) * each.step;
        listed.insert(static_cast<float>(value));
        EXPECT_EQ(decode(each.first_code + static_cast<uint32_t>(i), format), value) << name;
      }
      EXPECT_EQ(each.first + static_cast<double>(each.count - 1) * each.step, each.last) << name;
    }
    EXPECT_EQ(listed, std::set<float>(values.upper_bound(0.0f), values.end())) << name;
  }
}

TEST(Explain, DynamicRange) {
  // 20 log10(65504 / 2^-24) and 20 log10(448 / 2^-9).
  EXPECT_NEAR(format_facts(kFp16).decibels, 240.82, 0.01);
  EXPECT_NEAR(format_facts(kE4m3fn).decibels, 107.21, 0.01);
}

TEST(Explain, PowersOfTwo) {
  EXPECT_EQ(power_or_number(0x1p-24), "2^-24");
  EXPECT_EQ(power_or_number(32.0), "32");
  EXPECT_EQ(power_or_number(0.1), "0.1");
}

}  // namespace
}  // namespace halfscope::lab
