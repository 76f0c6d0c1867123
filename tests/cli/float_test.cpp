// SPDX-License-Identifier: MIT
// `halfscope float`: what it prints, as text and as JSON, and what it says about mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/program.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::Outcome;
using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string page(const Words& words) {
  const Bench bench;
  Words all{"float"};
  all.insert(all.end(), words.begin(), words.end());
  const Outcome outcome = bench.run(all);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

json data(Words words) {
  words.emplace_back("--json");
  return json::parse(page(words));
}

TEST(CliFloat, NumbersAndCodes) {
  EXPECT_THAT(page({"fp16", "0.1"}),
              AllOf(HasSubstr("0 01011 1001100110"), HasSubstr("0.0999755859375"),
                    HasSubstr("(-0.4 ulp)"), HasSubstr("0x2e66"), HasSubstr("40% of the way")));
  EXPECT_THAT(page({"e4m3fn", "0x7e"}), HasSubstr("  value            448\n"));
  EXPECT_THAT(page({"e4m3", "1"}),
              HasSubstr("Other programs mean e4m3fn by e4m3: its largest number is 448."));
  EXPECT_THAT(page({"fp16", "-0.1"}), HasSubstr("-0.0999755859375"));
  EXPECT_THAT(page({"fp16", "-inf"}), HasSubstr("-infinity"));
  const json number = data({"fp16", "0.1"});
  EXPECT_EQ(number.at("schema"), "halfscope.float/1");
  EXPECT_EQ(number.at("result").at("code"), "0x2e66");
  EXPECT_EQ(number.at("result").at("value"), 0.0999755859375);
  EXPECT_EQ(number.at("exact"), "0.1");
  EXPECT_EQ(number.at("flags"), "inexact");
  EXPECT_TRUE(data({"fp16", "0x2e66"}).at("exact").is_null());
  EXPECT_EQ(data({"fp16", "0.1", "--rounding", "up"}).at("result").at("code"), "0x2e67");
}

TEST(CliFloat, NumbersFarBeyondTheFormat) {
  const std::string usual = page({"fp16", "1e10"});
  EXPECT_THAT(usual, HasSubstr("10000000000 is above 65504, the largest fp16 number, so it overf"));
  EXPECT_THAT(page({"fp16", "1e999999999999"}),
              HasSubstr("1e999999999999 is above 65504, the largest fp16 number, so it overflows"));
  EXPECT_THAT(page({"e2m1", "-1e999999999999"}), HasSubstr("is below -6, the largest e2m1 number"));
  EXPECT_THAT(page({"fp16", "1e-999999999999"}),
              HasSubstr("1e-999999999999 is at most half of 2^-24"));
  EXPECT_THAT(page({"fp16", "(1e999999999999)"}), HasSubstr("1e999999999999 is above 65504"));
  const json number = data({"fp16", "1e999999999999"});
  EXPECT_EQ(number.at("flags"), "inexact, overflow");
  EXPECT_TRUE(number.at("exact").is_null()) << "too many digits";
  for (const char* text : {"1e310", "1e999999999999"}) {
    EXPECT_EQ(data({"fp16", text, "--rounding", "toward-zero"}).at("result").at("value"), 65504.0);
    for (const json& each : data({"--compare", text}).at("formats"))
      EXPECT_THAT(each.at("flags").get<std::string>(), HasSubstr("overflow")) << each;
  }
}

TEST(CliFloat, IntegersNameBothEncodings) {
  EXPECT_THAT(page({"int8", "-1"}),
              AllOf(HasSubstr("0x81"), HasSubstr("sign and magnitude; in two's complement 0xff")));
  EXPECT_THAT(page({"int8", "-127"}), HasSubstr("in two's complement 0x81"));
  EXPECT_THAT(page({"int8", "127"}), HasSubstr("in two's complement 0x7f"));
  EXPECT_THAT(page({"int4", "-7"}), HasSubstr("in two's complement 0x9\n"));
  EXPECT_THAT(page({"int8", "-0"}), HasSubstr("two's complement has no -0"));
  EXPECT_THAT(page({"int8", "200"}), HasSubstr("so it is clipped to 127."));
  EXPECT_THAT(page({"int8", "-200"}), HasSubstr("so it is clipped to -127."));
  EXPECT_THAT(page({"fp16", "-1"}), testing::Not(HasSubstr("complement")));
}

TEST(CliFloat, SeedsNeedSomethingRandom) {
  EXPECT_NE(page({"--sum", "4096x1.0", "fp16", "--seed", "7"}),
            page({"--sum", "4096x1.0", "fp16", "--seed", "8"}));
  const Words stochastic{"fp16", "0.1", "--rounding", "stochastic", "--seed"};
  std::set<std::string> pages;
  for (const char* seed : {"1", "2", "3", "4", "5", "6", "7", "8"}) {
    Words words = stochastic;
    words.emplace_back(seed);
    pages.insert(page(words));
  }
  EXPECT_EQ(pages.size(), 2u) << "one of two neighbors";
}

TEST(CliFloat, Expressions) {
  const std::string square = page({"fp16", "256*256"});
  EXPECT_THAT(square, AllOf(HasSubstr("256 \u00d7 256"), HasSubstr("65536"), HasSubstr("overflow"),
                            HasSubstr("above 65504, the largest fp16 number")));
  EXPECT_THAT(page({"fp16", "2048 + 2"}), HasSubstr("2050 in fp16, which is exact."));
  const json steps = data({"fp16", "1e-5^2"});
  ASSERT_EQ(steps.at("steps").size(), 2u);
  EXPECT_EQ(steps.at("steps")[0].at("number"), true);
  EXPECT_EQ(steps.at("result").at("value"), 0.0);
  EXPECT_EQ(steps.at("exact"), "0.0000000001");
}

TEST(CliFloat, EveryFormat) {
  const std::string table = page({"--compare", "0.1"});
  EXPECT_THAT(table, AllOf(HasSubstr("bf16         0x3dcd"), HasSubstr("e2m1         0x0")));
  EXPECT_EQ(page({"0.1"}), table) << "a number alone is compared";
  const json formats = data({"70000"}).at("formats");
  for (const json& each : formats) {
    const std::string flags = each.at("flags"), format = each.at("format");
    const bool overflows = flags.find("overflow") != std::string::npos;
    EXPECT_EQ(overflows, format != "fp32" && format != "tf32" && format != "bf16") << each;
  }
  EXPECT_THAT(page({"--compare", "0x2e66"}), HasSubstr("e4m3fn has only 8 bits"));
}

TEST(CliFloat, Formats) {
  const std::string table = page({"--table", "e2m1"});
  EXPECT_THAT(table, HasSubstr("0  0.5\n"));
  EXPECT_THAT(table, HasSubstr("4    6\n"));
  EXPECT_EQ(page({"e2m1"}), table) << "a format alone is listed";
  EXPECT_THAT(page({"fp16"}), HasSubstr("all up to 2048"));
  EXPECT_THAT(page({"fp16"}), HasSubstr("5.96e-08 (2^-24)"));
  const json format = data({"--table", "e4m3fn"});
  EXPECT_EQ(format.at("values").size(), 256u);
  EXPECT_EQ(format.at("values")[0x7e].at("value"), 448.0);
  EXPECT_EQ(format.at("format").at("values"), 253);
}

TEST(CliFloat, Sums) {
  EXPECT_THAT(
      page({"--sum", "4096x1.0", "fp16"}),
      AllOf(HasSubstr("fp16 after 2048 terms: Half an ulp of 2048 is 1"), HasSubstr("-50%")));
  // The next number down is closer than the next one up.
  EXPECT_THAT(page({"--sum", "1,1000x-0.0002", "fp16"}), HasSubstr("Half an ulp of 1 is"));
  EXPECT_THAT(page({"--sum", "4096x1.0", "int8"}), HasSubstr("the sum stays there"));
  EXPECT_THAT(page({"--sum", "4x30000", "fp16"}), HasSubstr("infinity"));
  const json sums = data({"--sum", "4096x1.0", "bf16"}).at("sums");
  EXPECT_EQ(sums[0].at("sum"), 256.0);
  EXPECT_EQ(sums[0].at("stalled_after"), 256);
  EXPECT_EQ(sums[1].at("sum"), 4096.0) << "Kahan";
  EXPECT_TRUE(sums[1].at("stalled_after").is_null());
}

TEST(CliFloat, Blocks) {
  EXPECT_THAT(page({"--block", "mxfp8", "0.1", "300", "-1e-6"}),
              AllOf(HasSubstr("288"), HasSubstr("becomes 0")));
  // 500 / 256 = 1.953: with the floor rule the scale stays 1, and 500 is clipped to 448.
  const json low = data({"--block", "mxfp8", "500", "1"});
  EXPECT_EQ(low.at("values")[0].at("value"), 448.0);
  EXPECT_EQ(low.at("values")[0].at("clipped"), true);
  const json high = data({"--block", "mxfp8", "500", "1", "--rule", "ceil"});
  EXPECT_EQ(high.at("values")[0].at("value"), 512.0);
  EXPECT_THAT(page({"--block", "mxfp4", "3.4e38", "--rule", "ceil"}),
              AllOf(HasSubstr("would round to 2^128"), HasSubstr("clipped: beyond fp32")));
  EXPECT_EQ(high.at("blocks")[0].at("scale"), 2.0);
}

TEST(CliFloat, MistakesSayWhatToDo) {
  const Bench bench;
  const std::vector<std::tuple<Words, const char*, const char*>> mistakes{
      {{}, "needs a format", "float fp16 0.1"},
      {{"fp17", "1"}, "\"fp17\" is neither a named format", "fp16"},
      {{"fq16"}, "'fq16' is neither a format nor a number", "fp16"},
      {{"0.1.2"}, "'0.1.2' is neither a format nor a number", "float fp16 0.1"},
      {{"fp16", "abc"}, "'abc' is neither", "0x2e66"},
      {{"fp16", "1+"}, "missing at the end", "in quotes"},
      {{"fp16", "0x12345"}, "only 16 bits", "code"},
      {{"fp16", "1", "2"}, "unexpected '2'", "quotes"},
      {{"--sum", "4096y1"}, "'4096y1' is not a term", "4096x1.0"},
      {{"--sum", "1", "--table", "fp16"}, "cannot be combined", "one of them"},
      {{"--sum", "1", "--rounding", "up"}, "--rounding is for numbers", "leave it out"},
      {{"fp16", "1", "--rule", "ceil"}, "--rule is for --block", "--block"},
      {{"fp16", "0.1", "--seed", "7"}, "--seed is for stochastic", "add --rounding stochastic"},
      {{"fp16", "1", "--seed", "7", "--rounding", "up"}, "--seed is for", "--rounding stochastic"},
      {{"--table", "fp16", "--seed", "7"}, "--seed is for stochastic rounding", "leave it out"},
      {{"e11m52"}, "'e11m52' is not a format", "eXmY"},
      {{"--block", "mxfp9", "1"}, "unknown block format", "mxfp"},
      {{"--block", "mxfp8"}, "needs numbers", "0.1"},
      {{"--block", "mxfp8", "1", "--rule", "up"}, "unknown rule 'up'", "ceil"},
      {{"fp16", "1", "--rounding", "half"}, "unknown mode 'half'", "stochastic"}};
  for (const auto& [words, what, hint] : mistakes) {
    Words all{"float"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = bench.run(all);
    EXPECT_EQ(outcome.code, 2) << what;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(what), HasSubstr(hint)));
  }
}

}  // namespace
}  // namespace halfscope
