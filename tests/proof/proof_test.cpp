// SPDX-License-Identifier: MIT
// Proofs by small trainings that fail for a known reason: what is proved, what is not, what is
// dropped, and the JSON about it.
#include "analysis/proof/proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/memory_sink.h"
#include "analysis/rules/rules.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using Words = std::vector<std::string>;

constexpr int64_t kSteps = 30;
/// A trial ends when this many losses in a row are NaN.
constexpr int64_t kLostLosses = 24;

/// A lane beside fp32, on images of 16 x 16.
TrainConfig training(const std::string& model, const std::string& plan, const std::string& scale,
                     const std::string& optimizer = "sgd") {
  TrainConfig result = config(model, plan, scale);
  result.lanes.insert(result.lanes.begin(), lane(Plan{}, "none"));
  result.optimizer = parse_optimizer(optimizer);
  result.steps = kSteps;
  return result;
}

/// Returns the rules' advice on the second lane.
Recommendation advice_on(const TrainConfig& config) {
  Trainer trainer(config, data());
  MemorySink sink;
  sink.begin(trainer.describe());
  const std::atomic<bool> never{false};
  trainer.run(&sink, {}, never);
  return recommend(sink.view(), run_rules(sink.view()), 1).value();
}

/// Advice made by hand.
Recommendation advice_of(const TrainConfig& config, const Words& layers) {
  Plan plan = config.lanes[1].plan;
  for (const std::string& layer : layers) keep_fp32(plan, layer);
  plan.name += "+fp32";
  Recommendation advice;
  advice.lane = 1;
  advice.edit.add(PlanEdit::in_fp32(layers));
  advice.plan_json = plan_to_json(plan);
  return advice;
}

std::optional<Proof> try_to_prove(const TrainConfig& config, const Recommendation& advice,
                                  const ProofProgress& progress, const std::atomic<bool>& stop) {
  const ProofRequest request{.training = config,
                             .original = config.lanes[1].plan,
                             .scaler = config.lanes[1].scaler,
                             .advice = advice,
                             .backend = &emulation_backend()};
  return prove(request, data(), progress, stop);
}

Proof proof_of(const TrainConfig& config, const Recommendation& advice) {
  const std::atomic<bool> never{false};
  return try_to_prove(config, advice, {}, never).value();
}

/// Expects a successful proof: the original fails, the advised lane passes, and all
/// leave-one-outs fail, one for each of `members`.
void expect_holds(const Proof& proof, Words members) {
  EXPECT_TRUE(proof.holds) << proof.text;
  ASSERT_GE(proof.trials.size(), 2u);
  EXPECT_EQ(proof.trials[0].kind, Trial::Kind::original);
  EXPECT_FALSE(proof.trials[0].passes);
  EXPECT_EQ(proof.trials[1].kind, Trial::Kind::advised);
  EXPECT_TRUE(proof.trials[1].passes);
  EXPECT_LE(proof.trials[1].gap, proof.tolerance);
  Words without;
  for (size_t i = 2; i < proof.trials.size(); ++i) {
    const Trial& trial = proof.trials[i];
    EXPECT_EQ(trial.kind, Trial::Kind::leave_one_out);
    EXPECT_FALSE(trial.passes) << trial.name << " passes with a gap of " << trial.gap;
    EXPECT_EQ(trial.name, proof.advised + " without " + trial.without);
    without.push_back(trial.without);
  }
  std::sort(members.begin(), members.end());
  std::sort(without.begin(), without.end());
  EXPECT_EQ(without, members);
  EXPECT_THAT(proof.text, StartsWith("Tested by training "));
  EXPECT_THAT(proof.text, HasSubstr(" Without it, "));
}

TEST(Proof, OfALayerHolds) {
  const TrainConfig hot = training("lenet-hot", "mixed_float16", "dynamic");
  const Proof proof = proof_of(hot, advice_on(hot));
  expect_holds(proof, {"conv2"});
  EXPECT_EQ(proof.lane, "mixed_float16");
  EXPECT_EQ(proof.advised, "mixed_float16+fp32");
  EXPECT_THAT(proof.edit.fp32_layers(), ElementsAre("conv2"));
  EXPECT_FALSE(proof.edit.loss_scale()) << "dynamic scaling finds its own";
  EXPECT_EQ(proof.steps, kSteps);
  EXPECT_EQ(proof.seed, 1u);
  EXPECT_EQ(proof.trials[0].skipped, kLostLosses);
  EXPECT_THAT(proof.dropped, IsEmpty());
  EXPECT_EQ(proof.tolerance, std::max(0.01, 2.0 * proof.twin_spread));
  const Plan plan = plan_from_json(proof.plan_json);
  EXPECT_EQ(plan.name, "mixed_float16+fp32");
  EXPECT_EQ(plan.rules.back().path, "conv2");
}

