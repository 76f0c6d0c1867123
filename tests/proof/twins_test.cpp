// SPDX-License-Identifier: MIT
// Twins: their distances against trainings that are moved by hand, and what they do to verdicts.
#include "analysis/proof/twins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/loss_gap.h"
#include "analysis/memory_sink.h"
#include "analysis/report/report.h"
#include "core/error.h"
#include "core/train/lane_setup.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Of = Deviation::Of;

const std::atomic<bool> kNever{false};

TrainConfig beside_float32(const std::string& plan, int64_t steps, const std::string& optimizer) {
  TrainConfig result = config(kMlp, plan, "none");
  result.lanes.insert(result.lanes.begin(), lane(Plan{}, "none"));
  result.optimizer = parse_optimizer(optimizer);
  result.steps = steps;
  result.errors.enabled = true;
  return result;
}

RunView recorded_run(const TrainConfig& config) {
  Trainer trainer(config, data());
  MemorySink sink;
  sink.begin(trainer.describe());
  trainer.run(&sink, {}, kNever);
  return sink.view();
}

TwinRequest request_of(const TrainConfig& config, const RunView& run) {
  TwinRequest request{
      .training = config, .plan = config.lanes[1].plan, .backend = &emulation_backend()};
  request.recorded_reference.assign(run.steps(0).begin(), run.steps(0).end());
  return request;
}

const Deviation& row(std::span<const Deviation> rows, Of of, const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Deviation& each) {
    return each.of == of && each.name == name;
  });
  if (found == rows.end()) throw Error("no row " + name);
  return *found;
}

/// The run with rows of the second lane replaced.
RunView with_rows(const RunView& run, const std::vector<Deviation>& rows) {
  RunView result(run.info(), run.status());
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    for (const StepRow& each : run.steps(lane)) result.add_step(lane, each);
    for (const Deviation& each : run.deviations(lane)) {
      const bool replaced = lane == 1 && std::any_of(rows.begin(), rows.end(), [&](const auto& r) {
                              return r.of == each.of && r.name == each.name;
                            });
      if (!replaced) result.add_deviation(lane, each);
    }
  }
  for (const Deviation& each : rows) result.add_deviation(1, each);
  return result;
}

double norm(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum);
}

// bf16 has 7 bits after the point, and mixed_bfloat16 reads all weights in it.
TEST(Twins, EndAsFarAwayAsTrainingsMovedByHand) {
  const TrainConfig adam = beside_float32("mixed_bfloat16", 20, "adam:lr=0.003");
  const RunView run = recorded_run(adam);
  const std::optional<Twins> twins = train_twins(request_of(adam, run), data(), {}, kNever);
  ASSERT_TRUE(twins);
  EXPECT_EQ(twins->steps, 20);
  EXPECT_GE(twins->seconds, 0.0);
  ASSERT_EQ(twins->reference.size(), run.steps(0).size());
  for (size_t i = 0; i < twins->reference.size(); ++i) {
    EXPECT_EQ(twins->reference[i].loss, run.steps(0)[i].loss);
  }

  TrainConfig single = adam;
  single.errors = {};
  single.lanes = {adam.lanes[0]};
  single.steps = 0;
  const NamedTensors start = train(single).weights;
  single.steps = 20;
  const Result right = train(single);
  double spread = 0.0;
  std::map<std::string, double> furthest;
  for (const uint64_t seed : {1, 2}) {
    single.lanes[0].noise_seed = seed;
    for (const auto& [path, tensor] : start) single.lanes[0].noise_bits[path] = 7;
    single.steps = 0;
    const NamedTensors moved_start = train(single).weights;
    single.steps = 20;
    const Result moved = train(single);
    spread = std::max(spread, loss_gap(moved.seen.rows, right.seen.rows));
    for (const auto& [path, tensor] : start) {
      const std::vector<float>& end = right.weights.at(path).data;
      std::vector<float> from_start = moved.weights.at(path).data;
      for (size_t i = 0; i < from_start.size(); ++i) {
        from_start[i] += tensor.data[i] - moved_start.at(path).data[i];
      }
      const double distance = norm(from_start, end) / norm(end, tensor.data);
      furthest[path] = std::max(furthest[path], distance);
    }
  }
  EXPECT_GT(spread, 0.0);
  EXPECT_DOUBLE_EQ(twins->spread, spread);
  for (const std::string path : {"fc1.weight", "fc2.weight", "fc3.weight"}) {
    EXPECT_NEAR(row(twins->movements, Of::weight, path).error, furthest.at(path),
                1e-4 * furthest.at(path))
        << path;
  }

  const std::vector<Deviation> rows =
      rows_beside(*twins, run.steps(1), run.steps(0), run.deviations(1));
  const Deviation& loss = row(rows, Of::training, "");
  EXPECT_EQ(loss.step, 20);
  EXPECT_DOUBLE_EQ(loss.spread, spread);
  EXPECT_DOUBLE_EQ(loss.error, loss_gap(run.steps(1), run.steps(0)));
  const Deviation& weight = row(rows, Of::weight, "fc2.weight");
  const Deviation& before = row(run.deviations(1), Of::weight, "fc2.weight");
  EXPECT_EQ(weight.step, before.step);
  EXPECT_EQ(weight.error, before.error) << "what was recorded of the lane stays";
  EXPECT_EQ(weight.ratio, before.ratio);
  EXPECT_TRUE(std::isnan(before.spread));
  EXPECT_NEAR(weight.spread, furthest.at("fc2.weight"), 1e-4 * furthest.at("fc2.weight"));
}

