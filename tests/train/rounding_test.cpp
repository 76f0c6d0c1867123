// SPDX-License-Identifier: MIT
// The rounding that a plan names: every tensor is rounded so, and stochastic rounding draws from
// (seed, step, value, element) alone.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/formats/tensor_rounding.h"
#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

/// y = x + x in bf16, rounded as said; the value's id in `value`.
struct Doubling {
  Executable exe;
  ValueId x, y;
  std::unique_ptr<Program> program;

  explicit Doubling(const RoundingChoice& rounding, int64_t n = 2000) {
    Graph& graph = exe.graph;
    x = graph.add_input("x", {n});
    y = graph.add1("Add", "y", {x, x});
    graph.value(y).format = kBf16;
    graph.value(y).rounding = rounding;
    exe.entries[static_cast<size_t>(Entry::grad)] = {0};
    program = emulation_backend().compile(exe);
  }
  std::vector<float> run(const std::vector<float>& in) {
    program->write(x, in);
    program->run(Entry::grad, {});
    return program->read(y).data;
  }
};

std::vector<float> some_values(size_t n) {
  std::vector<float> values;
  for (size_t i = 0; i < n; ++i) {
    const float sign = splitmix64(i) % 2 == 0 ? 1.0f : -1.0f;
    values.push_back(sign * (1.0f + static_cast<float>(splitmix64(i + 77) % 100000) * 1e-5f));
  }
  return values;
}

TEST(PlannedRounding, EveryModeIsTheReference) {
  const std::vector<float> in = some_values(2000);
  for (const RoundingMode mode : kAllRoundingModes) {
    Doubling doubling({mode, 16});
    doubling.program->set_random(5, 3);
    const std::vector<float> out = doubling.run(in);
    for (size_t i = 0; i < in.size(); ++i) {
      const TensorRounding tensor{.mode = mode,
                                  .key = random_key(5, 3, static_cast<uint64_t>(doubling.y)),
                                  .random_bits = 16};
      const Rounding rounding = tensor.element(static_cast<int64_t>(i));
      ASSERT_EQ(out[i], round_to_format(in[i] + in[i], kBf16, rounding).value)
          << rounding_mode_name(mode) << ", element " << i;
    }
  }
}

TEST(PlannedRounding, StochasticDrawsDependOnSeedAndStepAlone) {
  const std::vector<float> in = some_values(20000);
  const auto run = [&](uint64_t seed, uint64_t step, int threads) {
    Doubling doubling({RoundingMode::stochastic}, 20000);
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    doubling.program->set_random(seed, step);
    const std::vector<float> out = doubling.run(in);
    omp_set_num_threads(before);
    return out;
  };
  const std::vector<float> out = run(1, 0, 1);
  EXPECT_EQ(out, run(1, 0, 3));
  EXPECT_NE(out, run(2, 0, 1));
  EXPECT_NE(out, run(1, 1, 1));
  double bias = 0.0, size = 0.0;
  for (size_t i = 0; i < in.size(); ++i) {
    bias += static_cast<double>(out[i]) - 2.0 * static_cast<double>(in[i]);
    size += std::fabs(static_cast<double>(out[i]) - 2.0 * static_cast<double>(in[i]));
  }
  // Errors are within an ulp of 2^-6 and, with a mean of 0, their sum within five deviations.
  EXPECT_LT(std::fabs(bias), 5.0 * 0x1p-6 * std::sqrt(20000.0));
  EXPECT_GT(size, 10.0);
}

/// Weights in bf16 lose most small updates to nearest rounding, and none on average to stochastic.
TEST(PlannedRounding, StochasticWeightsKeepSmallUpdates) {
  const auto moved = [](const RoundingChoice& rounding) {
    Plan plan = preset_plan("bfloat16").value();
    plan.storage_rounding = rounding;
    TrainConfig setup = config(kMlp, "float32", "none");
    setup.optimizer = parse_optimizer("sgd:lr=1e-4");
    setup.lanes = {lane(plan, "none")};
    setup.steps = 20;
    Trainer trainer(setup, data());
    const NamedTensors before = trainer.weights(0);
    const std::atomic<bool> never{false};
    trainer.run(nullptr, {}, never);
    const NamedTensors after = trainer.weights(0);
    int64_t changed = 0;
    for (const auto& [path, tensor] : before) {
      for (size_t i = 0; i < tensor.data.size(); ++i) {
        const float x = after.at(path).data[i];
        EXPECT_EQ(x, round_to_format(x, kBf16).value);
        changed += x != tensor.data[i];
      }
    }
    return changed;
  };
  const int64_t nearest = moved({}), stochastic = moved({RoundingMode::stochastic});
  EXPECT_GT(stochastic, 2 * nearest);
}

TEST(PlannedRounding, ATrainingRepeatsAndResumesWithTheSameBits) {
  Plan plan = preset_plan("bfloat16").value();
  plan.defaults.rounding = plan.storage_rounding = {RoundingMode::stochastic, 20};
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.lanes = {lane(plan, "none")};
  setup.steps = 6;
  setup.micro_batches = 2;
  const std::atomic<bool> never{false};
  std::atomic<bool> stop{false};
  Trainer whole(setup, data()), first(setup, data()), second(setup, data());
  whole.run(nullptr, {}, never);
  first.run(
      nullptr, [&](const std::vector<StepRow>& rows) { stop = rows[0].step == 2; }, stop);
  second.resume(first.checkpoint());
  second.run(nullptr, {}, never);
  expect_same_weights(whole.weights(0), second.weights(0));

  setup.seed = 2;
  Trainer other(setup, data());
  other.run(nullptr, {}, never);
  EXPECT_NE(other.weights(0).at("fc1.weight").data, whole.weights(0).at("fc1.weight").data);
}

}  // namespace
}  // namespace halfscope::test
