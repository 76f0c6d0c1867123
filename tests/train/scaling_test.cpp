// SPDX-License-Identifier: MIT
// fp8 and fp4 trainings: with scales they follow full precision where the bare formats do not, the
// state of delayed scaling survives a checkpoint, and rules report scales that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "analysis/memory_sink.h"
#include "analysis/rules/recommend.h"
#include "analysis/rules/rules.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kRecipes[] = {"fp8_delayed", "fp8_current", "fp8_block", "mxfp8", "nvfp4"};

Plan with_scale(const std::string& preset, const std::string& scale) {
  Plan plan = preset_plan(preset).value();
  plan.name = scale;
  for (PlanRule& rule : plan.rules) {
    if (rule.scale) rule.scale = parse_scale(scale).value();
  }
  return plan;
}

TrainConfig setup_of(const std::vector<Plan>& plans, int64_t steps) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.lanes.clear();
  for (const Plan& plan : plans) setup.lanes.push_back(lane(plan, "none"));
  setup.steps = steps;
  setup.optimizer = parse_optimizer("sgd:lr=0.1");
  return setup;
}

/// The rows of the lanes' last step.
std::vector<StepRow> last_rows(const TrainConfig& setup, const Dataset& dataset = data()) {
  Trainer trainer(setup, dataset);
  std::vector<StepRow> last;
  const std::atomic<bool> never{false};
  trainer.run(
      nullptr, [&](const std::vector<StepRow>& rows) { last = rows; }, never);
  return last;
}

TEST(ScaledTraining, RecipesFollowFullPrecision) {
  std::vector<Plan> plans{preset_plan("float32").value()};
  for (const char* name : kRecipes) plans.push_back(preset_plan(name).value());
  const std::vector<StepRow> rows = last_rows(setup_of(plans, 80));
  ASSERT_LT(rows[0].loss, 1.6) << "it trains at all, from 2.3";
  for (size_t i = 1; i < rows.size(); ++i) {
    const double tolerance = plans[i].name == "nvfp4" ? 0.2 : 0.1;
    EXPECT_NEAR(rows[i].loss, rows[0].loss, tolerance * rows[0].loss) << plans[i].name;
    EXPECT_NE(rows[i].loss, rows[0].loss) << plans[i].name;
    EXPECT_FALSE(rows[i].skipped) << plans[i].name;
  }
}

TEST(ScaledTraining, WithoutScalesTheGradientsVanish) {
  // A loss scale that puts the gradients far below the smallest e5m2.
  TrainConfig setup =
      setup_of({with_scale("fp8_current", "static:1"), with_scale("fp8_current", "current")}, 3);
  for (LaneConfig& each : setup.lanes) {
    each.scaler = parse_loss_scale("static:1e-5");
  }
  Collector seen;
  Trainer trainer(setup, data());
  std::vector<StepRow> rows;
  const std::atomic<bool> never{false};
  trainer.run(
      nullptr, [&](const std::vector<StepRow>& each) { rows = each; }, never);
  EXPECT_EQ(trainer.weights(0).at("fc1.weight").data,
            Trainer(setup, data()).weights(0).at("fc1.weight").data)
      << "all of its gradients were flushed to zero";
  EXPECT_NE(trainer.weights(1).at("fc1.weight").data, trainer.weights(0).at("fc1.weight").data);
}

TEST(ScaledTraining, ConvolutionsAndNormalizationTrainAndEvaluate) {
  for (const char* name : kRecipes) {
    TrainConfig setup = setup_of({preset_plan("float32").value(), preset_plan(name).value()}, 2);
    setup.model = "resnet20";
    setup.batch = 8;
    setup.evaluate = true;
    const Result result = train(setup, small_images());
    ASSERT_EQ(result.seen.evals.size(), 2u) << name;
    const double tolerance = std::string(name) == "nvfp4" ? 0.5 : 0.1;
    EXPECT_NEAR(result.seen.evals[1].loss, result.seen.evals[0].loss,
                tolerance * result.seen.evals[0].loss)
        << name;
  }
}