TEST(Twins, OfARunThatEndedEarlyAreAsLong) {
  const TrainConfig sgd = beside_float32("mixed_float16", 20, "sgd:lr=0.1");
  const RunView run = recorded_run(sgd);
  TwinRequest request = request_of(sgd, run);
  request.recorded_reference.resize(8);
  request.steps = 8;
  const std::optional<Twins> twins = train_twins(request, data(), {}, kNever);
  ASSERT_TRUE(twins);
  EXPECT_EQ(twins->steps, 8);
  EXPECT_EQ(row(twins->movements, Of::weight, "fc1.weight").step, 8);
}

TEST(Twins, OfATrainingThatDoesNotRepeatShowNothing) {
  const TrainConfig sgd = beside_float32("mixed_float16", 6, "sgd:lr=0.1");
  TwinRequest request = request_of(sgd, recorded_run(sgd));
  request.recorded_reference[3].loss = std::nextafter(request.recorded_reference[3].loss, 9.0);
  try {
    train_twins(request, data(), {}, kNever);
    ADD_FAILURE() << "nothing thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), StartsWith("the training is not repeatable: at step 3 the loss of "
                                     "float32 is "));
  }
  const std::atomic<bool> now{true};
  EXPECT_FALSE(train_twins(request, data(), {}, now));
}

/// A run of two lanes of 40 steps whose losses end at `own` and at 1.
RunView run_with(double own, const std::vector<Deviation>& rows) {
  TrainConfig setup = beside_float32("mixed_float16", 1, "sgd");
  RunInfo info = Trainer(setup, data()).describe();
  info.steps_planned = 40;
  RunView run(info, RunStatus::complete);
  for (int64_t step = 0; step < 40; ++step) {
    const double falls = 2.0 - static_cast<double>(step) / 20.0;
    run.add_step(0, {.step = step, .loss = std::max(1.0, falls)});
    run.add_step(1, {.step = step, .loss = std::max(own, falls)});
  }
  run.add_deviation(1, {.step = 0, .of = Of::loss, .n = 1, .error = 0.0, .spread = 0.0});
  for (const Deviation& each : rows) run.add_deviation(1, each);
  return run;
}

Deviation loss_at_the_end(double error, double spread) {
  return {.step = 40, .of = Of::training, .n = 1, .error = error, .spread = spread};
}

Deviation movement(double error, double ratio, double spread = std::nan("")) {
  return {.step = 40,
          .of = Of::weight,
          .name = "fc1.weight",
          .n = 9,
          .error = error,
          .ratio = ratio,
          .spread = spread};
}

TEST(Twins, AreTrainedWhereTheyCanMatter) {
  EXPECT_FALSE(twins_may_matter(run_with(1.0, {}), 1)) << "nothing is wrong";
  EXPECT_FALSE(twins_may_matter(run_with(1.0, {}), 0)) << "it is the reference";
  EXPECT_TRUE(twins_may_matter(run_with(1.05, {}), 1)) << "5% could not be checked";
  EXPECT_TRUE(twins_may_matter(run_with(1.3, {}), 1)) << "30% may be right";
  EXPECT_FALSE(twins_may_matter(run_with(std::nan(""), {}), 1)) << "NaN is not";
  EXPECT_FALSE(twins_may_matter(run_with(1.3, {loss_at_the_end(0.3, 0.0)}), 1)) << "they were";
  const Deviation wrong{.step = 0,
                        .of = Of::gradient,
                        .name = "fc1.weight",
                        .n = 9,
                        .error = 0.9,
                        .ratio = 0.1,
                        .spread = 0.0};
  EXPECT_FALSE(twins_may_matter(run_with(1.3, {wrong}), 1)) << "it is broken anyway";
}

