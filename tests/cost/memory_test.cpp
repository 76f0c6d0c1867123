// SPDX-License-Identifier: MIT
// Memory of small networks, by hand. Activations of large ones are compared in work_test.cpp.
#include "analysis/cost/memory.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/cost/counted.h"

namespace halfscope {
namespace {

constexpr int64_t kWeights = 3 * 4 + 3 + 2 * 3 + 2;  // of mlp:4-3-2

TEST(Memory, OfSmallBatchesIsLargestWithAllGradients) {
  const MemoryUse use =
      cost_of_training("mlp:4-3-2", "float32", 2, {4}, 2, "sgd:momentum=0.9").memory;
  EXPECT_EQ(use.weights, 4 * kWeights);
  EXPECT_EQ(use.weight_copies, 0);
  EXPECT_EQ(use.gradients, 4 * kWeights);
  EXPECT_EQ(use.optimizer, 4 * kWeights);
  EXPECT_EQ(use.inputs, 4 * (2 * 4 + 2));
  EXPECT_EQ(use.activations, 4 * (2 * 3 + 2 * 2));  // relu1 and the logits
  // While fc1's weight gets its gradient, the last of them: the gradient that it is made from.
  EXPECT_EQ(use.temporary, 4 * 2 * 3);
  EXPECT_EQ(use.peak, use.weights + use.gradients + use.optimizer + use.inputs + use.temporary);
}

TEST(Memory, OfLargeBatchesIsLargestInTheBackwardPass) {
  constexpr int64_t kBatch = 100;
  const MemoryUse use = cost_of_training("mlp:4-3-2", "float32", kBatch, {4}, 2).memory;
  EXPECT_EQ(use.optimizer, 0);
  EXPECT_EQ(use.inputs, 4 * kBatch * (4 + 1));
  // While relu1 is differentiated: its result, the gradients of its result and of its operand, and
  // the gradients of fc2.
  const int64_t relu = 4 * kBatch * 3, fc2 = 4 * (2 * 3 + 2);
  EXPECT_EQ(use.peak, use.weights + use.inputs + 3 * relu + fc2);
  EXPECT_EQ(use.temporary, 2 * relu);
}

TEST(Memory, MixedPrecisionKeepsWeightsAndTheirCopies) {
  const MemoryUse use = cost_of_training("mlp:4-3-2", "mixed_float16", 100, {4}, 2, "adam").memory;
  EXPECT_EQ(use.weights, 4 * kWeights);
  EXPECT_EQ(use.weight_copies, 2 * kWeights);
  EXPECT_EQ(use.gradients, 4 * kWeights);  // as .grad of fp32 weights
  EXPECT_EQ(use.optimizer, 2 * 4 * kWeights);
  EXPECT_EQ(use.activations, 2 * 100 * (4 + 3 + 2));  // with the data in fp16
}

TEST(Memory, WeightsInABufferFormatHaveNoCopies) {
  const MemoryUse use = cost_of_training("mlp:4-3-2", "bfloat16", 100, {4}, 2, "adam").memory;
  EXPECT_EQ(use.weights, 2 * kWeights);
  EXPECT_EQ(use.weight_copies, 0);
  EXPECT_EQ(use.gradients, 2 * kWeights);
}

TEST(Memory, OfInferenceIsWhatLivesAtOnce) {
  const Model model = build_network("mlp:4-64-2", 100, {4}, 2);
  const MemoryUse use = memory_of(lower_inference(model, preset_plan("float32").value()));
  EXPECT_EQ(use.gradients, 0);
  EXPECT_EQ(use.optimizer, 0);
  EXPECT_EQ(use.weights, 4 * (64 * 4 + 64 + 2 * 64 + 2));
  EXPECT_EQ(use.activations, 4 * 2 * 100 * 64);  // operand and result of relu1
  EXPECT_EQ(use.peak, use.weights + use.inputs + use.activations);
}

// As a deployed network stores them: nobody keeps fp32 beside what layers read.
TEST(Memory, OfInferenceHasWeightsAsLayersReadThem) {
  const Model model = build_network("mlp:4-64-2", 100, {4}, 2);
  const auto use = [&](const std::string& plan) {
    return memory_of(lower_inference(model, plan_from_json(plan)));
  };
  constexpr int64_t kFirst = 4 * 64, kSecond = 64 * 2, kBiases = 64 + 2;
  const MemoryUse half = memory_of(lower_inference(model, preset_plan("mixed_float16").value()));
  EXPECT_EQ(half.weights, 2 * (kFirst + kSecond + kBiases));
  EXPECT_EQ(half.weight_copies, 0);
  const std::string rule =
      R"({"schema": "halfscope.plan/1", "name": "codes", "rules": [{"path": "fc*", "op": "Gemm",
          "read": "int8", "accumulate": "fp64", "scale": "divide:0.01",
          "second_scale": "channel"}]})";
  const MemoryUse codes = use(rule);
  // One scale in fp32 for each of the 64 and 2 outputs, and one for the activations of each layer.
  EXPECT_EQ(codes.weights, kFirst + kSecond + 4 * kBiases + 4 * (64 + 2) + 4 * 2);
  EXPECT_EQ(codes.weight_copies, 0);
  EXPECT_EQ(codes.peak,
            codes.weights + codes.buffers + codes.inputs + codes.activations + codes.temporary);
  const PlanCost cost("codes", lower_inference(model, plan_from_json(rule)));
  for (const NodeWork& work : cost.work) {  // activations alone are converted
    const Graph& graph = cost.executable.graph;
    if (!work.cast) continue;
    EXPECT_EQ(graph.variable_of(graph.node(work.node).inputs[0]), nullptr);
  }
}

TEST(Memory, LargestBatchIsTheLastThatFits) {
  const auto build = [](int64_t batch) {
    return lower(build_model("lenet", batch, {1, 28, 28}, 10), preset_plan("float32").value(), {});
  };
  constexpr int64_t kBytes = 50'000'000;
  const int64_t largest = largest_batch(build, kBytes);
  EXPECT_LE(memory_of(build(largest)).peak, kBytes);
  EXPECT_GT(memory_of(build(largest + 1)).peak, kBytes);
  EXPECT_EQ(largest_batch(build, 1000), 0);
  // Memory grows by the same amount with each of so many samples, so it can be extrapolated.
  const auto limited = [&](int64_t batch) {
    if (batch > 300) throw Error("too large");
    return build(batch);
  };
  constexpr int64_t kMore = 5'000'000'000;
  EXPECT_EQ(largest_batch(limited, kMore), largest_batch(build, kMore));
  const auto refused = [](int64_t) -> Executable { throw Error("too large"); };
  EXPECT_THROW(largest_batch(refused, kMore), Error);
}

}  // namespace
}  // namespace halfscope