TEST(ScaledTraining, ACheckpointKeepsTheHistory) {
  TrainConfig setup = setup_of({with_scale("fp8_delayed", "delayed:history=3")}, 7);
  setup.micro_batches = 2;
  std::atomic<bool> stop{false};
  const std::atomic<bool> never{false};
  Trainer whole(setup, data()), first(setup, data()), second(setup, data());
  whole.run(nullptr, {}, never);
  first.run(
      nullptr, [&](const std::vector<StepRow>& rows) { stop = rows[0].step == 3; }, stop);
  const Checkpoint checkpoint = first.checkpoint();
  EXPECT_TRUE(checkpoint.lanes.begin()->second.variables.contains("fc1.weight_scale"));
  second.resume(checkpoint);
  second.run(nullptr, {}, never);
  expect_same_weights(whole.weights(0), second.weights(0));
  EXPECT_FALSE(whole.weights(0).contains("fc1.weight_scale")) << "no weight of the model";
}

TEST(ScaledTraining, EvaluatingChangesNothing) {
  TrainConfig setup = setup_of({preset_plan("fp8_delayed").value()}, 5);
  const Result plain = train(setup);
  setup.evaluate_every = 1;
  expect_same_weights(train(setup).weights, plain.weights);
}

TEST(ScaledTraining, ThreadsDoNotMatter) {
  for (const char* name : kRecipes) {
    const TrainConfig setup = setup_of({preset_plan(name).value()}, 3);
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    const Result one = train(setup);
    omp_set_num_threads(3);
    const Result three = train(setup);
    omp_set_num_threads(before);
    expect_same_weights(one.weights, three.weights);
    expect_same_steps(one.seen, three.seen);
  }
}

RunView recorded(const Plan& plan) {
  TrainConfig setup = setup_of({preset_plan("float32").value(), plan}, 60);
  setup.errors.enabled = true;
  Trainer trainer(setup, data());
  MemorySink sink;
  sink.begin(trainer.describe());
  const std::atomic<bool> never{false};
  trainer.run(&sink, {}, never);
  return sink.view();
}

std::vector<std::string> rules_that_fire(const RunView& run) {
  std::vector<std::string> fired;
  for (const Finding& finding : run_rules(run)) {
    if (finding.severity >= Severity::warning) fired.push_back(finding.rule);
  }
  return fired;
}

TEST(ScaledTraining, RulesTellScalesThatDoNotFit) {
  for (const char* name : {"fp8_current", "fp8_delayed", "mxfp8", "fp8_block"}) {
    EXPECT_THAT(rules_that_fire(recorded(preset_plan(name).value())), IsEmpty()) << name;
  }
  const RunView large = recorded(with_scale("fp8_current", "static:1e4"));
  EXPECT_THAT(rules_that_fire(large), Contains("scaled_operands"));
  const RunView small = recorded(with_scale("fp8_current", "static:1e-4"));
  EXPECT_THAT(rules_that_fire(small), Contains("scaled_operands"));
  for (const RunView* run : {&large, &small}) {
    const std::vector<Finding> findings = run_rules(*run);
    for (const Finding& finding : findings) {
      if (finding.rule != "scaled_operands") continue;
      EXPECT_STREQ(action_name(finding.action.edit), "keep_fp32");
      EXPECT_THAT(finding.action.layers, Not(IsEmpty()));
      EXPECT_GT(std::get<double>(finding.evidence.at("lost_energy_share_at_most")), 1e-3);
    }
    const auto advice = recommend(*run, findings, 1);
    ASSERT_TRUE(advice);
    EXPECT_FALSE(advice->edit.loss_scale()) << "no loss scale reaches the codes";
  }
}

// int4 has seven steps: values between them are lost, whatever the scale, and that is what the
// finding says, not the few values that a static scale clips.
TEST(ScaledTraining, TooFewStepsAreToldFromClipping) {
  Plan plan = preset_plan("float32").value();
  plan.name = "int4";
  plan.rules = {{.path = "", .op = "Gemm", .read = kInt4Format, .scale = parse_scale("current")}};
  const RunView run = recorded(plan);
  double before = INFINITY;
  int found = 0;
  for (const Finding& finding : run_rules(run)) {
    if (finding.rule != "scaled_operands") continue;
    ++found;
    EXPECT_EQ(finding.cause, Mechanism::rounding) << finding.text;
    EXPECT_THAT(finding.mechanism, testing::HasSubstr(" has too few steps in int4: "));
    EXPECT_GT(finding.weight, 1e-3);
    EXPECT_LE(finding.weight, before) << "the largest loss comes first";
    before = finding.weight;
  }
  EXPECT_GE(found, 2);
}