TEST(Proof, OfTheStorageHolds) {
  const TrainConfig adam = training(kMlp, "float16", "dynamic", "adam");
  const Proof proof = proof_of(adam, advice_on(adam));
  expect_holds(proof, {"variables.storage"});
  EXPECT_THAT(proof.edit.fp32_layers(), IsEmpty());
  EXPECT_EQ(plan_from_json(proof.plan_json).storage, kFp32);
  EXPECT_THAT(proof.text, HasSubstr("Without it, training fails."));
}

// The overflow hides that Adam's state becomes 0 in fp16, so the rules advise conv2 alone.
TEST(Proof, TriesChangesOfTheLaneBesideTheAdvice) {
  TrainConfig hot = training("lenet-hot", "float16", "dynamic", "adam");
  hot.every = 1;
  hot.errors.enabled = true;
  Trainer trainer(hot, data());
  MemorySink sink;
  sink.begin(trainer.describe());
  const std::atomic<bool> never{false};
  trainer.run(&sink, {}, never);
  const Recommendation advice = recommend(sink.view(), run_rules(sink.view()), 1).value();
  ASSERT_THAT(advice.edit.fp32_layers(), testing::Contains("conv2"));
  ASSERT_FALSE(advice.edit.has(FixKind::state_fp32) || advice.edit.has(FixKind::weights_fp32));
  ProofRequest request{.training = hot,
                       .original = hot.lanes[1].plan,
                       .scaler = hot.lanes[1].scaler,
                       .advice = advice,
                       .backend = &emulation_backend()};
  request.search = {.on = true, .evidence = &sink.view(), .lane = 1};
  const Proof proof = prove(request, data(), {}, never).value();
  EXPECT_TRUE(proof.holds) << proof.text;
  EXPECT_TRUE(proof.edit.has(FixKind::state_fp32) || proof.edit.has(FixKind::weights_fp32))
      << proof.text;
  EXPECT_LE(proof.edit.changes.size(), 2u) << proof.text;
}

TEST(Proof, OfALossScaleHolds) {
  const TrainConfig loud = training(kMlp, "mixed_float16", "static:1e30");
  const Proof proof = proof_of(loud, advice_on(loud));
  expect_holds(proof, {"loss_scale"});
  ASSERT_TRUE(proof.edit.loss_scale());
  EXPECT_LE(*proof.edit.loss_scale(), 0x1p20);
  // The plan has not changed, so the lane needs its own name.
  EXPECT_EQ(proof.advised, "mixed_float16+advice");
  EXPECT_THAT(proof.text, HasSubstr("Without it, it differs by 7"));
  EXPECT_EQ(proof.trials[0].calibration_skips, 0) << "a static scale looks for nothing";
}

// Dynamic scaling comes down by one power of two a step; from 2^99 that is most of this training.
TEST(Proof, ADynamicScaleThatStartsFarUpIsPartOfTheAdvice) {
  const TrainConfig far = training(kMlp, "mixed_float16", "dynamic:1e30");
  const Recommendation advice = advice_on(far);
  ASSERT_TRUE(advice.edit.loss_scale());
  expect_holds(proof_of(far, advice), {"loss_scale"});

  TrainConfig hot = training("lenet-hot", "mixed_float16", "dynamic:1e30");
  Recommendation both = advice_of(hot, {"conv2"});
  both.edit.set_loss_scale(1024.0);
  expect_holds(proof_of(hot, both), {"conv2", "loss_scale"});
  // From its default start, the loss scaler finds the scale without help.
  hot.lanes[1].scaler = parse_loss_scale("dynamic");
  expect_holds(proof_of(hot, both), {"conv2"});
}

