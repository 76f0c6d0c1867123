// SPDX-License-Identifier: MIT
// The operator table as a whole: what every row must say, whatever the operator.
#include <gtest/gtest.h>

#include <set>

#include "core/ops/ops.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using Names = std::set<std::string>;

bool is_one_of(const Names& names, const OpDef& def) { return names.contains(def.name); }

TEST(OpTable, EveryOperatorHasAnAutocastClass) {
  for (const OpDef& def : op_table()) {
    EXPECT_NE(def.autocast, Autocast::unset) << def.name;
    // A policy must place every operator that a network may contain.
    const bool in_networks =
        (*def.domain == '\0' && std::string(def.name) != "Cast") || def.gradient != nullptr;
    if (in_networks) {
      EXPECT_NE(def.autocast, Autocast::internal) << def.name;
    }
  }
}

// The lists of "Autocast Op Reference" in PyTorch's documentation (CUDA), in ONNX's names. ONNX has
// one Pow and one Sum for what PyTorch has several of; all of them are on the same list.
TEST(OpTable, ClassesAreThoseOfPyTorch) {
  const Names low{"Attention", "Conv", "ConvGradInput", "Gemm", "MatMul", "PRelu"};
  const Names fp32{"Acos",
                   "Asin",
                   "CumSum",
                   "Exp",
                   "GroupNormalization",
                   "LayerNormalization",
                   "Log",
                   "LogSoftmax",
                   "MeanSquaredError",
                   "Pow",
                   "Reciprocal",
                   "ReduceSum",
                   "RMSNormalization",
                   "Softmax",
                   "SoftmaxCrossEntropyLoss",
                   "Softplus"};
  for (const OpDef& def : op_table()) {
    EXPECT_EQ(def.autocast == Autocast::low, is_one_of(low, def)) << def.name;
    EXPECT_EQ(def.autocast == Autocast::fp32, is_one_of(fp32, def)) << def.name;
  }
}

TEST(OpTable, MixedPlansPlaceEveryOperatorOfANetwork) {
  const Plan plan = preset_plan("mixed_float16").value();
  for (const OpDef& def : op_table()) {
    const NodePlan node = resolve(plan, "layer", def.name);
    switch (def.autocast) {
      case Autocast::follow:
      case Autocast::promote:
        EXPECT_TRUE(node.follows) << def.name;
        break;
      case Autocast::fp32:
        EXPECT_EQ(node.write, kFp32) << def.name;
        break;
      case Autocast::low:
        EXPECT_EQ(node.write, kFp16) << def.name;
        break;
      case Autocast::internal:
      case Autocast::unset:
        break;
    }
  }
  // Parts of an fp32 tensor stay fp32, and so do numbers made of indices.
  EXPECT_TRUE(resolve(plan, "layer", "Split").follows);
  EXPECT_TRUE(resolve(plan, "layer", "IndexToReal").follows);
}

TEST(OpTable, FieldsAgreeWithEachOther) {
  for (const OpDef& def : op_table()) {
    EXPECT_EQ(def.sums_products(), def.summed_axis != nullptr) << def.name;
    if (def.view) {
      EXPECT_TRUE(def.selects) << def.name;
    }
    if (def.moves.end > def.moves.first) {
      EXPECT_TRUE(def.selects) << def.name;
    }
    if (def.always_expands) {
      EXPECT_NE(def.expand, nullptr) << def.name;
    }
    EXPECT_LE(def.onnx.read, 2u) << def.name;
    for (const OnnxAttribute& each : def.onnx.attributes) {
      // Operands that are read alike need a value where the file has none.
      EXPECT_TRUE(def.onnx.read == 0 || each.fallback) << def.name << " " << each.name;
    }
    EXPECT_EQ(lookup_op(def.name), &def);
  }
  EXPECT_EQ(lookup_op("Frobnicate"), nullptr);
}

}  // namespace
}  // namespace halfscope