TEST(ScaledTraining, DelayedScalesMayBeginTooLarge) {
  // Pixels of 255 times what they are saturate while the scale is still 1, and then no more.
  TrainConfig setup =
      setup_of({preset_plan("float32").value(), preset_plan("fp8_delayed").value()}, 30);
  Trainer trainer(setup, data());
  NamedTensors weights = trainer.weights(0);
  for (float& x : weights.at("fc1.weight").data) x *= 2e4f;
  setup.init = {{"fc1.weight", weights.at("fc1.weight")}};
  setup.optimizer = parse_optimizer("sgd:lr=1e-6");
  Trainer large(setup, data());
  MemorySink sink;
  sink.begin(large.describe());
  const std::atomic<bool> never{false};
  large.run(&sink, {}, never);
  const int site = sink.view().find_site(1, "fc1.weight").value();
  EXPECT_GT(sink.view().total(1, site).overflow, 1000) << "of the first step";
  for (const Finding& finding : run_rules(sink.view())) {
    EXPECT_NE(finding.rule, "scaled_operands") << finding.text;
  }
}

TEST(ScaledTraining, OneOutlierFlushesTheOthers) {
  for (const char* name : {"fp8_current", "nvfp4"}) {
    TrainConfig setup = setup_of({preset_plan("float32").value(), preset_plan(name).value()}, 6);
    Trainer trainer(setup, data());
    NamedTensors weights = trainer.weights(0);
    weights.at("fc1.weight").data[5] = 1e7f;
    setup.init = {{"fc1.weight", weights.at("fc1.weight")}};
    Trainer outlier(setup, data());
    MemorySink sink;
    sink.begin(outlier.describe());
    const std::atomic<bool> never{false};
    outlier.run(&sink, {}, never);
    // With two levels of scales those of the other blocks vanish: their values are flushed, too.
    const int site = sink.view().find_site(1, "fc1.weight").value();
    const TensorStats stats = sink.view().total(1, site);
    EXPECT_GT(static_cast<double>(stats.underflow), 0.8 * static_cast<double>(stats.n)) << name;
    std::vector<std::string> sites;
    for (const Finding& finding : run_rules(sink.view())) {
      if (finding.rule == "scaled_operands") sites.push_back(finding.site);
    }
    EXPECT_THAT(sites, Contains("fc1.weight")) << name;
  }
}

TEST(ScaledTraining, ADamagedHistoryIsRefused) {
  TrainConfig setup = setup_of({with_scale("fp8_delayed", "delayed:history=3")}, 4);
  Trainer first(setup, data());
  const Checkpoint good = first.checkpoint();
  const auto refuses = [&](size_t at, double value) {
    Checkpoint bad = good;
    bad.lanes.begin()->second.variables.at("fc1.weight_scale").data.at(at) = value;
    Trainer trainer(setup, data());
    try {
      trainer.resume(bad);
    } catch (const Error& error) {
      return std::string(error.what()).find("fc1.weight_scale") != std::string::npos;
    }
    return false;
  };
  for (const double place : {1e9, -1.0, 0.5, 3.0, std::nan("")}) EXPECT_TRUE(refuses(1, place));
  for (const double scale : {-1.0, HUGE_VAL, std::nan("")}) EXPECT_TRUE(refuses(0, scale));
  EXPECT_TRUE(refuses(2, -4.0));
  EXPECT_FALSE(refuses(2, 4.0));
  EXPECT_FALSE(refuses(2, HUGE_VAL)) << "a step that overflowed";
}

TEST(ScaledTraining, ErrorsAreInUnitsOfTheScale) {
  const RunView run = recorded(preset_plan("fp8_delayed").value());
  int compared = 0;
  for (const SiteError& error : run.errors(1)) {
    const SiteInfo& site = run.lane(1).sites[static_cast<size_t>(error.site)];
    if (site.scale.empty() || error.step == 0) continue;
    ++compared;
    // Rounding to three bits after the point, two of the gradients: an error of a few percent.
    EXPECT_GT(error.local_fp64, 0.005) << site.name();
    EXPECT_LT(error.local_fp64, 0.08) << site.name();
    if (site.role == Role::weight) {
      EXPECT_LT(error.total, 0.2) << site.name();
    }
  }
  EXPECT_GE(compared, 4);
}

}  // namespace
}  // namespace halfscope::test
