// SPDX-License-Identifier: MIT
// Data-parallel ranks on the bodies of the GPU kernels: ranks that share one program, and ranks
// that exchange messages. Both train with the bits of the emulator's ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/exchange/exchange_plan.h"
#include "core/lower/lower.h"
#include "gpu/backends.h"
#include "tests/gpu/lockstep.h"
#include "tests/gpu/small_network.h"
#include "tests/train/process_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: trainings of these tests

class Ranks : public OnCandidate {};

/// How gradients are summed, and a loss scale with which the first steps overflow.
struct Recipe {
  const char *reduce, *scale;
};
const Recipe kRecipes[] = {
    {"ring", "dynamic:4e6"},
    {"ring:format=bf16,average=after", "dynamic:4e6"},
    {"tree:format=bf16", "dynamic:4e6"},
    {"tree:format=fp16,average=after", "dynamic:5e5"},
    {"halving:format=e5m2", "dynamic:4e6"},
    {"halving:average=after", "dynamic:5e5"},
    {"all-to-all:format=bf16", "dynamic:4e6"},
    {"all-to-all:format=e4m3fn,average=after", "dynamic:8e3"},
};

TrainConfig training(const Recipe& recipe) {
  TrainConfig setup = config(kMlp, "mixed_float16", recipe.scale);
  setup.reduction = parse_reduction(recipe.reduce);
  setup.batch = 24;
  setup.steps = 8;
  setup.every = 3;  // others are not recorded
  return setup;
}

TEST_P(Ranks, OfProcessesTrainWithTheBitsOfTheSimulation) {
  for (const Recipe& recipe : kRecipes) {
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(std::string(recipe.reduce) + ", " + std::to_string(ranks) + " ranks");
      expect_recovery(expect_simulated(training(recipe), ranks, data(), &candidate()));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Ranks, OfProcessesCompareLanesAndEvaluate) {
  TrainConfig setup = training(kRecipes[1]);
  setup.lanes.insert(setup.lanes.begin(), lane(preset_plan("float32").value(), "none"));
  setup.steps = 3;
  setup.micro_batches = 2;
  setup.clip_norm = 0.5;
  setup.every = 1;
  setup.evaluate = true;
  setup.evaluate_every = 2;
  setup.errors.enabled = true;
  expect_simulated(setup, 2, data(), &candidate());
}

/// Two channels of 8 x 8, for small_network().
const Dataset& images() {
  static const Dataset set = [] {
    Dataset images{"images", {2, 8, 8}, 10, {}, {}, {}, {}};
    for (Split* split : {&images.train, &images.test}) {
      const Split all = make_split(24, 16, split == &images.train ? 5 : 6);
      split->labels = all.labels;
      for (size_t i = 0; i < all.pixels.size(); ++i) {
        if (i % 256 < 128) split->pixels.push_back(all.pixels[i]);
      }
    }
    return images;
  }();
  return set;
}

/// Running statistics are rank 0's, and delayed scales remember the largest magnitude on any rank.
TEST_P(Ranks, OfProcessesShareBuffersAndScaleHistories) {
  TrainConfig setup = config("", "mixed_float16", "dynamic:4096");
  setup.build = [](int64_t batch) { return small_network(batch); };
  setup.batch = 8;
  setup.lanes.push_back(lane(preset_plan("fp8_delayed").value(), "none"));
  setup.evaluate = true;
  expect_simulated(setup, 2, images(), &candidate());
}

TEST_P(Ranks, OfOneProgramTrainWithTheBitsOfTheEmulator) {
  for (const Recipe& recipe : {kRecipes[1], kRecipes[3], kRecipes[4], kRecipes[7],
                               Recipe{"ring:format=fp16,vote=one", "dynamic:1e6"}}) {
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(std::string(recipe.reduce) + ", " + std::to_string(ranks) + " ranks");
      TrainConfig setup = training(recipe);
      setup.ranks = ranks;
      Trained expected, found;
      train_into(setup, data(), expected);
      setup.lanes[0].backend = &candidate();
      train_into(setup, data(), found);
      expect_same_weights(found.weights[0], expected.weights[0]);
      expect_same_events(found.sink, expected.sink);
      if (HasFailure()) return;
    }
  }
}

/// Every value of these operators, in recorded and in plain steps.
TEST_P(Ranks, ReduceStacksAsTheEmulatorDoes) {
  for (const char* preset : {"float32", "mixed_float16", "bfloat16"}) {
    for (const bool exchanged : {false, true}) {
      SCOPED_TRACE(std::string(preset) + (exchanged ? ", exchanged" : ""));
      TrainingSpec spec{parse_optimizer("sgd"), 1};
      spec.ranks = 3;
      spec.exchanged = exchanged;
      spec.reduction = parse_reduction("ring:format=bf16");
      const Executable exe = lower(small_network(kBatch), preset_plan(preset).value(), spec);
      Lockstep lanes(exe, candidate());
      const NamedTensors weights = initial_weights(small_network(kBatch).graph, 1);
      for (const Variable& variable : exe.graph.variables()) {
        const auto found = weights.find(variable.path);
        if (found == weights.end()) continue;
        lanes.write(variable.value, std::span<const float>(found->second.data));
      }
      lanes.write_scalar(exe.loss_scale, 512.0);
      lanes.run(Entry::begin, true);
      for (int rank = 0; rank < (exchanged ? 1 : 3); ++rank) {
        lanes.write_scalar(exe.rank, rank);
        lanes.write(exe.input, std::span<const float>(noise(kBatch * 2 * 64, 10 + rank)));
        lanes.write(exe.labels, std::span<const int32_t>(std::vector<int32_t>{3, 9, 0, 1, 5, 5}));
        lanes.run(Entry::grad, true);
        lanes.run(Entry::accumulate, true);
        if (HasFailure()) return;
      }
      std::vector<float> takes_part(exchanged ? 1 : 3, 1.0f);
      if (!exchanged) takes_part[1] = 0.0f;
      lanes.write(exe.rank_takes_part, std::span<const float>(takes_part));
      for (const ReducedGradient& each : exe.reduced) {
        if (!exchanged) break;
        const int64_t n = element_count(exe.graph.value(each.mean).shape);
        lanes.write(each.mean, std::span<const float>(noise(n, 77)));
      }
      lanes.run(Entry::norm, true);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, Ranks,
                         testing::Values(Candidate::host, Candidate::shuffled, Candidate::cuda),
                         candidate_name);

}  // namespace
}  // namespace halfscope
