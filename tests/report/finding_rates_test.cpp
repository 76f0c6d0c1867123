// SPDX-License-Identifier: MIT
// The rates in the texts of findings, counted by hand: what each is a share of, and that it is the
// number that tables show for the same tensor.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "analysis/run_rates.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kLane = 1;  // lane 0 is float32, without any records here

TensorStats measured(std::vector<float> values, const FloatFormat& format) {
  std::vector<float> rounded(values.size());
  return measure(values, rounded, format);
}

RunView empty_run(RunInfo info = make_run(healthy_spec()).info()) {
  return RunView(std::move(info), RunStatus::complete);
}

void add_step(RunView& run, int64_t step, const std::string& site, const TensorStats& stats,
              bool skipped = false) {
  run.add_step(kLane, {.step = step, .loss = 1.0, .loss_scale = 1024.0, .skipped = skipped});
  run.add_window(kLane, run.find_site(kLane, site).value(), {.step = step, .stats = stats});
}

Finding only_finding(const RunView& run, const std::string& rule) {
  std::vector<Finding> found;
  for (Finding& finding : run_rules(run)) {
    if (finding.rule == rule) found.push_back(std::move(finding));
  }
  EXPECT_EQ(found.size(), 1u) << rule;
  return found.empty() ? Finding{} : found[0];
}

Rates rates_in(const RunView& run, const std::string& site) {
  return run_rates(run, kLane, run.find_site(kLane, site).value());
}

TEST(FindingRates, AnOverflowIsAShareOfAllValuesOfTheRun) {
  RunView run = empty_run();
  const std::string site = "conv2.activation";
  // 2 of 8 in step 0. Infinities that it was given are values, too, and so are the zeros.
  add_step(run, 0, site, measured({7e4f, 8e4f, 0, 0, 1, 1, 1, 1}, kFp16));
  add_step(run, 1, site, measured({INFINITY, INFINITY, 0, 0, 1, 1, 1, 1}, kFp16));
  for (int64_t step = 2; step < 10; ++step) {
    add_step(run, step, site, measured({1, 1, 1, 1, 1, 1, 1, 1}, kFp16));
  }
  const Finding finding = only_finding(run, "forward_overflow");
  EXPECT_EQ(percent(rates_in(run, site).overflow), "2.5%") << "2 of 80";
  EXPECT_EQ(finding.mechanism, "conv2 overflows fp16: 2.5% of its outputs are larger than 65504");
  EXPECT_THAT(finding.text, HasSubstr(" The worst is step 0, with 25% of its outputs."));
}

TEST(FindingRates, AStepLikeTheOthersIsNotNamed) {
  RunView run = empty_run();
  for (int64_t step = 0; step < 4; ++step) {
    add_step(run, step, "conv2.activation", measured({7e4f, step == 0 ? 8e4f : 1, 1, 1}, kFp16));
  }
  const Finding finding = only_finding(run, "forward_overflow");
  EXPECT_THAT(finding.text, HasSubstr("31.2% of its outputs")) << "5 of 16";
  EXPECT_THAT(finding.text, Not(HasSubstr("It is worst")));
}

// Values up to 2^-25 are flushed in fp16 (IEEE 754, half of the smallest subnormal number).
TEST(FindingRates, AnUnderflowIsAShareOfNonZeroValuesOfTheRun) {
  RunView run = empty_run();
  const std::string site = "conv1.activation_grad";
  add_step(run, 0, site, measured({0, 0, 0, 0, 2e-8f, 2e-8f, 4e-8f, 4e-8f}, kFp16));
  for (int64_t step = 1; step < 3; ++step) {  // skipped steps say nothing about the scale
    add_step(run, step, site, measured({0, 0, 0, 0, 1, 1, 1, 1}, kFp16), true);
  }
  const Finding finding = only_finding(run, "gradient_underflow");
  EXPECT_EQ(percent(rates_in(run, site).underflow), "16.7%") << "2 of 12";
  EXPECT_EQ(finding.mechanism,
            "conv1 underflows fp16: 16.7% of the non-zero values of conv1.activation_grad become "
            "0");
  EXPECT_THAT(finding.text, HasSubstr("become 0 (50% in the steps without an overflow) at loss"));
}

