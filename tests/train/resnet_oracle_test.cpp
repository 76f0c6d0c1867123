// SPDX-License-Identifier: MIT
// ResNet-20 on CIFAR-10 with published weights: the accuracy that is published for them, and
// PyTorch's training in float64 step by step (tests/oracle/resnet20_torch.py). Skips without data.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/data/npz.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: helpers of these tests
namespace fs = std::filesystem;

fs::path test_data() {
  const char* const folder = std::getenv("HALFSCOPE_TEST_DATA");
  return folder != nullptr ? fs::path(folder)
                           : fs::path(HALFSCOPE_SOURCE_DIR) / ".." / "shared" / "data";
}
fs::path weights_file() { return test_data() / "models" / "resnet20_cifar10_f32.npz"; }
fs::path cifar_folder() { return test_data() / "cifar10-subset"; }

#define SKIP_WITHOUT_CIFAR()                                                                    \
  if (!fs::exists(weights_file()) || !fs::exists(cifar_folder())) {                             \
    GTEST_SKIP() << "no CIFAR-10 or weights in " << test_data() << "; set HALFSCOPE_TEST_DATA"; \
  }

TrainConfig published(const std::string& plan) {
  TrainConfig setup = config("resnet20", plan, "none");
  setup.init = read_npz(weights_file());
  setup.shuffle = false;
  setup.batch = 32;
  setup.every = 0;
  setup.evaluate = true;
  return setup;
}

// 91.5 % of the first 1000 test images in fp32; in fp16 a few images may fall to the other side.
TEST(ResNetOracle, PublishedWeightsHaveTheirAccuracy) {
  SKIP_WITHOUT_CIFAR();
  const Dataset set = load_cifar10(cifar_folder());
  EXPECT_EQ(set.train.size(), 4000);
  EXPECT_EQ(set.test.size(), 1000);
  for (const char* plan : {"float32", "mixed_float16"}) {
    TrainConfig setup = published(plan);
    setup.steps = 0;
    const Result result = train(setup, set);
    EXPECT_NEAR(result.seen.evals.at(0).accuracy, 0.915,
                plan == std::string("float32") ? 1e-6 : 0.003)
        << plan;
  }
}

TEST(ResNetOracle, TrainsAsPyTorchDoes) {
  SKIP_WITHOUT_CIFAR();
  Dataset set = load_cifar10(cifar_folder());
  constexpr size_t kTestImages = 128;
  set.test.labels.resize(kTestImages);
  set.test.pixels.resize(kTestImages * 3 * 32 * 32);
  TrainConfig setup = published("float64");
  setup.optimizer = parse_optimizer("sgd:lr=0.05,momentum=0.9,weight_decay=1e-4");
  setup.steps = 3;
  const Result result = train(setup, set);
  std::ifstream file(fs::path(HALFSCOPE_SOURCE_DIR) / "tests/oracle/vectors/resnet20_torch.csv");
  std::string line;
  std::getline(file, line);
  size_t step = 0;
  // The float64 backend takes scalars (the rate, 1 / scale) as exact as they are given, and PyTorch
  // computes in double throughout: what differs is the order of sums.
  constexpr double kTolerance = 1e-9;
  while (std::getline(file, line)) {
    std::istringstream row(line);
    std::string name, first, second;
    std::getline(row, name, ',');
    std::getline(row, first, ',');
    std::getline(row, second, ',');
    if (name == "eval") {
      EXPECT_NEAR(result.seen.evals.at(0).loss, std::stod(first), kTolerance);
      EXPECT_NEAR(result.seen.evals.at(0).accuracy, std::stod(second), 1e-6);
      continue;
    }
    ASSERT_LT(step, result.seen.rows.size());
    EXPECT_NEAR(result.seen.rows[step].loss, std::stod(first), kTolerance) << name;
    EXPECT_NEAR(result.seen.rows[step].grad_norm, std::stod(second), kTolerance) << name;
    ++step;
  }
  EXPECT_EQ(step, 3u);
}

}  // namespace
}  // namespace halfscope
