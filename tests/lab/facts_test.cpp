// SPDX-License-Identifier: MIT
// Facts of formats and one number in all of them, compared with NumPy and ml_dtypes; stochastic
// drops and moments of sums, with arithmetic by hand.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/lab/explain.h"
#include "core/lab/running_sum.h"
#include "core/lab/same_number.h"
#include "core/lab/stochastic_drops.h"

namespace halfscope::lab {
namespace {

TEST(FormatFacts, CountsFromNumPy) {
  struct Expected {
    const char* name;
    int64_t values, nans;
    double decibels;
  };
  for (const Expected& each : {Expected{"e4m3fn", 253, 2, 107.2109594994795},
                               {"e5m2", 247, 6, 191.49935828539424},
                               {"e4m3fnuz", 255, 1, 107.81022396702836},
                               {"e5m2fnuz", 255, 1, 197.51995819867386},
                               {"fp16", 63487, 2046, 240.81975433835922},
                               {"bf16", 65279, 254, 1571.342581668424}}) {
    const FormatFacts facts = format_facts(parse_format(each.name).value());
    EXPECT_EQ(facts.values, each.values) << each.name;
    EXPECT_EQ(facts.nans, each.nans) << each.name;
    EXPECT_NEAR(facts.decibels, each.decibels, 1e-9) << each.name;
  }
  const FormatFacts fp16 = format_facts(kFp16);
  EXPECT_EQ(fp16.largest, 65504.0);
  EXPECT_EQ(fp16.smallest_normal, 0x1p-14);
  EXPECT_EQ(fp16.smallest, 0x1p-24);
  EXPECT_EQ(fp16.epsilon, 0x1p-10);
  EXPECT_EQ(format_facts(kE2m1).values, 15);
  EXPECT_EQ(format_facts(kInt8Format).values, 255) << "-127 to 127";
}

const NumberIn& in(const std::vector<NumberIn>& all, const char* name) {
  for (const NumberIn& each : all) {
    if (each.name == name) return each;
  }
  ADD_FAILURE() << name;
  return all.front();
}

TEST(SameNumber, ATenthFromMlDtypes) {
  struct Expected {
    const char* name;
    uint32_t code;
    float value;
    double ulps, error;
    Fate fate;
  };
  const std::vector<NumberIn> all = same_number(0.1);
  EXPECT_EQ(all.size(), named_formats().size());
  for (const Expected& each :
       {Expected{"fp16", 0x2e66, 0.0999755859375f, -0.4, -0.000244140625, Fate::rounded},
        {"bf16", 0x3dcd, 0.10009765625f, 0.2, 0.0009765625, Fate::rounded},
        {"e4m3fn", 0x1d, 0.1015625f, 0.2, 0.015625, Fate::rounded},
        {"e5m2", 0x2e, 0.09375f, -0.4, -0.0625, Fate::rounded},
        {"e3m2", 0x2, 0.125f, 0.4, 0.25, Fate::subnormal},
        {"e2m1", 0x0, 0.0f, -0.2, -1.0, Fate::underflow}}) {
    const NumberIn& found = in(all, each.name);
    EXPECT_EQ(found.code, each.code) << each.name;
    EXPECT_EQ(found.value, each.value) << each.name;
    EXPECT_NEAR(found.error_ulps, each.ulps, 1e-9) << each.name;
    EXPECT_NEAR(found.error, each.error, 1e-9) << each.name;
    EXPECT_EQ(found.fate, each.fate) << each.name;
  }
}

TEST(SameNumber, EndsOfTheRange) {
  const std::vector<NumberIn> large = same_number(70000.0);
  EXPECT_EQ(in(large, "fp16").fate, Fate::overflow);
  EXPECT_EQ(in(large, "e4m3fn").fate, Fate::overflow) << "to NaN: it has no infinity";
  EXPECT_EQ(in(large, "e2m1").fate, Fate::saturated);
  EXPECT_EQ(in(large, "bf16").fate, Fate::rounded);
  EXPECT_EQ(in(large, "fp32").fate, Fate::exact);
  const std::vector<NumberIn> small = same_number(-1e-8);
  EXPECT_EQ(in(small, "fp16").fate, Fate::underflow);
  EXPECT_EQ(in(small, "fp16").error, 1.0) << "from -1e-8 up to 0";
  EXPECT_EQ(in(small, "bf16").fate, Fate::rounded);
  EXPECT_EQ(in(same_number(6e-8), "fp16").fate, Fate::subnormal);
  for (const NumberIn& each : same_number(0.0)) EXPECT_EQ(each.fate, Fate::exact) << each.name;
  for (const NumberIn& each : same_number(NAN)) EXPECT_EQ(each.fate, Fate::special) << each.name;
}

TEST(StochasticDrops, SharesApproachTheFraction) {
  StochasticDrops drops(2049.5, kFp16, 3);
  ASSERT_TRUE(drops.valid());
  EXPECT_EQ(drops.place().below, 2048.0f);
  EXPECT_EQ(drops.place().above, 2050.0f);
  EXPECT_EQ(drops.mean(), 2049.5) << "before the first";
  drops.drop_to(20000);
  // A fair share is 0.75; its standard deviation for 20000 balls is 0.0031.
  EXPECT_NEAR(static_cast<double>(drops.away()) / 20000.0, 0.75, 4 * 0.0031);
  EXPECT_NEAR(drops.mean(), 2049.5, 4 * drops.deviation_of_mean(20000));
  EXPECT_DOUBLE_EQ(drops.deviation(), 2.0 * std::sqrt(0.75 * 0.25));
  EXPECT_EQ(drops.history().front().count, 1);
  EXPECT_EQ(drops.history().size() < 200, true);
  int64_t away = 0;
  for (int64_t i = 0; i < 100; ++i) away += drops.goes_away(i) ? 1 : 0;
  StochasticDrops again(2049.5, kFp16, 3), other(2049.5, kFp16, 4);
  again.drop_to(100);
  EXPECT_EQ(again.away(), away) << "the same seed, the same balls";
  other.drop_to(20000);
  EXPECT_NE(other.away(), drops.away());
  again.clear();
  EXPECT_EQ(again.count(), 0);
}

TEST(StochasticDrops, NegativeAndHopeless) {
  StochasticDrops drops(-0x1.8p-24, kFp16, 1);
  ASSERT_TRUE(drops.valid());
  drops.drop_to(4000);
  EXPECT_NEAR(drops.mean(), -0x1.8p-24, 4 * drops.deviation_of_mean(4000));
  EXPECT_LT(drops.mean(), 0.0);
  for (const double hopeless : {2048.0, 0.0, 65519.0, 1e30, static_cast<double>(NAN)}) {
    StochasticDrops none(hopeless, kFp16, 1);
    EXPECT_FALSE(none.valid()) << hopeless;
    none.drop_to(10);
    EXPECT_EQ(none.count(), 0);
  }
}

TEST(SumMoment, StallsAtHalfAnUlp) {
  const std::vector<Terms> ones{{4096, 1.0}};
  const SumMoment stall = sum_moment(ones, kFp16, 2048);
  EXPECT_EQ(stall.sum, 2048.0f);
  EXPECT_EQ(stall.next, 2048.0f);
  EXPECT_EQ(stall.exact, 2049.0);
  EXPECT_EQ(stall.above, 2050.0f);
  EXPECT_EQ(stall.below, 2047.0f);
  EXPECT_EQ(moment_text(stall, kFp16),
            "Half an ulp of 2048 is 1: adding 1 is a tie, and ties go to even. The sum stays.");
  EXPECT_EQ(sum_moment(ones, kFp16, 4000).sum, 2048.0f);
  EXPECT_EQ(moment_text(sum_moment(ones, kFp16, 5), kFp16), "5 + 1 = 6, exactly.");
  const SumMoment last = sum_moment(ones, kFp16, 4096);
  EXPECT_FALSE(last.term.has_value());
  EXPECT_EQ(moment_text(last, kFp16), "All terms are added. The sum is 2048.");
}

TEST(SumMoment, ListsAndOverflow) {
  const std::vector<Terms> terms{{1, 4.0}, {1000, 0.001}};
  const SumMoment first = sum_moment(terms, kFp16, 0);
  EXPECT_EQ(first.sum, 0.0f);
  EXPECT_EQ(first.term, 4.0f);
  const SumMoment second = sum_moment(terms, kFp16, 1);
  EXPECT_EQ(second.sum, 4.0f);
  EXPECT_EQ(second.next, 4.0f);
  EXPECT_EQ(moment_text(second, kFp16),
            "Half an ulp of 4 is 0.0019531: adding 0.0010004 is less than that. The sum stays.");
  EXPECT_EQ(sum_moment(terms, kFp16, 1001).done, 1001);
  const std::vector<Terms> large{{3, 60000.0}};
  EXPECT_EQ(moment_text(sum_moment(large, kFp16, 1), kFp16),
            "60000 + 60000 is beyond the largest number, 65504: the sum overflows.");
  EXPECT_EQ(moment_text(sum_moment(large, kFp16, 2), kFp16), "The sum is infinity and stays that.");
  EXPECT_NE(moment_text(sum_moment({{3, 4.0}}, kE2m1, 1), kE2m1).find("saturates at 6"),
            std::string::npos);
  EXPECT_NE(moment_text(sum_moment({{3, 0.1}}, kFp16, 1), kFp16).find("exactly"),
            std::string::npos);
  EXPECT_NE(moment_text(sum_moment({{3, 0.1}}, kFp16, 2), kFp16).find("is rounded to"),
            std::string::npos);
}

}  // namespace
}  // namespace halfscope::lab
