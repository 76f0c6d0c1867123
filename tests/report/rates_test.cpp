// SPDX-License-Identifier: MIT
// Rates against shares counted by hand, and that all who show one show the same number.
#include "core/numeric/statistics/rates.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "analysis/report/report.h"
#include "analysis/rules/text.h"
#include "analysis/run_rates.h"
#include "tests/report/report_fixtures.h"
#include "tests/report/synthetic.h"

namespace halfscope {
namespace {

using ::testing::HasSubstr;

TensorStats measured(std::vector<float> values, const FloatFormat& format) {
  std::vector<float> rounded(values.size());
  return measure(values, rounded, format);
}

// Ten values: four zeros, one infinity, one NaN, one too large for fp16, one far below its smallest
// subnormal number 2^-24, one subnormal (2^-20) and a one.
const std::vector<float> kTen{0.0f,          0.0f,     -0.0f, 0.0f,     INFINITY,
                              std::nanf(""), 70000.0f, 1e-9f, 0x1p-20f, 1.0f};

TEST(Rates, EachHasItsDenominator) {
  const Rates rates = rates_of(measured(kTen, kFp16), kFp16);
  EXPECT_DOUBLE_EQ(rates.overflow, 1.0 / 10.0);
  EXPECT_DOUBLE_EQ(rates.zero, 4.0 / 10.0);
  EXPECT_DOUBLE_EQ(rates.underflow, 1.0 / 4.0) << "70000, 1e-9, 2^-20 and 1 are finite, not zero";
  EXPECT_DOUBLE_EQ(rates.subnormal, 1.0 / 4.0);
}

TEST(Rates, AnOverflowIsInfiniteAfterRounding) {
  // IEEE 754-2019, 7.4: to nearest, an overflow is infinite.
  const Rates fp16 = rates_of(measured(kTen, kFp16), kFp16);
  EXPECT_DOUBLE_EQ(fp16.infinite, 2.0 / 10.0);
  EXPECT_DOUBLE_EQ(fp16.nan, 1.0 / 10.0);
  // e4m3fn has no infinity (OCP OFP8): both are NaN.
  const Rates e4m3 = rates_of(measured(kTen, kE4m3fn), kE4m3fn);
  EXPECT_DOUBLE_EQ(e4m3.infinite, 0.0);
  EXPECT_DOUBLE_EQ(e4m3.nan, 3.0 / 10.0);
  FloatFormat saturating = kFp16;
  saturating.saturate = true;
  const Rates held = rates_of(measured(kTen, saturating), saturating);
  EXPECT_DOUBLE_EQ(held.infinite, 0.0);
  EXPECT_DOUBLE_EQ(held.nan, 1.0 / 10.0);
  EXPECT_DOUBLE_EQ(held.overflow, 1.0 / 10.0);
}

TEST(Rates, NothingIsNoShare) {
  const Rates rates = rates_of(TensorStats{}, kFp16);
  EXPECT_EQ(rates.overflow, 0.0);
  EXPECT_EQ(rates.underflow, 0.0);
  EXPECT_EQ(rates_of(measured({0.0f, 0.0f}, kFp16), kFp16).underflow, 0.0);
}

TEST(Rates, AreWrittenAsPercentWithoutABlank) {
  EXPECT_EQ(percent(0.0), "0%");
  EXPECT_EQ(percent(0.00001), "< 0.01%");
  EXPECT_EQ(percent(0.005), "0.50%");
  EXPECT_EQ(percent(0.225), "22.5%");
  EXPECT_EQ(percent(0.9999), "> 99.9%") << "something is still left";
  EXPECT_EQ(percent(1.0), "100%");
  EXPECT_EQ(percent(9.99), "999%");
  EXPECT_EQ(percent(10.0), "10 times");
  EXPECT_EQ(percent(999.4), "999 times");
  EXPECT_EQ(percent(999.96), "1e3 times");
  EXPECT_EQ(percent(22345.0), "2.2e4 times");
  EXPECT_EQ(percent(99999.0), "1e5 times");
}

/// Verdict, finding, table and page give the share of the whole run, here counted by hand.
TEST(Rates, OfATensorAreTheSameEverywhere) {
  const RunView run = test::make_run(test::hot_spec());
  const Report report = make_report(run);
  const Finding* overflow = nullptr;
  for (const Finding& finding : report.findings) {
    if (finding.rule == "forward_overflow") overflow = &finding;
  }
  ASSERT_NE(overflow, nullptr);
  const int site = *run.find_site(overflow->lane, overflow->site);
  int64_t n = 0, beyond = 0;
  for (const PackedWindow& window : run.windows(overflow->lane, site)) {
    n += window.counts().n;
    beyond += window.counts().overflow;
  }
  const double rate = static_cast<double>(beyond) / static_cast<double>(n);
  EXPECT_DOUBLE_EQ(run_rates(run, overflow->lane, site).overflow, rate);
  EXPECT_THAT(overflow->mechanism, HasSubstr(": " + percent(rate) + " of its outputs are larger"));
  EXPECT_THAT(report.verdict.text, HasSubstr(percent(rate) + " of its outputs are larger"));
  EXPECT_THAT(report_html(report), HasSubstr(percent(rate) + " overflow</td>"));
  EXPECT_THAT(report_markdown(report), HasSubstr("| " + percent(rate) + " |"));
}

/// Three of four values of conv1's gradient are zero before rounding, one in eight underflows in
/// step 0 and none later: half of the non-zero values of that step, a quarter of the run's.
TEST(Rates, ZerosDoNotMakeAnUnderflowSmall) {
  RunView run(test::make_run(test::healthy_spec()).info(), RunStatus::complete);
  const int site = *run.find_site(1, "conv1.activation_grad");
  run.add_window(
      1, site,
      {.step = 0, .step_count = 1, .stats = measured({0, 0, 0, 0, 0, 0, 1e-9f, 1.0f}, kFp16)});
  run.add_window(
      1, site,
      {.step = 1, .step_count = 1, .stats = measured({0, 0, 0, 0, 0, 0, 1.0f, 1.0f}, kFp16)});
  EXPECT_DOUBLE_EQ(run_rates(run, 1, site).underflow, 0.25);
  const std::string page = report_html(make_report(run));
  EXPECT_THAT(page, HasSubstr("underflow <b class=\"bad\">25%</b>"));
}

}  // namespace
}  // namespace halfscope
