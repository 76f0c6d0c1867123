// SPDX-License-Identifier: MIT
// Every gradient rule compared with central differences in double. The five-point formula is
//   f'(x) = (f(x - 2h) - 8 f(x - h) + 8 f(x + h) - f(x + 2h)) / 12h + O(h^4)
// with h = 2^-7, so that x +- 2h are floats and no operand (a multiple of 2^-3) crosses the kink of
// a Relu or changes the winner of a maximum.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/ops/ops.h"
#include "core/ops/straight_through.h"
#include "emulation/backends.h"
#include "tests/support/op_cases.h"
#include "tests/support/op_harness.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: operators and operands of these tests

TEST(Gradient, EveryRuleEqualsFiniteDifferences) {
  constexpr float kStep = 0x1p-7f;
  omp_set_num_threads(1);  // thousands of tiny runs
  for (const OpCase& op : gradient_cases()) {
    SCOPED_TRACE(describe(op));
    OpProgram program(float64_backend(), op);
    program.run();
    std::vector<std::optional<Tensor>> gradients;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      gradients.push_back(op.operands[i].labels ? std::nullopt : program.gradient(i));
    }
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i].labels) continue;
      if (flat_operators().contains(op.op) ||
          (op.op == "BatchNormalization" && i >= 3)) {  // running statistics
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
  std::set<std::string> covered{"StopGradient"};  // has a separate test
  for (const OpCase& op : gradient_cases()) covered.insert(op.op);
  for (const OpDef& def : op_table()) {
    EXPECT_EQ(covered.contains(def.name), def.gradient != nullptr) << def.name;
  }
}

// A rounding lets no gradient through, unless it is straight-through.
TEST(Gradient, OfARoundingPassesOnlyStraightThrough) {
  for (const int64_t passes : {0, 1}) {
    OpProgram program(float64_backend(),
                      {"", "Round", {real({2, 3})}, {{kStraightThrough, passes}}});
    program.run();
    const std::optional<Tensor> gradient = program.gradient(0);
    EXPECT_EQ(gradient.has_value(), passes == 1);
    if (!gradient) continue;
    // The loss of these programs is the sum of the outputs times fixed factors, as for Identity.
    OpProgram same(float64_backend(), {"", "Identity", {real({2, 3})}});
    same.run();
    EXPECT_EQ(gradient->data, same.gradient(0)->data);
  }
}

