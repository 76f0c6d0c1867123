// SPDX-License-Identifier: MIT
// Operations and activations beside PyTorch's (tests/oracle/cost_torch.py), and bytes by hand.
#include "analysis/cost/work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/cost/counted.h"

namespace halfscope {
namespace {

struct Counted {
  std::string model;
  int64_t batch = 0;
  Shape sample{};
  int64_t forward = 0, step = 0, saved_fp32 = 0, saved_bf16 = 0;
};

std::vector<Counted> counted_by_torch() {
  std::ifstream file(std::string(HALFSCOPE_SOURCE_DIR) + "/tests/oracle/vectors/cost_torch.csv");
  std::vector<Counted> all;
  std::string line;
  std::getline(file, line);  // the header
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream cells(line);
    Counted next;
    std::string sample;
    cells >> next.model >> next.batch >> sample >> next.forward >> next.step >> next.saved_fp32 >>
        next.saved_bf16;
    std::replace(sample.begin(), sample.end(), 'x', ' ');
    std::istringstream sizes(sample);
    for (int64_t size = 0; sizes >> size;) next.sample.push_back(size);
    all.push_back(next);
  }
  return all;
}

constexpr int64_t kClasses = 10;

TEST(Work, OperationsAreThoseThatPyTorchCounts) {
  const std::vector<Counted> all = counted_by_torch();
  ASSERT_EQ(all.size(), 5u);
  for (const Counted& torch : all) {
    const PlanCost cost =
        cost_of_training(torch.model, "float32", torch.batch, torch.sample, kClasses);
    int64_t forward = 0, step = 0;
    bool grouped = false;
    for (const NodeWork& work : cost.work) {
      step += work.flops;
      if (work.phase == Phase::forward) forward += work.flops;
      grouped = grouped || work.products > 1;
    }
    EXPECT_EQ(forward, torch.forward) << torch.model;
    // PyTorch counts gradients of grouped convolutions too often.
    EXPECT_LE(step, torch.step) << torch.model;
    EXPECT_EQ(step < torch.step, grouped) << torch.model;
  }
}

TEST(Memory, ActivationsAreThoseThatPyTorchKeeps) {
  for (const Counted& torch : counted_by_torch()) {
    const auto kept = [&](const char* plan) {
      const MemoryUse use =
          cost_of_training(torch.model, plan, torch.batch, torch.sample, kClasses).memory;
      return use.activations + use.weight_copies;
    };
    constexpr int64_t kLoss = 4;  // PyTorch's keeps its own normalizer
    EXPECT_EQ(kept("float32"), torch.saved_fp32 - kLoss) << torch.model;
    // PyTorch's loss keeps its softmax in fp32, ours the scores in bf16. Copies that only the
    // forward pass reads are not saved for the backward pass, but exist: of biases, and of the
    // weight of a linear layer that reads the data.
    const bool mlp = torch.model.starts_with("mlp:");
    const int64_t scores = torch.batch * kClasses;
    const int64_t unsaved = mlp ? 784 * 512 + 512 + 512 + kClasses : kClasses;
    EXPECT_EQ(kept("mixed_bfloat16"), torch.saved_bf16 - kLoss - 2 * scores + 2 * unsaved)
        << torch.model;
  }
}

const NodeWork& work_at(const PlanCost& cost, const std::string& layer, const std::string& op) {
  const auto found = std::find_if(cost.work.begin(), cost.work.end(), [&](const NodeWork& work) {
    return work.layer == layer && work.node != kNone &&
           cost.executable.graph.node(work.node).op == op;
  });
  if (found == cost.work.end()) throw std::runtime_error("no " + op + " in " + layer);
  return *found;
}

TEST(Work, BytesAreThoseOfOperandsAndResultsInTheirFormats) {
  const PlanCost fp32 = cost_of_training("mlp:6-4-3", "float32", 5, {6}, 3);
  // x 5x6, w 4x6, b 4, y 5x4.
  EXPECT_EQ(work_at(fp32, "fc1", "Gemm").bytes, 4 * (30 + 24 + 4 + 20));
  EXPECT_EQ(work_at(fp32, "relu1", "Relu").bytes, 4 * (20 + 20));
  EXPECT_EQ(fp32.casts().first, 0);
  const PlanCost fp16 = cost_of_training("mlp:6-4-3", "mixed_float16", 5, {6}, 3);
  EXPECT_EQ(work_at(fp16, "fc1", "Gemm").bytes, 2 * (30 + 24 + 4 + 20));
  EXPECT_EQ(work_at(fp16, "relu1", "Relu").bytes, 2 * (20 + 20));
  // The data, two weights and two biases, from 4 bytes to 2.
  EXPECT_EQ(fp16.casts(), (std::pair<int64_t, int64_t>(5, 6 * (30 + 24 + 4 + 12 + 3))));
}

TEST(Work, TheOptimizerReadsAndWritesWhatItMoves) {
  constexpr int64_t kWeights = 4 * 6 + 4 + 3 * 4 + 3;
  const auto bytes = [&](const char* optimizer) {
    return cost_of_training("mlp:6-4-3", "float32", 5, {6}, 3, optimizer).work.back().bytes;
  };
  constexpr int64_t kScalars = 64;                        // learning rate, loss scale and others
  EXPECT_NEAR(bytes("sgd"), 4 * 3 * kWeights, kScalars);  // w, g; w
  EXPECT_NEAR(bytes("sgd:momentum=0.9"), 4 * 5 * kWeights, kScalars);  // w, g, v; w, v
  EXPECT_NEAR(bytes("adam"), 4 * 7 * kWeights, kScalars);              // w, g, m, v; w, m, v
}

TEST(Work, BlockScaledOperandsAreReadAsCodes) {
  const PlanCost cost = cost_of_training("mlp:64-32-32", "mxfp8", 32, {64}, 32);
  // Codes of one byte, a scale of one byte for each 32 of them, and an fp32 scale of each tensor;
  // the bias and the result in bf16.
  const int64_t codes = 32 * 64 + 32 * 64, scales = codes / 32 + 2 * 4;
  EXPECT_EQ(work_at(cost, "fc1", "Gemm").bytes, codes + scales + 2 * (32 + 32 * 32));
}

}  // namespace
}  // namespace halfscope
