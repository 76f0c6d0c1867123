// SPDX-License-Identifier: MIT
// Outputs that a plan clamps, or keeps times a power of two: results of small networks, with
// numbers computed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/lower/lower.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// x * 256 ("large"), then times 1 / 256 ("small").
Model scaled_and_back(int64_t count) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {count});
  const ValueId large = graph.add1("Mul", "large", {model.input, graph.add_constant(256.0f)});
  const ValueId small = graph.add1("Mul", "small", {large, graph.add_constant(0x1p-8f)});
  model.outputs = {{"large", large}, {"small", small}};
  return model;
}

Plan fp16_plan(const std::string& rules = "[]") {
  return plan_from_json(R"({"schema": "halfscope.plan/1", "name": "p",
    "default": {"format": "fp16"}, "rules": )" +
                        rules + "}");
}

std::vector<std::vector<float>> outputs_of(const Model& model, const Plan& plan,
                                           const std::vector<float>& x) {
  const Executable exe = lower_inference(model, plan);
  const auto program = emulation_backend().compile(exe);
  program->write(exe.input, x);
  program->run(Entry::eval, {});
  std::vector<std::vector<float>> outputs;
  for (const NamedValue& each : exe.outputs) outputs.push_back(program->read(each.value).data);
  return outputs;
}

TEST(Clamp, ResultsBeyondTheRangeBecomeTheLargestNumber) {
  const std::vector<float> x{1.0f, 255.875f, 256.0f, -300.0f, kInf, -kInf};
  const Model model = scaled_and_back(6);
  const auto plain = outputs_of(model, fp16_plan(), x);
  // 255.875 * 256 = 65504.
  EXPECT_THAT(plain[0], ElementsAre(256.0f, 65504.0f, kInf, -kInf, kInf, -kInf));
  const auto clamped =
      outputs_of(model, fp16_plan(R"([{"path": "large", "overflow": "saturate"}])"), x);
  EXPECT_THAT(clamped[0], ElementsAre(256.0f, 65504.0f, 65504.0f, -65504.0f, 65504.0f, -65504.0f))
      << "as torch.clamp(x, -65504, 65504)";
  EXPECT_EQ(clamped[1][2], 255.875f);
}

TEST(Clamp, NanStays) {
  const auto clamped = outputs_of(
      scaled_and_back(1), fp16_plan(R"([{"path": "large", "overflow": "saturate"}])"), {kNan});
  EXPECT_TRUE(std::isnan(clamped[0][0]));
}

TEST(Clamp, IsTheNodesAloneAndCanBeTakenBack) {
  const Model model = scaled_and_back(1);
  const Plan both = fp16_plan(
      R"([{"path": "*", "overflow": "saturate"}, {"path": "large", "overflow": "as-format"}])");
  EXPECT_EQ(outputs_of(model, both, {300.0f})[0][0], kInf);
  EXPECT_EQ(outputs_of(model, both, {300.0f})[1][0], 65504.0f) << "small clamps its infinity";
}

TEST(Clamp, LeavesGradientsAlone) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {1});
  const ValueId w = graph.add_variable("w", {1}, {});
  const ValueId wide = graph.add1("Mul", "wide", {w, model.input});
  const ValueId large = graph.add1("Mul", "large", {wide, graph.add_constant(256.0f)});
  model.loss = graph.add1("ReduceSum", "loss", {large});
  const Plan plan =
      fp16_plan(R"([{"path": "*", "overflow": "saturate"}, {"path": "loss", "format": "fp32"}])");
  const Executable exe = lower(model, plan, {});
  for (const Node& node : exe.graph.nodes()) {
    if (node.phase != Phase::backward) continue;
    EXPECT_FALSE(node.plan.write.saturate) << node.op << " of " << node.path;
    for (const ValueId output : node.outputs) EXPECT_FALSE(exe.graph.value(output).format.saturate);
  }
}

TEST(Prescale, MovesTheRangeOfTheFormat) {
  // Half precision times 2^-4: 16 * 65504 is the largest number, the smallest normal one 2^-10.
  const auto moved = moved_range(kFp16, -4);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->max_finite(), 65504.0 * 16.0);
  EXPECT_EQ(moved->min_normal(), 0x1p-10);
  EXPECT_EQ(moved_range(kFp16, 4)->max_finite(), 65504.0 / 16.0);
  EXPECT_FALSE(moved_range(kBf16, -1)) << "fp32 would not hold it";
  EXPECT_FALSE(moved_range(kFp32, -1));
}

TEST(Prescale, KeepsWhatWouldOverflow) {
  const Model model = scaled_and_back(4);
  const std::vector<float> x{1000.0f, 4096.0f / 256.0f, 0x1p-16f, 5000.0f};
  const auto kept = outputs_of(model, fp16_plan(R"([{"path": "large", "prescale": 0.0625}])"), x);
  EXPECT_EQ(kept[0][0], 256000.0f) << "256000 / 16 = 16000 is a number of fp16";
  EXPECT_EQ(kept[1][0], 1000.0f) << "the reader undoes it before it rounds";
  EXPECT_EQ(kept[0][1], 4096.0f);
  // 2^-16 * 256 = 2^-8, kept as 2^-12.
  EXPECT_EQ(kept[0][2], 0x1p-8f);
  EXPECT_EQ(kept[0][3], kInf) << "5000 * 256 / 16 = 80000 is still too large";
}

/// The same by hand: x times 2^-4 before, times 16 in the constant of the reader.
TEST(Prescale, EqualsScalingTheOperandByHand) {
  const Model model = scaled_and_back(5);
  const std::vector<float> x{1000.0f, -700.25f, 1.0009766f, 3.0e-5f, 4000.0f};
  const auto kept = outputs_of(model, fp16_plan(R"([{"path": "large", "prescale": 0.0625}])"), x);
  Model by_hand;
  Graph& graph = by_hand.graph;
  by_hand.input = graph.add_input("input", {5});
  const ValueId scaled =
      graph.add1("Mul", "scaled", {by_hand.input, graph.add_constant(256.0f / 16.0f)});
  by_hand.outputs = {
      {"small", graph.add1("Mul", "small", {scaled, graph.add_constant(16.0f / 256.0f)})}};
  EXPECT_EQ(outputs_of(by_hand, fp16_plan(), x)[0], kept[1]);
}

TEST(Prescale, ProductsReadTheirFormat) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {1, 2});
  const ValueId large = graph.add1("Mul", "large", {model.input, graph.add_constant(256.0f)});
  const ValueId w = graph.add_constant(Tensor{{2, 1}, {0x1p-8f, 0x1p-8f}});
  model.outputs = {{"y", graph.add1("MatMul", "product", {large, w})}};
  const auto y =
      outputs_of(model, fp16_plan(R"([{"path": "large", "prescale": 0.0625}])"), {1000.0f, 1.0f});
  EXPECT_EQ(y[0][0], kInf) << "256000 does not fit the operand's fp16";
}

TEST(Prescale, IsRefusedWhereFp32CouldNotHoldIt) {
  Plan plan = fp16_plan(R"([{"path": "large", "format": "bf16", "prescale": 0.5}])");
  try {
    outputs_of(scaled_and_back(1), plan, {1.0f});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("large: outputs in bf16 cannot be stored times 0.5"));
  }
}

}  // namespace
}  // namespace halfscope