TEST(Twins, MoreAreTrainedJustOutsideTheirSpread) {
  EXPECT_FALSE(more_twins_may_matter(run_with(1.3, {loss_at_the_end(0.3, 0.2)}), 1)) << "inside";
  EXPECT_TRUE(more_twins_may_matter(run_with(1.3, {loss_at_the_end(0.3, 0.05)}), 1));
  EXPECT_FALSE(more_twins_may_matter(run_with(1.3, {loss_at_the_end(0.3, 0.02)}), 1)) << "far out";
  EXPECT_FALSE(more_twins_may_matter(run_with(std::nan(""), {}), 1));
  Twins twins{.reference = {},
              .spread = 0.1,
              .movements = {movement(0.2, 1.1)},
              .steps = 4,
              .seconds = 1.0};
  twins.moved.resize(2);
  Twins others{.reference = {},
               .spread = 0.3,
               .movements = {movement(0.1, 0.5)},
               .steps = 4,
               .seconds = 2.0};
  others.moved.resize(2);
  add_twins(twins, std::move(others));
  EXPECT_EQ(twins.spread, 0.3);
  EXPECT_EQ(twins.moved.size(), 4u);
  EXPECT_EQ(twins.seconds, 3.0);
  ASSERT_EQ(twins.movements.size(), 1u);
  EXPECT_EQ(twins.movements[0].error, 0.2) << "the larger one";
  EXPECT_EQ(twins.movements[0].ratio, 0.5) << "further from 1";
}

TEST(Twins, MakeALossRightOrWrong) {
  const auto state = [](double own, const std::vector<Deviation>& rows) {
    return std::string(verdict_name(make_report(run_with(own, rows)).verdict.state));
  };
  EXPECT_EQ(state(1.3, {}), "broken");
  EXPECT_EQ(state(1.3, {loss_at_the_end(0.3, 0.2)}), "healthy");
  EXPECT_EQ(state(1.05, {}), "healthy");
  EXPECT_EQ(state(1.05, {loss_at_the_end(0.05, 0.001)}), "attention");
  const double endless = std::numeric_limits<double>::infinity();
  EXPECT_EQ(state(1.3, {loss_at_the_end(0.3, endless)}), "inconclusive");
}

// For a movement of (1, 0): (1, 0.33) has an error of 0.33 and a ratio of sqrt(1 + 0.33^2) = 1.053.
TEST(Twins, ShowWhichMovementsAreWrong) {
  const auto harm = [](const Deviation& moved) {
    const RunView run = run_with(1.0, {loss_at_the_end(0.0, 0.001), moved});
    return harm_of(LaneFacts(run, 1)).items;
  };
  EXPECT_TRUE(harm(movement(0.33, std::hypot(1.0, 0.33), 0.01)).empty())
      << "it went float32's whole way, and sideways where float32 does not go";
  EXPECT_FALSE(harm(movement(0.5, 0.5, 0.01)).empty()) << "half the way";
  EXPECT_TRUE(harm(movement(0.5, 0.5, 0.3)).empty()) << "twins do not go it either";
  EXPECT_FALSE(harm(movement(std::sqrt(2.0), 1.0, 0.01)).empty()) << "as far, to the side";
  EXPECT_TRUE(harm(movement(2.0, std::sqrt(5.0), 0.01)).empty()) << "twice as far to the side";
  EXPECT_FALSE(harm(movement(4.0, std::sqrt(17.0), 0.01)).empty()) << "four times";
  EXPECT_FALSE(harm(movement(2.4, 2.2, 0.01)).empty())
      << "0.5 (1 + 2.2^2 - 2.4^2) = 0.04 of the way, however long it is";
}

// The loss scale costs the first of four steps, so at most three quarters of the movement are
// possible.
TEST(Twins, AShortSearchForTheLossScaleIsNoHarm) {
  const auto harm = [](bool skips) {
    RunView run(run_with(1.0, {}).info(), RunStatus::complete);
    for (int64_t step = 0; step < 4; ++step) {
      run.add_step(0, {.step = step, .loss = 1.0});
      run.add_step(1, {.step = step, .loss = 1.0, .skipped = skips && step == 0});
    }
    run.add_deviation(1, movement(0.6, 0.4));
    return harm_of(LaneFacts(run, 1)).items;
  };
  EXPECT_TRUE(harm(true).empty());
  EXPECT_FALSE(harm(false).empty());
}

