// SPDX-License-Identifier: MIT
// Sentences about one tensor agree with each other, and advice for captured lanes is code that
// works there: shares along the way from a cause, layers that are not the cause, windows of loss
// scales, models in a narrow format, and casts in modules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "analysis/fixes/fixes.h"
#include "analysis/report/report.h"
#include "analysis/rules/lane_facts.h"
#include "analysis/rules/rules.h"
#include "tests/report/capture.h"

namespace halfscope::test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

bool is_after(const SiteInfo& site, const RunView& run, const std::string& name) {
  return site.role == Role::activation &&
         site.order > run.find_site(run.lane_count() - 1, name).value();
}

void lose(StepRow& row) { row.loss = std::nan(""); }

// An eighth of what code gives is infinite in the first step. Then the weights are NaN.
TEST(CaptureWords, TheWayFromACauseHasTheSharesOfTheCause) {
  const RunView healthy = captured(spec_with_code());
  const RunView run = changed_steps(
      healthy,
      [&](const SiteInfo& site, int64_t step, TensorStats& stats) {
        const bool output = site.role == Role::activation;
        if (step > 0 && site.role != Role::input) fill(stats, std::nan(""));
        if (step > 0 || !output) return;
        if (site.path == "fc1/input") stats.pos_inf = stats.n / 8;
        if (is_after(site, healthy, "fc1/input.activation")) {
          stats.nan = stats.n / 4;
          stats.pos_inf = stats.n / 4;
        }
      },
      lose);
  const Report report = make_report(run);
  EXPECT_THAT(report.verdict.headline, HasSubstr("gives infinity from finite numbers: 12.5%"));
  ASSERT_TRUE(report.diagnosis);
  const std::vector<Hop>& chain = report.diagnosis->chain;
  ASSERT_GE(chain.size(), 2u);
  EXPECT_EQ(chain[0].layer, "fc1/input");
  EXPECT_EQ(chain[0].text, "12.5% infinite");
  EXPECT_EQ(chain[1].text, "50% NaN or infinite");
}

// fc1 gives NaN in the first step, which makes the weights NaN: later, the layers before it give
// NaN, too.
TEST(CaptureWords, TheFirstNanIsThatOfTheFirstStep) {
  RunSpec spec = healthy_spec();
  const RunView healthy = make_run(spec);
  const RunView run = changed_steps(
      healthy,
      [&](const SiteInfo& site, int64_t step, TensorStats& stats) {
        const bool spoiled = step > 0 || site.name() == "fc1.activation" ||
                             is_after(site, healthy, "fc1.activation");
        if (site.role == Role::activation && spoiled) fill(stats, std::nan(""));
      },
      lose);
  const std::vector<Finding> findings{{.rule = "forward_overflow",
                                       .lane = 1,
                                       .severity = Severity::error,
                                       .site = "fc1.activation",
                                       .layer = "fc1",
                                       .mechanism = "fc1 gives NaN"}};
  const Diagnosis diagnosis = diagnose(run, findings, 1, PlanEdit::in_fp32({"fc1"}), {});
  ASSERT_EQ(diagnosis.root.size(), 1u);
  EXPECT_EQ(diagnosis.root[0].layer, "fc1");
  EXPECT_TRUE(diagnosis.decoys.empty()) << diagnosis.decoys[0].place.layer;
  ASSERT_TRUE(diagnosis.first_symptom);
  EXPECT_EQ(diagnosis.first_symptom->layer, "fc1");
}

// Gradients that are summed in fp32 show no upper end.
TEST(CaptureWords, AWindowOfLossScalesNamesOnlyTheEndsThatItHas) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].loss_scale = 1.0;
  spec.lanes[1].dynamic = false;
  const RunView run = changed(
      captured(spec),
      [](const SiteInfo& site, TensorStats& stats) {
        if (site.phase == Phase::backward) stats.overflow = 1;
      },
      keep_row);
  std::vector<Finding> found = run_rules(run);
  std::erase_if(found, [](const Finding& each) { return each.rule != "loss_scale_window"; });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].text, AllOf(StartsWith("Loss scales from 2^"), HasSubstr(" on work for"),
                                   HasSubstr("Below that, "), HasSubstr("underflows first"),
                                   Not(HasSubstr("inf")), Not(HasSubstr("overflows"))));
  EXPECT_FALSE(found[0].evidence.contains("window_high"));
  EXPECT_TRUE(found[0].evidence.contains("window_low"));
}

