// SPDX-License-Identifier: MIT
// Every gradient rule against central differences in double. The five-point formula
//   f'(x) = (f(x - 2h) - 8 f(x - h) + 8 f(x + h) - f(x + 2h)) / 12h + O(h^4)
// with h = 2^-7, so that x +- 2h are floats and no operand (a multiple of 2^-3) crosses the kink
// of a Relu or changes the winner of a maximum.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/ops/ops.h"
#include "emulation/backends.h"
#include "tests/support/op_harness.h"

namespace halfscope {
namespace {

using test::distinct;
using test::OpCase;
using test::Operand;
using test::OpProgram;
using Ints = std::vector<int64_t>;

Operand real(const Shape& shape, float unit = 0.125f) { return {distinct(shape, unit)}; }

/// Between 0.5 and 2.5: for Log, Sqrt and divisors.
Operand positive(const Shape& shape) {
  Tensor tensor = distinct(shape);
  for (float& x : tensor.data) x = 1.5f + std::remainder(x, 2.0f);
  return {tensor};
}

Operand labels(std::vector<int32_t> list) { return {Tensor{}, std::move(list)}; }

Attributes conv(const Ints& strides, const Ints& pads, const Ints& dilations) {
  return {{"strides", strides}, {"pads", pads}, {"dilations", dilations}};
}

Attributes pool(const Ints& kernel, const Ints& strides, const Ints& pads) {
  return {{"kernel_shape", kernel}, {"strides", strides}, {"pads", pads}};
}

Attributes reduce(const Ints& axes, int64_t keep) { return {{"axes", axes}, {"keepdims", keep}}; }

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  const std::vector<std::pair<Shape, Shape>> broadcasts{
      {{2, 3}, {2, 3}}, {{2, 3}, {3}},       {{2, 3}, {2, 1}},
      {{3}, {2, 3}},    {{}, {2, 2}},        {{2, 2}, {}},
      {{2, 1}, {1, 3}}, {{4, 1, 3}, {2, 1}}, {{2, 1, 3, 1}, {2, 2, 3, 2}},
      {{1}, {}},        {{1, 1}, {3}}};
  for (const auto& [a, b] : broadcasts) {
    for (const char* op : {"Add", "Sub", "Mul"}) list.push_back({"", op, {real(a), real(b)}});
    list.push_back({"", "Div", {real(a), positive(b)}});
  }
  for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{1, 2, 2, 2}}) {
    for (const char* op : {"Neg", "Exp", "Relu", "Identity"})
      list.push_back({"", op, {real(shape)}});
    for (const char* op : {"Log", "Sqrt"}) list.push_back({"", op, {positive(shape)}});
  }
  for (int64_t ta : {0, 1}) {
    for (int64_t tb : {0, 1}) {
      for (int bias : {0, 1}) {
        OpCase gemm{"",
                    "Gemm",
                    {real(ta ? Shape{4, 3} : Shape{3, 4}), real(tb ? Shape{5, 4} : Shape{4, 5})},
                    {{"transA", ta}, {"transB", tb}}};
        if (bias) gemm.operands.push_back(real({5}));
        list.push_back(gemm);
      }
    }
  }
  list.push_back({"", "Gemm", {real({1, 1}), real({1, 1}), real({1})}});

  struct ConvCase {
    Shape x, w;
    Attributes attributes;
  };
  for (const ConvCase& each :
       std::vector<ConvCase>{{{2, 2, 4, 5}, {3, 2, 3, 3}, {}},
                             {{1, 2, 5, 5}, {2, 2, 3, 3}, conv({1, 1}, {1, 1, 1, 1}, {1, 1})},
                             {{1, 1, 6, 7}, {2, 1, 3, 2}, conv({2, 3}, {0, 0, 0, 0}, {1, 1})},
                             {{1, 2, 6, 7}, {2, 2, 2, 3}, conv({1, 1}, {0, 0, 0, 0}, {2, 3})},
                             {{1, 1, 4, 5}, {1, 1, 3, 3}, conv({1, 1}, {0, 1, 2, 0}, {1, 1})},
                             {{2, 1, 7, 6}, {2, 1, 3, 2}, conv({2, 1}, {1, 0, 2, 3}, {2, 1})},
                             {{1, 3, 3, 3}, {2, 3, 1, 1}, conv({2, 2}, {0, 0, 0, 0}, {1, 1})}}) {
    for (int bias : {0, 1}) {
      OpCase op{"", "Conv", {real(each.x), real(each.w)}, each.attributes};
      if (bias) op.operands.push_back(real({each.w[0]}));
      list.push_back(op);
    }
  }
  list.push_back({"", "MaxPool", {real({2, 2, 4, 6})}, pool({2, 2}, {2, 2}, {0, 0, 0, 0})});
  list.push_back({"", "MaxPool", {real({1, 2, 5, 7})}, pool({3, 3}, {2, 2}, {0, 0, 0, 0})});
  list.push_back({"", "MaxPool", {real({1, 1, 6, 6})}, pool({2, 3}, {1, 2}, {1, 0, 0, 2})});
  list.push_back({"", "MaxPool", {real({1, 1, 7, 7})}, pool({2, 2}, {3, 3}, {0, 0, 0, 0})});
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax"}) {
    for (const Ints& axes : {Ints{}, Ints{0}, Ints{-1}, Ints{0, 2}, Ints{1, 2}}) {
      for (int64_t keep : {0, 1}) list.push_back({"", op, {real({2, 3, 4})}, reduce(axes, keep)});
    }
    list.push_back({"", op, {real({2, 3, 2, 2})}, reduce({0, 2, 3}, 0)});
  }
  for (const Shape& shape : {Shape{2, 3, 3, 2}, Shape{4, 2}, Shape{3, 1, 2}}) {
    const Shape channels{shape[1]};
    list.push_back(
        {"",
         "BatchNormalization",
         {real(shape), real(channels), real(channels), real(channels), positive(channels)},
         {{"training_mode", int64_t{1}}, {"epsilon", 0.125}}});
  }
  list.push_back({"", "GlobalAveragePool", {real({2, 3, 4, 5})}});
  list.push_back({"", "GlobalAveragePool", {real({2, 3, 5})}});
  const auto slice = [](const Ints& starts, const Ints& ends, const Ints& axes, const Ints& steps) {
    return Attributes{{"starts", starts}, {"ends", ends}, {"axes", axes}, {"steps", steps}};
  };
  list.push_back({"", "Slice", {real({2, 3, 5, 4})}, slice({0, 0}, {5, 4}, {2, 3}, {2, 2})});
  list.push_back({"", "Slice", {real({4, 5})}, slice({-3}, {99}, {-1}, {1})});
  list.push_back({"", "Slice", {real({4, 5})}, slice({1, 0}, {2, 5}, {0, 1}, {1, 3})});
  list.push_back({"", "Pad", {real({2, 3, 2})}, {{"pads", Ints{0, 1, 0, 2, 0, 1}}}});
  for (int64_t axis : {0, 1, 2, 3, -1})
    list.push_back({"", "Flatten", {real({2, 3, 2})}, {{"axis", axis}}});
  for (const Ints& shape : {Ints{6, 2}, Ints{3, -1}, Ints{0, -1}, Ints{2, 0, 2}, Ints{12}}) {
    list.push_back({"", "Reshape", {real({2, 3, 2})}, {{"shape", shape}}});
  }
  for (const Ints& shape : {Ints{2, 3, 4}, Ints{5, 2, 3, 4}}) {
    list.push_back({"", "Expand", {real({3, 1})}, {{"shape", shape}}});
  }
  list.push_back({"", "Expand", {real({})}, {{"shape", Ints{2, 2}}}});
  list.push_back({"", "GatherElements", {real({4, 3}), labels({2, 0, -1, 1})}});
  list.push_back({"", "SoftmaxCrossEntropyLoss", {real({4, 3}), labels({2, 0, 1, 1})}});
  list.push_back({"", "SoftmaxCrossEntropyLoss", {real({3, 5}), labels({4, -1, 0})}});
  list.push_back({"",
                  "SoftmaxCrossEntropyLoss",
                  {real({4, 3}), labels({2, 0, 1, 1})},
                  {{"ignore_index", int64_t{1}}}});
  list.push_back({"", "SoftmaxCrossEntropyLoss", {real({1, 1}), labels({0})}});
  for (OpCase& each : list) each.name = "node";
  return list;
}

