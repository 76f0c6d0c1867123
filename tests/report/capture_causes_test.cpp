// SPDX-License-Identifier: MIT
// Causes that only captured lanes show: code that is no module, the loss function, data, gradients
// without a loss scale, and modules that run several times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "analysis/report/report.h"
#include "analysis/rules/rules.h"
#include "tests/report/capture.h"

namespace halfscope::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr double kInfiniteLoss = std::numeric_limits<double>::infinity();

/// Returns the finding that the verdict names.
Finding first_finding(const RunView& run) {
  const std::vector<Finding> all = run_rules(run);
  return all.empty() ? Finding{} : all.front();
}

TEST(CaptureCauses, NamesCodeThatIsNoModule) {
  RunSpec spec = spec_with_code();
  layer_of(spec, "fc1/input").activation = 17.0;
  const RunView run = captured(spec);
  const Report report = make_report(run);
  EXPECT_THAT(report.verdict.headline,
              AllOf(HasSubstr("the code between relu2 and fc1 gives infinity from finite numbers"),
                    Not(HasSubstr("fc1 overflows"))));
  const Finding finding = first_finding(run);
  EXPECT_EQ(finding.cause, Mechanism::invalid_result);
  EXPECT_TRUE(finding.action.edit.empty());
  EXPECT_THAT(finding.action.text,
              AllOf(HasSubstr("Compute the code between relu2 and fc1 in fp32"),
                    HasSubstr("enabled=False"), Not(HasSubstr("masked"))));
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->mechanism, Mechanism::invalid_result);
  EXPECT_FALSE(report.recommendation);
}

TEST(CaptureCauses, NanWithoutInfinityIsNoOverflow) {
  RunSpec spec = spec_with_code();
  const auto nan_at = [&](const std::string& path) {
    const RunView healthy = captured(spec);
    return changed(
        healthy,
        [&](const SiteInfo& site, TensorStats& stats) {
          const bool later = site.path == "fc1" || site.path == "relu3" || site.path == "fc2" ||
                             site.path == "loss" || site.phase == Phase::backward;
          const bool is = site.path == path && site.role == Role::activation;
          if (is || (later && site.role != Role::weight)) fill(stats, std::nan(""));
        },
        [](StepRow& row) {
          row.loss = std::nan("");
          row.skipped = true;
        });
  };
  const Finding code = first_finding(nan_at("fc1/input"));
  EXPECT_EQ(code.layer, "fc1/input");
  EXPECT_EQ(code.cause, Mechanism::invalid_result);
  EXPECT_THAT(code.action.text, HasSubstr("masked completely"));
  const Finding module = first_finding(nan_at("fc1"));
  EXPECT_EQ(module.layer, "fc1");
  EXPECT_EQ(module.cause, Mechanism::invalid_result);
  EXPECT_THAT(module.action.text, HasSubstr("Run fc1 in fp32 to see"));
  EXPECT_TRUE(module.action.edit.empty());
}

// relu1 runs again behind fc1, for fc2: its numbers are added up, and the graph knows only what its
// first call read.
TEST(CaptureCauses, ACallThatTheGraphDoesNotShowIsNoCause) {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  layer_of(spec, "conv2").activation = 17.0;
  layer_of(spec, "fc2").inputs = {"relu1"};
  const RunView run = changed(
      captured(spec),
      [](const SiteInfo& site, TensorStats& stats) {
        if (site.name() == "relu1.activation") stats.pos_inf += 3;
        if (site.name() == "fc2.activation") fill(stats, std::nan(""));
      },
      [](StepRow& row) {
        row.loss = std::nan("");
        row.skipped = true;
      });
  const Report report = make_report(run);
  EXPECT_THAT(report.verdict.headline, HasSubstr("conv2 overflows"));
  ASSERT_TRUE(report.diagnosis);
  ASSERT_EQ(report.diagnosis->root.size(), 1u);
  EXPECT_EQ(report.diagnosis->root[0].layer, "conv2");
  for (const Finding& finding : run_rules(run)) {
    const bool about = finding.rule == "first_non_finite" || finding.rule == "forward_overflow";
    if (!about) continue;
    EXPECT_EQ(finding.layer, "conv2") << finding.text;
  }
}