TEST(FindingRates, LostUpdatesAreAShareOfNonZeroUpdates) {
  RunSpec spec = healthy_spec();
  spec.lanes[1] = {.name = "bfloat16", .format = kBf16, .storage = kBf16};
  RunView run = empty_run(make_run(spec).info());
  // 6 of 10 updates are zero, as after a ReLU that is off; 3 of the other 4 change nothing.
  for (int64_t step = 0; step < 3; ++step) {
    add_step(run, step, "fc1.weight_update", {.n = 10, .zero = 6, .lost = 3, .max_abs = 1e-4f});
  }
  const Finding finding = only_finding(run, "lost_updates");
  EXPECT_DOUBLE_EQ(rates_in(run, "fc1.weight_update").lost, 0.75);
  EXPECT_EQ(finding.mechanism,
            "fc1 loses updates: 75% of the non-zero ones leave the bf16 weight unchanged");
  EXPECT_THAT(finding.text, HasSubstr("fc1 loses updates in bf16: 75% of the non-zero ones are"));
  EXPECT_THAT(finding.text, Not(HasSubstr("The worst is")));
}

TEST(FindingRates, ScaledOperandsGiveTheSharesOfTheTables) {
  RunInfo info = make_run(healthy_spec()).info();
  const std::string name = "conv1.activation_grad";
  for (SiteInfo& site : info.lanes[kLane].sites) {
    if (site.name() != name) continue;
    site.format = kE4m3fn;
    site.scale = "delayed";
  }
  RunView run = empty_run(info);
  // The smallest subnormal number of e4m3fn is 2^-9 (OCP OFP8), so 2^-12 is flushed.
  for (int64_t step = 0; step < 12; ++step) {
    const float small = step < 10 ? 1.0f : 0x1p-12f;
    add_step(run, step, name, measured({0, 0, 0, 0, small, small, 1, 1}, kE4m3fn));
  }
  const Finding finding = only_finding(run, "scaled_operands");
  EXPECT_EQ(percent(rates_in(run, name).underflow), "8.33%") << "4 of 48";
  EXPECT_EQ(
      finding.mechanism,
      "conv1.activation_grad underflows e4m3fn: 8.33% of its non-zero values become 0 (scaled by "
      "delayed)");
  EXPECT_THAT(finding.text, HasSubstr("8.33% of its non-zero values become 0"));
  EXPECT_THAT(finding.text,
              HasSubstr("Without the steps that overflow and the first 10, the share is 50%."
                        ""));
}

// The estimate of the rounding error beside the error of the values themselves: spread values, and
// one large value among many that become 0 and so lose only themselves.
TEST(FindingRates, TooFewStepsLoseWhatRoundingTakes) {
  RunInfo info = make_run(healthy_spec()).info();
  const std::string name = "conv1.activation_grad";
  for (SiteInfo& site : info.lanes[kLane].sites) {
    if (site.name() != name) continue;
    site.format = kInt4Format;
    site.scale = "current";
  }
  std::vector<float> spread, outlier{7.0f};
  for (int i = 0; i < 1000; ++i) {
    spread.push_back(0.007f * static_cast<float>(i));
    outlier.push_back(0.001f * static_cast<float>(1 + i % 40));
  }
  for (const std::vector<float>& values : {spread, outlier}) {
    RunView run = empty_run(info);
    add_step(run, 0, name, measured(values, kInt4Format));
    double lost = 0.0, size = 0.0;
    for (const float x : values) {
      lost += std::pow(std::round(x) - x, 2);
      size += std::pow(x, 2);
    }
    const Finding finding = only_finding(run, "scaled_operands");
    const double share = std::get<double>(finding.evidence.at("lost_energy_share"));
    // Bins say little about where in them values are.
    EXPECT_GT(share, 0.5 * lost / size) << values.size();
    EXPECT_LT(share, 2.0 * lost / size) << values.size();
  }
}

}  // namespace
}  // namespace halfscope::test