std::string describe(const OpCase& op) {
  std::string text = op.op;
  for (const Operand& operand : op.operands)
    text += operand.labels ? " labels" : " " + to_string(operand.real.shape);
  for (const auto& [name, value] : op.attributes) {
    text += " " + name;
    if (const auto* list = std::get_if<Ints>(&value)) text += to_string(*list);
    if (const auto* number = std::get_if<int64_t>(&value)) text += "=" + std::to_string(*number);
  }
  return text;
}

TEST(Gradient, EveryRuleEqualsFiniteDifferences) {
  constexpr float kStep = 0x1p-7f;
  omp_set_num_threads(1);  // thousands of tiny runs
  for (const OpCase& op : cases()) {
    SCOPED_TRACE(describe(op));
    OpProgram program(float64_backend(), op);
    program.run();
    std::vector<std::optional<Tensor>> gradients;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      gradients.push_back(op.operands[i].labels ? std::nullopt : program.gradient(i));
    }
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i].labels) continue;
      if (op.op == "BatchNormalization" && i >= 3) {  // running statistics
        EXPECT_FALSE(gradients[i]);
        continue;
      }
      ASSERT_TRUE(gradients[i]) << "no gradient for operand " << i;
      EXPECT_EQ(gradients[i]->shape, op.operands[i].real.shape);
      std::vector<float> x = op.operands[i].real.data;
      double largest = 0.0;
      for (float g : gradients[i]->data)
        largest = std::max(largest, std::fabs(static_cast<double>(g)));
      for (size_t e = 0; e < x.size(); ++e) {
        const float kept = x[e];
        const auto at = [&](float shift) {
          x[e] = kept + shift;
          program.write(i, x);
          return program.run();
        };
        const double difference = at(-2 * kStep) - 8 * at(-kStep) + 8 * at(kStep) - at(2 * kStep);
        x[e] = kept;
        program.write(i, x);
        const double expected = difference / (12.0 * static_cast<double>(kStep));
        // h^4 f''''' / 30 is below 1e-8 |f| for these functions; the gradient is read as fp32.
        EXPECT_NEAR(static_cast<double>(gradients[i]->data[e]), expected, 2e-7 * largest + 2e-7)
            << "operand " << i << ", element " << e;
      }
    }
  }
}