TEST(Twins, AdviceThatWasTriedInVainIsTold) {
  const auto text = [](bool cures) {
    RunView run = run_with(1.3, {loss_at_the_end(0.3, 0.001)});
    Proof proof;
    proof.lane = "mixed_float16";
    proof.trials = {
        {.name = "mixed_float16", .gap = 0.3},
        {.name = "advised", .kind = Trial::Kind::advised, .gap = 0.25, .passes = cures}};
    proof.holds = cures;
    run.set_proof(1, proof_json(proof));
    return make_report(run).verdict.text;
  };
  EXPECT_THAT(text(false), HasSubstr("The advised change was tested and did not help."));
  EXPECT_THAT(text(true), testing::Not(HasSubstr("did not help")));
}

TEST(Twins, AProofThatRefutesAnAlarmMakesItARemark) {
  const auto states = [](const std::vector<Deviation>& rows, bool passes) {
    RunView run = run_with(1.3, rows);
    Proof proof;
    proof.trials = {{.name = "mixed_float16", .gap = 0.005, .passes = passes}};
    run.set_proof(1, proof_json(proof));
    return std::string(verdict_name(make_report(run).verdict.state));
  };
  EXPECT_EQ(states({}, false), "broken");
  EXPECT_EQ(states({}, true), "healthy");
  EXPECT_EQ(states({movement(0.5, 0.5)}, true), "healthy") << "unproven, too";
  Deviation average = movement(0.5, 0.5);
  average.of = Of::average;
  EXPECT_EQ(states({average}, true), "attention") << "which no loss shows";
  EXPECT_EQ(states({movement(0.4, 0.6, 0.01)}, true), "attention") << "twins have shown that";
}

// With such a high learning rate, small differences grow until correct trainings have little in
// common.
TEST(Twins, ChaosIsNoHarm) {
  TrainConfig wild = beside_float32("mixed_bfloat16", 60, "sgd:lr=1");
  const RunView run = recorded_run(wild);
  ASSERT_TRUE(twins_may_matter(run, 1))
      << "its loss ends at " << run.steps(1).back().loss << ", " << run.steps(0).back().loss;
  const std::optional<Twins> twins = train_twins(request_of(wild, run), data(), {}, kNever);
  ASSERT_TRUE(twins);
  EXPECT_FALSE(harm_of(LaneFacts(run, 1)).items.empty()) << "without twins it is an alarm";
  EXPECT_GT(twins->spread, 0.02);
  const std::vector<Deviation> rows =
      rows_beside(*twins, run.steps(1), run.steps(0), run.deviations(1));
  const RunView judged = with_rows(run, rows);
  EXPECT_FALSE(twins_may_matter(judged, 1));
  const Harm harm = harm_of(LaneFacts(judged, 1));
  EXPECT_TRUE(harm.items.empty()) << harm.items.front().text;
  EXPECT_TRUE(harm.unchecked.empty());
}

TEST(Twins, OneSkipsTheStepsThatTheLaneSkipped) {
  const TrainConfig sgd = beside_float32("mixed_bfloat16", 20, "sgd:lr=0.05,momentum=0.9");
  TwinRequest request = request_of(sgd, recorded_run(sgd));
  request.skips = {3};
  std::optional<Twins> twins = train_twins(request, data(), {}, kNever);
  ASSERT_TRUE(twins);
  ASSERT_EQ(twins->moved.size(), static_cast<size_t>(kTwins) + 1);
  for (size_t i = 0; i < 20; ++i) {
    const StepRow &skipping = twins->moved.back()[i], &usual = twins->reference[i];
    EXPECT_EQ(skipping.skipped, i == 3) << i;
    EXPECT_EQ(skipping.loss == usual.loss, i <= 3) << i;
  }
  EXPECT_GE(twins->spread, loss_gap(twins->moved.back(), twins->reference));

  // A training that skips every step has the same losses as one whose updates are too small to
  // change any weight.
  TrainConfig still = sgd;
  still.optimizer = parse_optimizer("sgd:lr=1e-38");
  const RunView initial = recorded_run(still);
  for (int64_t step = 0; step < 20; ++step) request.skips.insert(step);
  twins = train_twins(request, data(), {}, kNever);
  ASSERT_TRUE(twins);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(twins->moved.back()[i].loss, initial.steps(0)[i].loss) << i;
  }
}

}  // namespace
}  // namespace halfscope::test
