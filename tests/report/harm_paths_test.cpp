// SPDX-License-Identifier: MIT
// Harm where trainings take different paths: variables of few numbers, and long searches for a loss
// scale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/harm.h"
#include "tests/report/harm_run.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Of = Deviation::Of;

/// Adds how far all weights ended from the reference's.
void add_whole(RunView& run, double error) {
  run.add_deviation(1, {.step = 100, .of = Of::weight, .n = 1000, .error = error, .ratio = 1.0});
}

// The only number of a variable may end anywhere on another path. EfficientDet's fusion weights in
// float32, started 5e-4 apart, moved between 0.02 and 0.17.
TEST(HarmPaths, ASingleNumberIsNoMeasureOfAPath) {
  const auto items = [](double apart, int64_t numbers, double ratio) {
    RunView run = trained_beside_float32(kFp16Lane);
    add_whole(run, apart);
    run.add_deviation(1, {.step = 100,
                          .of = Of::weight,
                          .name = "share.weight",
                          .n = numbers,
                          .error = std::max(1.0, ratio),
                          .ratio = ratio});
    return harm_of(LaneFacts(run, 1)).items;
  };
  EXPECT_THAT(items(1.0, 1, 0.045), IsEmpty());
  EXPECT_THAT(items(1.0, 1, 11.9), IsEmpty());
  EXPECT_THAT(items(1.0, 1, 0.0), SizeIs(1)) << "it never moved";
  EXPECT_THAT(items(1.0, 64, 0.045), SizeIs(1)) << "that many numbers do not agree by chance";
  EXPECT_THAT(items(1.0, 64, 11.9), SizeIs(1));
  EXPECT_THAT(items(0.1, 1, 0.045), SizeIs(1)) << "on the same path";
}

// Twelve of 24 steps skipped, and a loss that is three times float32's, as trainings that skip
// these steps have: that proves nothing.
TEST(HarmPaths, ALongSearchForAScaleLeavesTheRunInconclusive) {
  const auto harm = [](int64_t skipped, int64_t steps, double factor) {
    RunInfo info =
        harm_training({{kReferenceLane, falling_loss}, {kFp16Lane, falling_loss}}, 0).info();
    info.lanes[1].loss_scale = "dynamic:65536";
    RunView run(info, RunStatus::complete);
    for (int64_t step = 0; step < steps; ++step) {
      run.add_step(0, {.step = step, .loss = falling_loss(step)});
      run.add_step(1,
                   {.step = step,
                    .loss = factor * falling_loss(step),
                    .loss_scale = std::ldexp(65536.0, -static_cast<int>(std::min(step, skipped))),
                    .skipped = step < skipped});
    }
    run.add_deviation(1, {.step = steps, .of = Of::training, .n = 1, .spread = 3.0});
    add_whole(run, 0.1);
    return harm_of(LaneFacts(run, 1));
  };
  EXPECT_THAT(harm(12, 24, 3.3).items, IsEmpty());
  EXPECT_THAT(harm(12, 24, 3.3).inconclusive, HasSubstr("It skipped 12 of 24 steps"));
  EXPECT_THAT(harm(11, 24, 3.3).inconclusive, HasSubstr("It skipped 11 of 24 steps"));
  EXPECT_EQ(harm(12, 100, 3.3).inconclusive, "") << "the rest of the run is long enough";
  EXPECT_EQ(harm(12, 24, 1.05).inconclusive, "");
}

}  // namespace
}  // namespace halfscope::test