TEST(Gradient, EveryOperatorWithAGradientHasACase) {
  std::set<std::string> covered{"StopGradient"};  // a test of its own
  for (const OpCase& op : cases()) covered.insert(op.op);
  for (const OpDef& def : op_table()) {
    EXPECT_EQ(covered.contains(def.name), def.gradient != nullptr) << def.name;
  }
}

TEST(Gradient, StopGradientLetsNothingThrough) {
  OpProgram stopped(float64_backend(), OpCase{"stop", "StopGradient", {real({2, 3})}});
  stopped.run();
  EXPECT_EQ(stopped.output().data, distinct({2, 3}).data);
  EXPECT_FALSE(stopped.gradient(0));
}

// y = x * x + Exp(x) + x, where x has four readers: the gradients of all of them add up.
TEST(Gradient, ReadersOfOneValueAddUp) {
  const auto build = [](Graph& graph, const std::vector<ValueId>& x) {
    const ValueId square = graph.add1("Mul", "square", {x[0], x[0]});
    const ValueId power = graph.add1("Exp", "power", {x[0]});
    return graph.add1("Add", "y", {graph.add1("Add", "sum", {square, power}), x[0]});
  };
  const Tensor upstream{{2, 2}, {1.0f, -2.0f, 3.0f, 0.5f}};
  OpProgram program(float64_backend(), {real({2, 2})}, build, upstream, true);
  program.run();
  const std::vector<double> gradient = program.exact_gradient(0);
  const Tensor x = distinct({2, 2});
  for (size_t i = 0; i < 4; ++i) {
    const double value = static_cast<double>(x.data[i]);
    EXPECT_NEAR(gradient[i],
                static_cast<double>(upstream.data[i]) * (2 * value + std::exp(value) + 1), 1e-13);
  }
}

