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

const char* const kRecipes[] = {
    "ring",
    "ring:format=bf16,average=after",
    "tree:format=bf16",
    "tree:format=fp16,average=after",
    "halving:format=e5m2",
    "halving:average=after",
    "all-to-all:format=bf16",
    "all-to-all:format=e4m3fn,average=after",
};

/// Overflows in the first steps, which all ranks skip, then recovers. One step in two is recorded.
TrainConfig overflowing(const std::string& recipe) {
  TrainConfig setup = config(kMlp, "mixed_float16", "dynamic:1e9");
  setup.reduction = parse_reduction(recipe);
  setup.batch = 24;
  setup.steps = 6;
  setup.every = 2;
  return setup;
}

TEST_P(Ranks, OfProcessesTrainWithTheBitsOfTheSimulation) {
  for (const char* recipe : kRecipes) {
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(std::string(recipe) + ", " + std::to_string(ranks) + " ranks");
      expect_simulated(overflowing(recipe), ranks, data(), &candidate());
      if (HasFailure()) return;
    }
  }
}

TEST_P(Ranks, OfProcessesCompareLanesAndEvaluate) {
  TrainConfig setup = overflowing("ring:format=bf16");
  setup.lanes.insert(setup.lanes.begin(), lane(preset_plan("float32").value(), "none"));
  setup.lanes.push_back(lane(preset_plan("bfloat16").value(), "none"));
  setup.micro_batches = 2;
  setup.clip_norm = 0.5;
  setup.every = 1;
  setup.evaluate = true;
  setup.evaluate_every = 3;
  setup.errors.enabled = true;
  expect_simulated(setup, 2, data(), &candidate());
}

/// Running statistics are rank 0's, and delayed scales remember the largest magnitude on any rank.
TEST_P(Ranks, OfProcessesShareBuffersAndScaleHistories) {
  TrainConfig setup = config("lenet", "mixed_float16", "dynamic:4096");
  setup.model = "resnet20";
  setup.batch = 8;
  setup.steps = 2;
  setup.lanes.push_back(lane(preset_plan("fp8_delayed").value(), "none"));
  expect_simulated(setup, 2, small_images(), &candidate());
}

TEST_P(Ranks, OfOneProgramTrainWithTheBitsOfTheEmulator) {
  for (const char* recipe : {"ring:format=bf16", "tree:format=e5m2,average=after", "halving",
                             "all-to-all:format=fp16", "ring:format=fp16,vote=one"}) {
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(std::string(recipe) + ", " + std::to_string(ranks) + " ranks");
      TrainConfig setup = overflowing(recipe);
      setup.ranks = ranks;
      Trained expected, found;
      run(setup, data(), expected);
      setup.lanes[0].backend = &candidate();
      run(setup, data(), found);
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