TEST(CaptureCauses, ALossThatFailsAloneIsTheCause) {
  for (const double loss : {kInfiniteLoss, std::nan("")}) {
    RunSpec spec = healthy_spec();
    spec.layers.pop_back();  // the loss is no module
    spec.steps = 60;
    const bool half = std::isnan(loss);  // the model is, so that there is no autocast
    if (half) spec.lanes[1].storage = kFp16;
    const RunView run = changed(
        captured(spec),
        [](const SiteInfo& site, TensorStats& stats) {
          if (site.phase == Phase::backward) {
            fill(stats, std::nan(""));
            stats.nan -= 3;
            stats.pos_inf += 3;
          }
        },
        [&](StepRow& row) {
          row.loss = loss;
          row.skipped = true;
        });
    const Finding finding = first_finding(run);
    EXPECT_EQ(finding.rule, "first_non_finite");
    EXPECT_EQ(finding.step, 0);
    EXPECT_EQ(finding.cause, Mechanism::invalid_result);
    EXPECT_THAT(finding.mechanism, AllOf(HasSubstr("the loss function gives"),
                                         HasSubstr(std::isnan(loss) ? "NaN" : "infinity"),
                                         HasSubstr("all outputs of the model are finite")));
    EXPECT_THAT(finding.action.text, HasSubstr("Compute the loss in fp32"));
    EXPECT_EQ(finding.action.text.find("autocast") == std::string::npos, half);
    EXPECT_EQ(finding.action.text.find("Infinite targets") != std::string::npos, std::isinf(loss));
    const Report report = make_report(run);
    ASSERT_TRUE(report.diagnosis);
    ASSERT_EQ(report.diagnosis->root.size(), 1u);
    EXPECT_EQ(report.diagnosis->root[0].layer, "loss");
  }
}

TEST(CaptureCauses, DataThatAreNotFiniteAreTheCauseInFp32Too) {
  for (const FloatFormat& format : {kFp32, kFp16}) {
    RunSpec spec = healthy_spec();
    spec.steps = 60;
    spec.lanes[1].format = format;
    spec.lanes[1].dynamic = false;
    spec.lanes[1].loss_scale = 1.0;
    spec.nan_from_the_start = true;
    const RunView run = captured(spec);
    const Finding finding = first_finding(run);
    EXPECT_EQ(finding.cause, Mechanism::bad_data) << format_name(format);
    EXPECT_THAT(finding.action.text, HasSubstr("Clean the data: the batch of step 0 contains NaN"));
    const Report report = make_report(run);
    EXPECT_THAT(report.verdict.headline, HasSubstr("the data contain NaN at step 0"));
    const Diagnosis diagnosis = diagnose(run, run_rules(run), 0, {}, {});
    ASSERT_EQ(diagnosis.root.size(), 1u);
    EXPECT_EQ(diagnosis.root[0].layer, "input");
    EXPECT_THAT(report.verdict.text, Not(HasSubstr("learning rate")));
    EXPECT_THAT(answer_of(report).todo, HasSubstr("Clean the data"));
  }
}

TEST(CaptureCauses, NanInFp32WithInitialWeightsIsNotTheLearningRate) {
  RunSpec spec = spec_with_code();
  spec.lanes[1].format = kFp32;
  spec.lanes[1].dynamic = false;
  spec.lanes[1].loss_scale = 1.0;
  for (const int64_t from : {0, 7}) {
    const RunView healthy = captured(spec);
    RunView run(healthy.info(), RunStatus::complete);
    for (StepRow row : healthy.steps(0)) {
      if (row.step >= from) row.loss = std::nan("");
      run.add_step(0, row);
    }
    for (const SiteInfo& site : healthy.lane(0).sites) {
      const bool later = site.order >= healthy.find_site(0, "fc1/input.activation").value();
      for (StatsWindow window : healthy.windows(0, site.order)) {
        if (later && window.step >= from && site.role != Role::weight) {
          fill(window.stats, std::nan(""));
        }
        run.add_window(0, site.order, window);
      }
    }
    const Report report = make_report(run);
    const bool initial = from == 0;
    EXPECT_EQ(report.verdict.headline.find("the code between relu2 and fc1 gives NaN at step 0") !=
                  std::string::npos,
              initial)
        << report.verdict.headline;
    ASSERT_FALSE(report.actions.empty());
    EXPECT_EQ(report.actions[0].text.find("masked completely") != std::string::npos, initial);
    EXPECT_EQ(report.actions[0].text.find("learning rate") != std::string::npos, !initial);
  }
}