// Parts of a split return to their places, whichever parts are read.
TEST(Gradient, PartsOfASplitReachTheirPlaces) {
  const std::vector<Operand> x{real({2, 6})};
  for (const std::vector<size_t>& read :
       {std::vector<size_t>{0, 1, 2}, std::vector<size_t>{2, 0}, std::vector<size_t>{1}}) {
    OpProgram program(emulation_backend(), x, [&](Graph& graph, const std::vector<ValueId>& in) {
      const std::vector<ValueId> parts = graph.add(
          "Split", "cut", in, {{"axis", int64_t{1}}, {"split", std::vector<int64_t>{1, 3, 2}}});
      std::vector<ValueId> joined;
      for (size_t part : read) joined.push_back(parts[part]);
      return graph.add1("Concat", "join", joined, {{"axis", int64_t{1}}});
    });
    program.run();
    const Tensor weights = distinct(program.output().shape, 0.25f);
    const int64_t begin[] = {0, 1, 4}, length[] = {1, 3, 2};
    std::vector<float> expected(12, 0.0f);
    for (int64_t row = 0; row < 2; ++row) {
      int64_t from = row * weights.shape[1];
      for (size_t part : read) {
        for (int64_t i = 0; i < length[part]; ++i)
          expected[static_cast<size_t>(row * 6 + begin[part] + i)] =
              weights.data[static_cast<size_t>(from++)];
      }
    }
    EXPECT_EQ(program.gradient(0)->data, expected);
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

/// Computes loss and gradient of both forms for these labels, ignoring the label `ignored`.
void expect_the_same_loss(const std::vector<int32_t>& given, int64_t ignored) {
  const int64_t rows = static_cast<int64_t>(given.size());
  const std::vector<Operand> operands{real({rows, 4}, 0.5f), labels(given)};
  const Tensor upstream{{}, {3.0f}};
  const OpDef& def = find_op("SoftmaxCrossEntropyLoss");
  const Attributes attributes{{"ignore_index", ignored}};
  ASSERT_NE(def.expand, nullptr);
  OpProgram fused(float64_backend(), OpCase{"loss", def.name, operands, attributes}, upstream,
                  true);
  const auto build = [&](Graph& graph, const std::vector<ValueId>& x) {
    Node node;
    node.op = def.name;
    node.path = "loss";
    node.inputs = x;
    node.attributes = attributes;
    return def.expand(graph, node).at(0);
  };
  OpProgram stagewise(float64_backend(), operands, build, upstream, true);
  for (const Node& node : stagewise.graph().nodes()) EXPECT_NE(node.op, def.name);
  EXPECT_NEAR(fused.run(), stagewise.run(), 1e-12);
  EXPECT_NEAR(fused.scalar_output(), stagewise.scalar_output(), 1e-12);
  const std::vector<double> a = fused.exact_gradient(0), b = stagewise.exact_gradient(0);
  ASSERT_EQ(a.size(), given.size() * 4);
  ASSERT_EQ(b.size(), a.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << i;
}

// The stagewise loss is the same function as the fused one.
TEST(Gradient, StagewiseLossEqualsFusedInDouble) { expect_the_same_loss({3, 0, 2, 2, 1}, -1); }

TEST(Gradient, StagewiseLossLeavesOutTheSameRows) {
  expect_the_same_loss({3, -1, 2, 2, -7, 1}, -1);
  expect_the_same_loss({3, 0, 2, 2, 1}, 2);
  expect_the_same_loss({3, -100, 2, 255, 1}, 255);  // a label that is no class
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

// A composite's expansion is the same function with the same gradients, except for constants, which
// a graph stores in fp32.
TEST(Gradient, StagewiseCompositesEqualFusedInDouble) {
  std::set<std::string> compared{"BatchNormalization", "SoftmaxCrossEntropyLoss"};  // above
  const std::set<std::string> others = compared;
  for (const OpCase& op : gradient_cases()) {
    const OpDef& def = find_op(op.op);
    if (def.expand == nullptr || others.contains(op.op)) continue;
    SCOPED_TRACE(describe(op));
    const double tolerance = op.op == "Gelu" ? 1e-6 : 1e-11;
    const auto build = [&](Graph& graph, const std::vector<ValueId>& x) {
      Node node;
      node.op = def.name;
      node.path = op.name;
      node.inputs = x;
      node.attributes = op.attributes;
      return def.expand(graph, node).at(0);
    };
    OpProgram fused(float64_backend(), op, std::nullopt, true);
    OpProgram stagewise(float64_backend(), op.operands, build, std::nullopt, true);
    for (const Node& node : stagewise.graph().nodes()) EXPECT_NE(node.op, def.name);
    EXPECT_NEAR(fused.run(), stagewise.run(), tolerance);
    for (size_t operand = 0; operand < op.operands.size(); ++operand) {
      const std::vector<double> a = fused.exact_gradient(operand),
                                b = stagewise.exact_gradient(operand);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_NEAR(a[i], b[i], tolerance) << operand << " " << i;
    }
    compared.insert(op.op);
  }
  for (const OpDef& def : op_table()) {
    if (def.always_expands) continue;  // has no fused form
    EXPECT_EQ(compared.contains(def.name), def.expand != nullptr) << def.name;
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
  const int64_t two = 2;
  EXPECT_EQ(refusal({"c", "Conv", {image, weight}, {{"group", two}}}),
            "c (Conv): the weight [2, 2, 3, 3] does not fit the input [1, 2, 6, 6] in 2 groups");
  EXPECT_EQ(refusal({"c", "Conv", {image, weight}, {{"kernel_shape", Ints{2, 2}}}}),
            "c (Conv): kernel_shape differs from the weight's");
  EXPECT_EQ(
      refusal(
          {"p", "MaxPool", {image}, {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{0, 2, 0, 0}}}}),
      "p (MaxPool): pads must be smaller than the kernel");
  EXPECT_EQ(refusal({"g", "Gemm", {matrix, matrix, real({2})}}),
            "g (Gemm): shapes [2] and [3, 3] do not broadcast");
  EXPECT_EQ(refusal({"m", "MatMul", {matrix, real({2, 4, 3})}}),
            "m (MatMul): inner dimensions differ: [3, 3] and [2, 4, 3]");
  EXPECT_EQ(refusal({"m", "MatMul", {matrix, real({})}}),
            "m (MatMul): operands need at least one dimension");
  EXPECT_EQ(refusal({"m", "MatMul", {matrix, matrix, real({2})}}),
            "m (MatMul): its bias [2] does not fit [3, 3]");
  EXPECT_EQ(refusal({"m", "MatMul", {matrix, real({2, 3, 3}), real({3})}}),
            "m (MatMul): only rows times a matrix may have a bias");
  EXPECT_EQ(refusal({"s", "SoftmaxCrossEntropyLoss", {matrix, labels({0, 1, 2}), real({3})}}),
            "s (SoftmaxCrossEntropyLoss): class weights are not supported yet");
  EXPECT_EQ(refusal({"x", "Bessel", {matrix}}), "unknown operator 'Bessel'");
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
  EXPECT_EQ(refusal({"s", "Softmax", {real({2, 3})}, {{"axis", int64_t{2}}}}),
            "s (Softmax): axis out of range");
  EXPECT_EQ(refusal({"p", "PRelu", {real({2}), real({3, 2})}}),
            "p (PRelu): slope [3, 2] does not broadcast to [2]");
  EXPECT_EQ(refusal({"l", "LayerNormalization", {real({2, 3}), real({2})}}),
            "l (LayerNormalization): scale and bias must have shape [3]");
  EXPECT_EQ(refusal({"l", "LayerNormalization", {real({2, 3})}}),
            "l (LayerNormalization): needs x, scale and bias");
  EXPECT_EQ(refusal({"g",
                     "GroupNormalization",
                     {real({2, 3, 4}), real({3}), real({3})},
                     {{"num_groups", int64_t{2}}}}),
            "g (GroupNormalization): num_groups must divide the 3 channels");
  EXPECT_EQ(refusal({"i", "InstanceNormalization", {real({2, 3, 0}), real({3}), real({3})}}),
            "i (InstanceNormalization): empty groups have no mean");
  EXPECT_EQ(refusal({"e", "MeanSquaredError", {real({2, 3}), real({3})}}),
            "e (MeanSquaredError): prediction [2, 3] and target [3] have different shapes");
  EXPECT_EQ(refusal({"m", "ReduceMax", {real({2, 3})}, reduce({2}, 0)}),
            "m (ReduceMax): axis out of range");
  EXPECT_EQ(refusal({"m", "ReduceMax", {real({2, 3})}, reduce({0, -2}, 0)}),
            "m (ReduceMax): repeated axis");
}

}  // namespace
}  // namespace halfscope
