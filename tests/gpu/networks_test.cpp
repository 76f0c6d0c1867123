// SPDX-License-Identifier: MIT
// The networks of the GPU benchmarks, small, on the emulator: the first loss is PyTorch's (printed
// by torch_networks.py), and training lowers it.
#include "bench/networks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

std::vector<double> losses(const std::string& name, const std::string& plan, int64_t batch,
                           int64_t steps) {
  const Workload work = workload(name);
  TrainConfig config;
  config.model = name;
  config.build = work.build;
  config.optimizer = work.optimizer;
  config.optimizer.learning_rate = 0.01;
  config.batch = batch;
  config.steps = steps;
  config.shuffle = false;
  config.every = 0;
  config.evaluate = false;
  LaneConfig lane{*preset_plan(plan), {}, &emulation_backend()};
  if (needs_loss_scaling(lane.plan)) lane.scaler = parse_loss_scale("dynamic");
  config.lanes = {lane};
  const Dataset data = work.data(batch);
  Trainer trainer(config, data);
  std::vector<double> result;
  const std::atomic<bool> stop{false};
  trainer.run(
      nullptr, [&](const std::vector<StepRow>& rows) { result.push_back(rows[0].loss); }, stop);
  return result;
}

struct Small {
  const char* name;
  int64_t batch;
  double torch;  ///< PyTorch 2.9.1's loss in float64
};

class Networks : public testing::TestWithParam<Small> {};

TEST_P(Networks, TheFirstLossIsPyTorchsAndItFalls) {
  const Small& small = GetParam();
  const std::vector<double> fp32 = losses(small.name, "float32", small.batch, 12);
  ASSERT_EQ(fp32.size(), 12u);
  EXPECT_NEAR(fp32.front(), small.torch, 2e-6 * small.torch);
  EXPECT_LT(fp32.back(), 0.9 * fp32.front());
}

TEST_P(Networks, MixedPrecisionTrainsThem) {
  const Small& small = GetParam();
  const std::vector<double> mixed = losses(small.name, "mixed_float16", small.batch, 12);
  EXPECT_NEAR(mixed.front(), small.torch, 5e-3 * small.torch);
  EXPECT_LT(mixed.back(), 0.9 * mixed.front());
}

INSTANTIATE_TEST_SUITE_P(
    All, Networks,
    testing::Values(Small{"resnet50:image=64:width=8:depth=1:classes=10", 4, 2.246304877},
                    Small{"gpt2:layers=2:width=32:heads=2:sequence=16:vocabulary=61", 2,
                          4.126484290}),
    [](const auto& each) { return std::string(each.index == 0 ? "resnet50" : "gpt2"); });

TEST(Networks, RejectSizesThatTheyDoNotHave) {
  EXPECT_THROW(workload("gpt2:colour=3"), Error);
  EXPECT_THROW(workload("resnet50:width=0"), Error);
  EXPECT_THROW(workload("gpt2:width=30:heads=4"), Error);
  EXPECT_THROW(workload("resnet49"), Error);
}

}  // namespace
}  // namespace halfscope