TEST(CaptureCauses, GradientsThatOverflowWithoutAScaleAreTheCause) {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  spec.lanes[1].loss_scale = 1.0;
  spec.lanes[1].dynamic = false;
  for (LayerSpec& layer : spec.layers) layer.gradient = 15.0;
  RunView run = changed(
      captured(spec), [](const SiteInfo&, TensorStats&) {},
      [](StepRow& row) { row.loss = row.step > 0 ? std::nan("") : row.loss; });
  const Finding finding = first_finding(run);
  EXPECT_EQ(finding.rule, "first_non_finite");
  EXPECT_EQ(finding.cause, Mechanism::gradient_overflow);
  EXPECT_THAT(finding.action.text, AllOf(HasSubstr("take the mean"), HasSubstr("GradScaler")));
}

TEST(CaptureCauses, SaysIfTheLossGrewBeforeAnythingOverflowed) {
  for (const double first : {0.25, 200.0}) {
    RunSpec spec = healthy_spec();
    spec.steps = 60;
    const RunView run = changed(
        captured(spec), [](const SiteInfo&, TensorStats&) {},
        [&](StepRow& row) {
          row.loss = row.step == 0 ? first : row.step < 10 ? 580.0 : std::nan("");
          row.skipped = row.step >= 10;
        });
    RunView hot(run.info(), RunStatus::complete);
    for (const StepRow& row : run.steps(0)) hot.add_step(0, row);
    for (const SiteInfo& site : run.lane(0).sites) {
      for (StatsWindow window : run.windows(0, site.order)) {
        const bool is_late = window.step >= 10 && site.phase == Phase::forward;
        if (is_late && site.name() == "conv2.activation") window.stats.pos_inf = 5;
        if (is_late && site.name() == "fc2.activation") fill(window.stats, std::nan(""));
        hot.add_window(0, site.order, window);
      }
    }
    const Finding finding = first_finding(hot);
    EXPECT_THAT(finding.mechanism, HasSubstr("conv2 overflows fp16"));
    const bool grew = first < 1.0;
    EXPECT_EQ(
        finding.mechanism.find("after the loss had grown from 0.25 to 580") != std::string::npos,
        grew);
    EXPECT_EQ(finding.action.text.starts_with("Lower the learning rate first"), grew);
    EXPECT_EQ(finding.action.edit.empty(), grew);
  }
}

// Two ranks of one training: the gradients of the second one overflow from step 20 on, and both
// skip these steps.
TEST(CaptureCauses, ARankThatSkipsWithAnotherOneNamesIt) {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  const RunView one = captured(spec);
  RunInfo info = one.info();
  info.lanes = {one.lane(0), one.lane(0)};
  info.lanes[0].name = "rank0";
  info.lanes[1].name = "rank1";
  const int bad = one.find_site(0, "fc2.weight_grad").value();
  RunView run(std::move(info), RunStatus::complete);
  const auto skips = [](int64_t step) { return step >= 20 && step < 31; };
  for (int lane = 0; lane < 2; ++lane) {
    double scale = 16384.0;
    for (StepRow row : one.steps(0)) {
      row.skipped = skips(row.step);
      row.loss_scale = scale;
      row.first_bad = row.skipped && lane == 1 ? bad : -1;
      if (row.skipped) scale *= 0.5;
      run.add_step(lane, row);
    }
    for (const SiteInfo& site : one.lane(0).sites) {
      for (StatsWindow window : one.windows(0, site.order)) {
        if (site.order == bad && lane == 1 && skips(window.step)) window.stats.pos_inf = 3;
        run.add_window(lane, site.order, window);
      }
    }
  }
  std::vector<Finding> found;
  for (const Finding& each : run_rules(run)) {
    if (each.rule == "first_non_finite") found.push_back(each);
  }
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].severity, Severity::info);
  EXPECT_THAT(found[0].text,
              HasSubstr("fc2.weight_grad of rank1 is NaN or infinite at step 20, and "
                        "the ranks share their gradients"));
  EXPECT_EQ(found[1].severity, Severity::warning) << "no start of a scale: it had worked before";
  EXPECT_THAT(found[1].text,
              HasSubstr("11 of 60 steps were skipped, all of them after 20 good ones"));
  EXPECT_THAT(make_report(run).verdict.headline, HasSubstr("rank1"));
}