TEST(Gradient, OperatorWithoutARuleIsAnError) {
  const auto build = [](Graph& graph, const std::vector<ValueId>& x) {
    return graph.add1("Cast", "narrow", {x[0]});
  };
  try {
    OpProgram program(float64_backend(), {real({2})}, build);
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "narrow (Cast) has no gradient");
  }
}

// The stagewise loss is the same function as the fused one.
TEST(Gradient, StagewiseLossEqualsFusedInDouble) {
  const std::vector<Operand> operands{real({5, 4}, 0.5f), labels({3, 0, 2, 2, 1})};
  const Tensor upstream{{}, {3.0f}};
  const OpDef& def = find_op("SoftmaxCrossEntropyLoss");
  ASSERT_NE(def.expand, nullptr);
  OpProgram fused(float64_backend(), OpCase{"loss", def.name, operands}, upstream, true);
  const auto build = [&](Graph& graph, const std::vector<ValueId>& x) {
    Node node;
    node.op = def.name;
    node.path = "loss";
    node.inputs = x;
    return def.expand(graph, node).at(0);
  };
  OpProgram stagewise(float64_backend(), operands, build, upstream, true);
  for (const Node& node : stagewise.graph().nodes()) EXPECT_NE(node.op, def.name);
  EXPECT_NEAR(fused.run(), stagewise.run(), 1e-12);
  EXPECT_NEAR(fused.scalar_output(), stagewise.scalar_output(), 1e-12);
  const std::vector<double> a = fused.exact_gradient(0), b = stagewise.exact_gradient(0);
  ASSERT_EQ(a.size(), 20u);
  ASSERT_EQ(b.size(), 20u);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << i;
}

// The stagewise normalization is the same function as the fused one, in training and inference.
TEST(Gradient, StagewiseBatchNormalizationEqualsFusedInDouble) {
  const std::vector<Operand> operands{real({3, 2, 2, 2}), real({2}), real({2}), real({2}),
                                      positive({2})};
  const OpDef& def = find_op("BatchNormalization");
  ASSERT_NE(def.expand, nullptr);
  const Attributes attributes{{"training_mode", int64_t{1}},
                              {"epsilon", 0.25},
                              {"momentum", 0.75},
                              {"unbiased", int64_t{1}}};
  // y and the running statistics in one scalar, so that all of them are compared.
  const auto build = [&](bool expanded) {
    return [&, expanded](Graph& graph, const std::vector<ValueId>& x) {
      Node node;
      node.op = def.name;
      node.path = "norm";
      node.inputs = x;
      node.attributes = attributes;
      const std::vector<ValueId> y =
          expanded ? def.expand(graph, node) : graph.add(def.name, "norm", x, attributes);
      const ValueId running = graph.add1("Sub", "running", {y[1], y[2]});
      const ValueId weighted =
          graph.add1("Mul", "weighted", {running, graph.add_constant(Tensor{{2}, {3.0f, 7.0f}})});
      const ValueId stopped =
          graph.add1("StopGradient", "stop",
                     {graph.add1("Reshape", "shape", {weighted}, {{"shape", Ints{2, 1, 1}}})});
      return graph.add1("Add", "all", {y[0], stopped});
    };
  };
  OpProgram fused(float64_backend(), operands, build(false), std::nullopt, true);
  OpProgram stagewise(float64_backend(), operands, build(true), std::nullopt, true);
  for (const Node& node : stagewise.graph().nodes()) EXPECT_NE(node.op, def.name);
  EXPECT_NEAR(fused.run(), stagewise.run(), 1e-12);
  for (size_t operand : {0, 1, 2}) {
    const std::vector<double> a = fused.exact_gradient(operand),
                              b = stagewise.exact_gradient(operand);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << operand << ", " << i;
  }
}

