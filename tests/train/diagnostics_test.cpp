// SPDX-License-Identifier: MIT
// Diagnostics of accumulators at the steps at which tensors are compared.
#include <set>

#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

TrainConfig two_lanes(const std::string& accumulation) {
  TrainConfig setup = config(kMlp, "float32", "none");
  Plan plan = preset_plan("mixed_bfloat16").value();
  plan.defaults.accumulation = parse_accumulation(accumulation).value();
  setup.lanes.push_back(lane(plan, "none"));
  setup.lanes.push_back(lane(preset_plan("float64").value(), "none"));
  setup.steps = 5;
  setup.errors.enabled = true;
  return setup;
}

TEST(SumDiagnostics, EveryTensorOfSumsAtComparedSteps) {
  const Result result = train(two_lanes("format"));
  std::set<int64_t> steps, compared;
  std::set<std::pair<int, int>> sites;
  int64_t swamped[3] = {};
  for (const auto& [lane, row] : result.seen.diagnostics) {
    steps.insert(row.step);
    sites.insert({lane, row.site});
    swamped[lane] += row.counts.swamped;
    EXPECT_GT(row.counts.sums, 0);
    EXPECT_GT(row.counts.products, 0);
    EXPECT_LE(row.counts.swamped, row.counts.products);
    EXPECT_GT(row.counts.largest, 0.0);
    EXPECT_EQ(row.counts.overflowed, 0);
    EXPECT_EQ(row.accumulation,
              Accumulation(lane == 0 ? Accumulation::fp32 : Accumulation::format));
  }
  for (const auto& [lane, error] : result.seen.errors) compared.insert(error.step);
  EXPECT_EQ(steps, compared);
  // Three layers: outputs and gradients of weights, and of the inputs of two. None of float64.
  EXPECT_EQ(sites.size(), 2u * 8u);
  EXPECT_LT(swamped[0] * 100, swamped[1]) << "a bf16 sum loses more than an fp32 sum";
  EXPECT_GT(swamped[1], 0);
  EXPECT_EQ(swamped[2], 0);
}

TEST(SumDiagnostics, LeaveTrainingAsItIs) {
  const TrainConfig setup = two_lanes("format:promote=16");
  TrainConfig without = setup;
  without.errors.enabled = false;
  const Result watched = train(setup), plain = train(without);
  EXPECT_FALSE(watched.seen.diagnostics.empty());
  EXPECT_TRUE(plain.seen.diagnostics.empty());
  expect_same_weights(watched.weights, plain.weights);
}

TEST(SumDiagnostics, NoneWhereTheyMeanNothing) {
  for (const char* how : {"kahan", "pairwise", "format:rounding=stochastic"}) {
    const auto seen = train(two_lanes(how)).seen.diagnostics;
    EXPECT_FALSE(seen.empty()) << "the fp32 lane beside it has them";
    for (const auto& [lane, row] : seen) EXPECT_EQ(lane, 0) << how;
  }
}

}  // namespace
}  // namespace halfscope::test
