// SPDX-License-Identifier: MIT
// Training with sums that round stochastically after every term.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "core/policy/policy.h"
#include "emulation/isa.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

/// Descends on (y - target)^2 of y = sum of x * w, 4096 terms, all x = 1, with fp32 weights and the
/// sum taken in bf16 as named. Returns what the weights add up to in double.
double trained_sum(const std::string& accumulation, double target) {
  constexpr int64_t kTerms = 4096;
  Executable exe;
  Graph& graph = exe.graph;
  const ValueId x = graph.add_input("x", {1, kTerms}), w = graph.add_input("w", {kTerms, 1});
  const ValueId y = graph.add1("Gemm", "y", {x, w});
  graph.value(y).format = kBf16;
  graph.node(0).plan.accumulation = parse_accumulation(accumulation).value();
  exe.entries[static_cast<size_t>(Entry::grad)] = {0};
  const std::unique_ptr<Program> program = emulation_backend().compile(exe);
  std::vector<float> weights(kTerms, 0.0f);
  program->write(x, std::vector<float>(kTerms, 1.0f));
  for (uint64_t step = 0; step < 200; ++step) {
    program->set_random(1, step);
    program->write(w, weights);
    program->run(Entry::grad, {});
    const float error = program->read(y).data[0] - static_cast<float>(target);
    for (float& weight : weights) weight -= 0.1f / kTerms * error;
  }
  double sum = 0.0;
  for (const float weight : weights) sum += static_cast<double>(weight);
  return sum;
}

/// Next to a sum of 512, a bf16 term below 1 is lost to nearest even. So the weights must grow
/// until their terms are no longer lost, far beyond their correct values.
TEST(RoundedSumTraining, StochasticSumsDoNotStandStill) {
  const double target = 1000.0;
  EXPECT_NEAR(trained_sum("fp32", target), target, 0.01 * target);
  for (const char* kind : {"format", "format-mul-add"}) {
    const std::string how = kind;
    EXPECT_GT(trained_sum(how, target), 4.0 * target) << how;
    EXPECT_NEAR(trained_sum(how + ":rounding=stochastic", target), target, 0.2 * target) << how;
    EXPECT_GT(trained_sum(how + ":rounding=toward-zero", target), 4.0 * target) << how;
  }
}

TEST(RoundedSumTraining, SameBitsForThreadsInstructionsAndResumption) {
  Plan plan = preset_plan("bfloat16").value();
  plan.defaults.accumulation = parse_accumulation("format:rounding=stochastic").value();
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.lanes = {lane(plan, "none")};
  setup.micro_batches = 2;
  setup.steps = 4;
  const std::atomic<bool> never{false};
  const auto trained = [&] {
    Trainer trainer(setup, data());
    trainer.run(nullptr, {}, never);
    return trainer.weights(0);
  };
  const NamedTensors expected = trained();
  const Isa isa_before = active_isa();
  const int threads_before = omp_get_max_threads();
  for (const Isa isa : supported_isas()) {
    for (const int threads : {1, 2}) {
      set_active_isa(isa);
      omp_set_num_threads(threads);
      expect_same_weights(trained(), expected);
    }
  }
  set_active_isa(isa_before);
  omp_set_num_threads(threads_before);

  std::atomic<bool> stop{false};
  Trainer first(setup, data()), second(setup, data());
  first.run(
      nullptr, [&](const std::vector<StepRow>& rows) { stop = rows[0].step == 1; }, stop);
  second.resume(first.checkpoint());
  second.run(nullptr, {}, never);
  expect_same_weights(second.weights(0), expected);

  plan.defaults.accumulation = Accumulation::format;
  setup.lanes = {lane(plan, "none")};
  EXPECT_NE(trained().at("fc1.weight").data, expected.at("fc1.weight").data);
}

}  // namespace
}  // namespace halfscope::test