TEST(Proof, BothOfTwoMembersAreNeeded) {
  const TrainConfig broken = training("lenet-hot", "mixed_float16", "static:1e9");
  Recommendation advice = advice_of(broken, {"conv2"});
  advice.edit.set_loss_scale(1024.0);
  const Proof proof = proof_of(broken, advice);
  expect_holds(proof, {"conv2", "loss_scale"});
  EXPECT_EQ(proof.edit.loss_scale(), 1024.0);
  EXPECT_THAT(proof.text, HasSubstr("it fails again: fp32 for conv2 and the loss scale."));
}

TEST(Proof, NeedlessMembersAreDropped) {
  const TrainConfig hot = training("lenet-hot", "mixed_float16", "static:1024");
  Recommendation advice = advice_of(hot, {"conv1", "conv2", "fc1"});
  advice.edit.set_loss_scale(2048.0);
  const Proof proof = proof_of(hot, advice);
  expect_holds(proof, {"conv2"});
  EXPECT_THAT(proof.edit.fp32_layers(), ElementsAre("conv2"));
  EXPECT_FALSE(proof.edit.loss_scale());
  EXPECT_THAT(proof.dropped, ElementsAre("conv1", "fc1", "loss_scale"));
  EXPECT_THAT(proof.text, HasSubstr("Not needed, so dropped: conv1, fc1 and the loss scale."));
  const Plan plan = plan_from_json(proof.plan_json);
  EXPECT_EQ(plan.rules.size(), hot.lanes[1].plan.rules.size() + 1);
  EXPECT_EQ(plan.rules.back().path, "conv2");
}

// Without learning, no lane falls behind, but one of them never takes a step.
TEST(Proof, SkippedStepsCountWhateverTheLoss) {
  const TrainConfig idle = training(kMlp, "mixed_float16", "dynamic:1e30", "sgd:lr=0");
  Recommendation advice = advice_of(idle, {});
  advice.edit.set_loss_scale(1024.0);
  const Proof proof = proof_of(idle, advice);
  expect_holds(proof, {"loss_scale"});
  EXPECT_LE(proof.trials[0].gap, proof.tolerance);
  EXPECT_EQ(proof.trials[0].calibration_skips, kSteps);
  EXPECT_THAT(proof.text, HasSubstr("% with 30 skipped steps."));
}

TEST(Proof, AdviceThatDoesNotHelpDoesNotHold) {
  const TrainConfig hot = training("lenet-hot", "mixed_float16", "dynamic");
  const Proof proof = proof_of(hot, advice_of(hot, {"fc1"}));
  EXPECT_FALSE(proof.holds);
  ASSERT_EQ(proof.trials.size(), 2u);
  EXPECT_FALSE(proof.trials[1].passes);
  EXPECT_THAT(proof.edit.fp32_layers(), ElementsAre("fc1")) << "it is what was tried";
  EXPECT_THAT(proof.dropped, IsEmpty());
  EXPECT_THAT(proof.text,
              StartsWith("Not proved: with the change, the loss becomes NaN or infinite "));
  EXPECT_THAT(proof.text, HasSubstr("It skips 24 steps."));
}

TEST(Proof, ALaneThatTrainsWellNeedsNone) {
  const TrainConfig fine = training(kMlp, "mixed_float16", "dynamic");
  const Proof proof = proof_of(fine, advice_of(fine, {"fc1"}));
  EXPECT_FALSE(proof.holds);
  EXPECT_TRUE(proof.trials.at(0).passes);
  EXPECT_TRUE(proof.trials.at(1).passes);
  EXPECT_EQ(proof.trials.size(), 2u);
  EXPECT_THAT(proof.text,
              StartsWith("mixed_float16 matches fp32 without any change: the loss stays within "));
}

TEST(Proof, NothingIsProvedWhereFp32DoesNotTrain) {
  const TrainConfig wild = training(kMlp, "mixed_float16", "none", "sgd:lr=1e30");
  const Proof proof = proof_of(wild, advice_of(wild, {"fc1"}));
  EXPECT_FALSE(proof.holds);
  EXPECT_THAT(proof.text, StartsWith("Nothing can be proved: fp32 itself does not train"));
  EXPECT_EQ(proof.tolerance, 0.01);
  for (const Trial& trial : proof.trials) EXPECT_FALSE(trial.passes);
  EXPECT_EQ(Json::parse(proof_json(proof)).at("twin_spread"), "inf");
}