/// The message of the Error that adding this node gives.
std::string refusal(const OpCase& op) {
  try {
    OpProgram program(float64_backend(), op);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(OperatorTable, WhatIsNotImplementedIsRefused) {
  const Operand image = real({1, 2, 6, 6}), weight = real({2, 2, 3, 3}), matrix = real({3, 3});
  const int64_t two = 2, one = 1;
  EXPECT_EQ(refusal({"c", "Conv", {image, real({2, 1, 3, 3})}, {{"group", two}}}),
            "c (Conv): grouped convolution is not supported yet");
  EXPECT_EQ(refusal({"c", "Conv", {image, weight}, {{"kernel_shape", Ints{2, 2}}}}),
            "c (Conv): kernel_shape differs from the weight's");
  EXPECT_EQ(
      refusal({"p", "MaxPool", {image}, {{"kernel_shape", Ints{2, 2}}, {"dilations", Ints{2, 1}}}}),
      "p (MaxPool): dilations other than 1 are not supported yet");
  EXPECT_EQ(refusal({"p", "MaxPool", {image}, {{"kernel_shape", Ints{2, 2}}, {"ceil_mode", one}}}),
            "p (MaxPool): ceil_mode is not supported yet");
  EXPECT_EQ(refusal({"g", "Gemm", {matrix, matrix}, {{"alpha", 0.5}}}),
            "g (Gemm): alpha other than 1 is not supported yet");
  EXPECT_EQ(refusal({"g", "Gemm", {matrix, matrix, real({3})}, {{"beta", 2.0}}}),
            "g (Gemm): beta other than 1 is not supported yet");
  EXPECT_EQ(refusal({"r", "ReduceSum", {matrix}, {{"noop_with_empty_axes", one}}}),
            "r (ReduceSum): noop_with_empty_axes is not supported yet");
  EXPECT_EQ(refusal({"s", "SoftmaxCrossEntropyLoss", {matrix, labels({0, 1, 2}), real({3})}}),
            "s (SoftmaxCrossEntropyLoss): class weights are not supported yet");
  EXPECT_EQ(refusal({"x", "Erf", {matrix}}), "unknown operator Erf");
  EXPECT_EQ(refusal({"p", "Pad", {matrix}, {{"pads", Ints{0, -1, 0, 0}}}}),
            "p (Pad): negative pads are not supported yet");
  EXPECT_EQ(
      refusal(
          {"s", "Slice", {matrix}, {{"starts", Ints{2}}, {"ends", Ints{0}}, {"steps", Ints{-1}}}}),
      "s (Slice): negative steps are not supported yet");
  EXPECT_EQ(
      refusal({"b", "BatchNormalization", {matrix, real({3}), real({3}), real({3}), real({3})}}),
      "b (BatchNormalization): has a gradient in training mode only");
  EXPECT_EQ(refusal({"g", "Gemm", {matrix, matrix}, {{"alpha", 1.0}, {"beta", 1.0}}}), "accepted");
}

TEST(OperatorTable, ShapesThatDoNotFitNameTheNode) {
  EXPECT_EQ(refusal({"a", "Add", {real({2, 3}), real({2})}}),
            "a (Add): shapes [2, 3] and [2] do not broadcast");
  EXPECT_EQ(refusal({"g", "Gemm", {real({2, 3}), real({2, 3})}}),
            "g (Gemm): inner dimensions differ: [2, 3] and [2, 3]");
  EXPECT_EQ(refusal({"r", "Reshape", {real({2, 3})}, {{"shape", Ints{4, -1}}}}),
            "r (Reshape): [2, 3] cannot be reshaped to [4, -1]");
  EXPECT_EQ(refusal({"r", "Reshape", {real({2, 3})}, {{"shape", Ints{-1, -1}}}}),
            "r (Reshape): [2, 3] cannot be reshaped to [-1, -1]");
  EXPECT_EQ(refusal({"r", "Reshape", {real({2, 3})}, {{"shape", Ints{1, 1, 0}}}}),
            "r (Reshape): [2, 3] cannot be reshaped to [1, 1, 0]");
  EXPECT_EQ(refusal({"m", "ReduceMax", {real({2, 3})}, reduce({2}, 0)}),
            "m (ReduceMax): axis out of range");
  EXPECT_EQ(refusal({"m", "ReduceMax", {real({2, 3})}, reduce({0, -2}, 0)}),
            "m (ReduceMax): repeated axis");
}

}  // namespace
}  // namespace halfscope