// A model in half precision has no autocast that could be switched off.
TEST(CaptureWords, AdviceOnCodeFitsAModelInHalfPrecision) {
  RunSpec spec = spec_with_code();
  layer_of(spec, "fc1/input").activation = 17.0;
  const std::string mixed = run_rules(captured(spec)).front().action.text;
  EXPECT_THAT(mixed, AllOf(HasSubstr("enabled=False"), HasSubstr("call .float() on what it reads"),
                           HasSubstr("remove casts such as .half() inside it")));
  spec.lanes[1].storage = kFp16;
  const std::string half = run_rules(captured(spec)).front().action.text;
  EXPECT_THAT(half, AllOf(StartsWith("Compute the code between relu2 and fc1 in fp32: call "
                                     ".float() on what it reads, and .half() on its result."),
                          Not(HasSubstr("autocast"))));
  LaneInfo lane = captured(spec).lane(0);
  lane.layers[0].path = "block.0";
  lane.layers[1].path = "block:exp";
  lane.layers[1].op = "Exp";
  const std::string code = fix_as(FixTarget::pytorch, lane, PlanEdit::in_fp32({"block:exp"}));
  EXPECT_THAT(code, AllOf(HasSubstr("y = (x.float().exp()).to(torch.float16)"),
                          Not(HasSubstr("autocast"))));
}

TEST(CaptureWords, ModulesWithCodeOfTheirOwnMayCast) {
  LaneInfo lane = captured(healthy_spec()).lane(0);
  const PlanEdit edit = PlanEdit::in_fp32({"conv2", "fc1"});
  EXPECT_EQ(cast_note(lane, edit), "");
  for (LayerInfo& layer : lane.layers) {
    if (layer.path == "fc1" || layer.path == "fc2") layer.op = "WeightNorm";
  }
  const std::string note = "Also remove casts such as .half() inside fc1.";
  EXPECT_EQ(cast_note(lane, edit), " " + note);
  EXPECT_THAT(fix_as(FixTarget::pytorch, lane, edit), HasSubstr("# " + note));
  lane.backend = "keras";
  EXPECT_THAT(cast_note(lane, edit), HasSubstr("keras.ops.cast() inside fc1"));
  for (LayerInfo& layer : lane.layers) {
    if (layer.path == "fc1") layer.op = "LSTM";
  }
  EXPECT_EQ(cast_note(lane, edit), "") << "the framework's own code";
  EXPECT_NE(cast_note(lane, PlanEdit::in_fp32({"fc2"})), "");
  lane.backend = "emulated";
  EXPECT_EQ(cast_note(lane, PlanEdit::in_fp32({"fc2"})), "")
      << "a plan says what every operator computes in";
}

// fc1 divides by a norm of its weights, and gives 0. In five steps a loss scale comes down.
TEST(CaptureWords, LayersThatLearnNothingAreCountedInTheStepsThatCount) {
  for (const double size : {8.0, 0.0}) {
    RunSpec spec = healthy_spec();
    spec.steps = 60;
    layer_of(spec, "relu2").activation = size;
    layer_of(spec, "fc1").op = "WeightNorm";
    const RunView run = changed_steps(
        captured(spec),
        [](const SiteInfo& site, int64_t step, TensorStats& stats) {
          if (site.name() == "fc1.activation") fill(stats, 0.0);
          if (site.phase != Phase::backward || !site.path.starts_with("conv")) return;
          fill(stats, step < 5 && site.path == "conv1" ? std::nan("") : 0.0);
        },
        [](StepRow& row) { row.skipped = row.step < 5; });
    std::vector<Finding> found = run_rules(run);
    std::erase_if(found, [](const Finding& each) { return each.rule != "zero_gradients"; });
    ASSERT_EQ(found.size(), 1u);
    EXPECT_THAT(found[0].text,
                HasSubstr("conv1 and conv2 learn nothing: all their gradients are exactly 0 in all "
                          "55 recorded steps with finite gradients. fc1 gives nothing but 0"));
    // Squares of numbers around 256 are too large for fp16.
    const bool large = size > 0.0;
    EXPECT_EQ(found[0].cause, large ? Mechanism::forward_overflow : Mechanism::forward_flush);
    EXPECT_EQ(found[0].text.find("overflowed to infinity") != std::string::npos, large);
    const Report report = make_report(run);
    ASSERT_TRUE(report.diagnosis && report.recommendation);
    for (const std::string& text : {report.diagnosis->fix_text, report.recommendation->text}) {
      EXPECT_THAT(text, AllOf(StartsWith("Keep fc1 in fp32"),
                              EndsWith("Also remove casts such as .half() inside fc1.")));
    }
  }
}

// Recorders name the operators of layers; a name that is not known here would look like a user's.
TEST(CaptureWords, OperatorsThatRecordersNameAreNoCodeOfUsers) {
  LaneInfo lane;
  lane.backend = "pytorch";
  const auto is_own = [&](const std::string& op) {
    LayerInfo layer;
    layer.op = op;
    return runs_own_code(lane, layer);
  };
  const std::regex name(R"re((?:: |_by_rank\()"(\w+)")re");
  for (const char* file : {"_ops.py", "_keras_ops.py"}) {
    std::ifstream in(std::string(HALFSCOPE_SOURCE_DIR "/python/halfscope/") + file);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    int64_t names = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at, ++names) {
      EXPECT_FALSE(is_own((*at)[1])) << (*at)[1] << " of " << file;
    }
    EXPECT_GT(names, 30) << file;
  }
  EXPECT_TRUE(is_own("MyNorm"));
}

}  // namespace
}  // namespace halfscope::test