// Lanes whose loss is NaN end early: the gap is infinite, and the text can still be written.
TEST(Proof, LanesWithoutHopeEndEarly) {
  TrainConfig hot = training("lenet-hot", "mixed_float16", "dynamic");
  hot.steps = 100;
  std::map<std::string, int64_t> steps;
  const std::atomic<bool> never{false};
  const std::optional<Proof> proof = try_to_prove(
      hot, advice_of(hot, {"conv2"}),
      [&](const std::string& name, int, const StepRow&) { ++steps[name]; }, never);
  ASSERT_TRUE(proof);
  expect_holds(*proof, {"conv2"});
  EXPECT_EQ(steps["mixed_float16"], kLostLosses);
  EXPECT_EQ(steps["mixed_float16+fp32"], 100);
  EXPECT_EQ(proof->trials[0].gap, std::numeric_limits<double>::infinity());
  EXPECT_EQ(proof->trials[0].skipped, kLostLosses);
  EXPECT_THAT(proof->text, HasSubstr("Without it, training fails"));

  // Finite losses leave more hope.
  TrainConfig large = training(kMlp, "mixed_float16", "static:1e9");
  large.steps = 100;
  steps.clear();
  Recommendation smaller = advice_of(large, {});
  smaller.edit.set_loss_scale(1024.0);
  ASSERT_TRUE(try_to_prove(
      large, smaller, [&](const std::string& name, int, const StepRow&) { ++steps[name]; }, never));
  EXPECT_EQ(steps["mixed_float16"], 65) << "64 after the first";

  // A scale that is still coming down from a large value is late, not failed: 2^99 takes 80 steps.
  TrainConfig far = training(kMlp, "mixed_float16", "dynamic:1e30");
  far.steps = 120;
  steps.clear();
  Recommendation advice = advice_of(far, {});
  advice.edit.set_loss_scale(1024.0);
  const std::optional<Proof> late = try_to_prove(
      far, advice, [&](const std::string& name, int, const StepRow&) { ++steps[name]; }, never);
  ASSERT_TRUE(late);
  EXPECT_EQ(steps["mixed_float16"], 120);
  EXPECT_TRUE(std::isfinite(late->trials[0].gap));
  EXPECT_FALSE(late->trials[0].passes);
}