TEST(CaptureCauses, StateThatIsInfiniteHasOverflowed) {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  spec.lanes[1].storage = kFp16;
  spec.lanes[1].state = 17.0;
  spec.lanes[1].update = -30.0;
  const RunView run = captured(spec);
  const Finding finding = first_finding(run);
  EXPECT_EQ(finding.rule, "optimizer_state");
  EXPECT_EQ(finding.cause, Mechanism::state_overflow);
  EXPECT_THAT(finding.mechanism, AllOf(HasSubstr("overflows fp16"), HasSubstr("are infinite"),
                                       HasSubstr("so their updates are 0")));
  EXPECT_EQ(make_report(run).diagnosis->mechanism, Mechanism::state_overflow);
}

TEST(CaptureCauses, LayersWithoutGradientsLearnNothing) {
  const RunView healthy = captured(spec_with_code());
  const auto zeros = [](const SiteInfo& site, TensorStats& stats) {
    const bool before = site.path == "conv1" || site.path == "conv2";
    if (before && site.phase == Phase::backward) fill(stats, 0.0);
  };
  const auto with_code = [&](const SiteInfo& site, TensorStats& stats) {
    zeros(site, stats);
    if (site.name() == "fc1/input.activation") fill(stats, 0.0);
  };
  const RunView alone = changed(healthy, zeros, keep_row);
  Finding network;
  for (const Finding& each : run_rules(alone)) {
    if (each.rule == "zero_gradients") network = each;
  }
  EXPECT_THAT(network.mechanism, HasSubstr("conv1 and conv2 learn nothing"));
  EXPECT_EQ(network.severity, Severity::info) << "nothing may read them";
  EXPECT_EQ(make_report(alone).verdict.state, Verdict::State::inconclusive);

  // Gradients that are almost 0 explain those that are 0.
  RunSpec small = healthy_spec();
  small.steps = 60;
  for (LayerSpec& layer : small.layers) layer.gradient = -22.0;
  small.lanes[1].loss_scale = 1.0;
  small.lanes[1].dynamic = false;
  const Finding underflow = first_finding(changed(captured(small), zeros, keep_row));
  EXPECT_EQ(underflow.rule, "zero_gradients");
  EXPECT_EQ(underflow.cause, Mechanism::gradient_flush);
  EXPECT_THAT(underflow.mechanism, HasSubstr("conv1 and conv2 learn nothing: all their gradients "
                                             "underflow to 0"));
  EXPECT_THAT(underflow.action.text, HasSubstr("Use dynamic loss scaling"));

  const Finding code = first_finding(changed(healthy, with_code, keep_row));
  EXPECT_EQ(code.rule, "zero_gradients");
  EXPECT_EQ(code.layer, "fc1/input");
  EXPECT_THAT(code.mechanism, HasSubstr("the code between relu2 and fc1 gives nothing but 0"));
  EXPECT_THAT(code.action.text, HasSubstr("enabled=False"));

  for (const Finding& each : run_rules(healthy)) EXPECT_NE(each.rule, "zero_gradients");
}

}  // namespace
}  // namespace halfscope::test