TEST(Proof, ATrainingThatDoesNotRepeatProvesNothing) {
  const TrainConfig hot = training("lenet-hot", "mixed_float16", "dynamic");
  Trainer trainer(hot, data());
  MemorySink sink;
  sink.begin(trainer.describe());
  const std::atomic<bool> never{false};
  trainer.run(&sink, {}, never);
  const auto rows = [&](int lane) {
    const auto steps = sink.view().steps(lane);
    return std::vector<StepRow>(steps.begin(), steps.end());
  };
  ProofRequest request{.training = hot,
                       .original = hot.lanes[1].plan,
                       .scaler = hot.lanes[1].scaler,
                       .advice = advice_of(hot, {"conv2"}),
                       .backend = &emulation_backend(),
                       .recorded = rows(1),
                       .recorded_reference = rows(0)};
  EXPECT_TRUE(prove(request, data(), {}, never)->holds);
  // A run that was resumed, or stopped, has some of the steps.
  request.recorded_reference.erase(request.recorded_reference.begin(),
                                   request.recorded_reference.begin() + 10);
  request.recorded_reference.resize(5);
  EXPECT_TRUE(prove(request, data(), {}, never)->holds);

  const auto message = [&] {
    try {
      prove(request, data(), {}, never);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing thrown");
  };
  ProofRequest good = request;
  request.recorded_reference[3].loss = std::nextafter(request.recorded_reference[3].loss, 1e9);
  EXPECT_THAT(message(), StartsWith("the training is not repeatable: at step 13 the loss of "
                                    "float32 is "));
  request = good;
  request.recorded[2].loss = 1.0;
  EXPECT_THAT(message(), HasSubstr("at step 2 the loss of mixed_float16 is "));
}

TEST(Proof, StopsWhenItIsAskedTo) {
  const TrainConfig hot = training("lenet-hot", "mixed_float16", "dynamic");
  const Recommendation advice = advice_of(hot, {"conv2", "fc1"});
  const std::atomic<bool> now{true};
  int rows = 0;
  const auto count = [&rows](const std::string&, int, const StepRow&) { ++rows; };
  EXPECT_FALSE(try_to_prove(hot, advice, count, now));
  EXPECT_EQ(rows, 0);
  // Stop in any of the trainings, early or where those that fail end.
  int lanes = 0;
  const std::atomic<bool> never{false};
  ASSERT_TRUE(try_to_prove(
      hot, advice,
      [&lanes](const std::string&, int lane, const StepRow&) { lanes = std::max(lanes, lane); },
      never));
  ASSERT_GE(lanes, 5) << "fp32 with its twins, the lane, the advised one, two without a member";
  for (int lane = 1; lane <= lanes; ++lane) {
    std::atomic<bool> stop{false};
    int last = 0;
    EXPECT_FALSE(try_to_prove(
        hot, advice,
        [&](const std::string&, int which, const StepRow& row) {
          last = which;
          if (which == lane && row.step == (lane % 2 == 0 ? kLostLosses - 1 : 4)) stop = true;
        },
        stop))
        << "stopped in training " << lane;
    EXPECT_EQ(last, lane);
  }
}

TEST(Proof, JsonHasTheKeysOfTheContract) {
  const auto keys = [](const Json& object) {
    Words names;
    for (const auto& [key, value] : object.items()) names.push_back(key);
    return names;
  };
  const TrainConfig hot = training("lenet-hot", "mixed_float16", "dynamic");
  const std::string text = proof_json(proof_of(hot, advice_of(hot, {"conv2", "fc1"})));
  const Json json = Json::parse(text);
  EXPECT_THAT(keys(json),
              ElementsAre("lane", "advised", "layers", "loss_scale", "changes", "holds", "steps",
                          "seed", "tolerance", "twin_spread", "trials", "dropped", "tried",
                          "alternatives", "causes", "exhausted", "plan", "text"));
  EXPECT_EQ(json.at("changes"), Json::parse(R"([{"kind": "operator_fp32", "path": "conv2"}])"));
  // Unchanged, with the advice, without conv2 (only fc1), without fc1.
  ASSERT_GE(json.at("tried").size(), 3u);
  EXPECT_EQ(json.at("tried").at(0).at("changes"), Json::array());
  for (const Json& tried : json.at("tried")) {
    EXPECT_THAT(keys(tried), ElementsAre("changes", "gap", "skipped", "calibration_skips",
                                         "last_scale", "better", "passes", "why"));
    const bool has_conv2 = tried.at("changes").dump().find("conv2") != std::string::npos;
    EXPECT_EQ(tried.at("passes"), has_conv2);
  }
  EXPECT_EQ(json.at("exhausted"), false);
  EXPECT_EQ(json.at("lane"), "mixed_float16");
  EXPECT_EQ(json.at("advised"), "mixed_float16+fp32");
  EXPECT_EQ(json.at("layers"), Json({"conv2"}));
  EXPECT_EQ(json.at("loss_scale"), nullptr);
  EXPECT_EQ(json.at("holds"), true);
  EXPECT_EQ(json.at("dropped"), Json({"fc1"}));
  EXPECT_EQ(json.at("plan").at("rules").back().at("path"), "conv2");
  EXPECT_GE(json.at("tolerance"), 0.01);
  ASSERT_EQ(json.at("trials").size(), 3u);
  const Words kinds{"original", "advised", "leave_one_out"};
  for (size_t i = 0; i < 3; ++i) {
    const Json& trial = json.at("trials").at(i);
    EXPECT_THAT(keys(trial), ElementsAre("name", "kind", "without", "gap", "skipped",
                                         "calibration_skips", "better", "passes"));
    EXPECT_EQ(trial.at("kind"), kinds[i]);
    EXPECT_EQ(trial.at("without"), i == 2 ? Json("conv2") : Json(nullptr));
    EXPECT_EQ(trial.at("passes"), i == 1);
    EXPECT_TRUE(trial.at("gap").is_number() || trial.at("gap") == "inf");
  }
  EXPECT_TRUE(json.at("trials").at(1).at("gap").is_number()) << "both numbers are there";
  // The same again gives the same text.
  EXPECT_EQ(proof_json(proof_of(hot, advice_of(hot, {"conv2", "fc1"}))), text);
}

}  // namespace
}  // namespace halfscope::test
