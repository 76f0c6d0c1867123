// SPDX-License-Identifier: MIT
// Scales for inference: static ones that divide, one for each output channel, and another one for a
// product's second operand. Expected results are computed here in double, code by code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/lower/lower.h"
#include "core/numeric/formats/rng.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

using testing::HasSubstr;

constexpr double kMost = 127.0;

std::vector<float> noise(const Shape& shape, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < element_count(shape); ++i) {
    const uint64_t word = splitmix64(seed * 1000003 + static_cast<uint64_t>(i));
    values.push_back((word % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(word % 100003) * 1e-5f);
  }
  return values;
}

double code_of(float x, float scale) {
  return std::clamp(std::nearbyint(static_cast<double>(x / scale)), -kMost, kMost);
}

/// The values of codes with one scale for each group of elements, as group(i) says.
template <class Group>
std::vector<double> by_channel(const std::vector<float>& w, size_t groups, const Group& group) {
  std::vector<float> largest(groups);
  for (size_t i = 0; i < w.size(); ++i) {
    largest[group(i)] = std::max(largest[group(i)], std::fabs(w[i]));
  }
  std::vector<double> values(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    const float scale = largest[group(i)] / 127.0f;
    values[i] = code_of(w[i], scale) * static_cast<double>(scale);
  }
  return values;
}

std::vector<double> divided(const std::vector<float>& x, float scale) {
  std::vector<double> values;
  for (const float each : x) values.push_back(code_of(each, scale) * static_cast<double>(scale));
  return values;
}

Plan int8_plan(const std::string& scale, const std::string& second) {
  Plan plan;
  PlanRule rule{.path = "*", .op = "", .read = kInt8Format};
  rule.accumulation = Accumulation::fp64;
  rule.scale = parse_scale(scale).value();
  if (!second.empty()) rule.second_scale = parse_scale(second).value();
  plan.rules.push_back(rule);
  return plan;
}

/// A network of one product of an input and a weight.
struct Product {
  Model model;
  Shape x, w;
  Product(const std::string& op, Shape input, Shape weight, const Attributes& attributes = {})
      : x(std::move(input)), w(std::move(weight)) {
    model.input = model.graph.add_input("input", x);
    const ValueId variable = model.graph.add_variable("layer.weight", w, {});
    const ValueId y = model.graph.add1(op, "layer", {model.input, variable}, attributes);
    model.outputs = {{"y", y}};
  }

  std::vector<float> input() const { return noise(x, 5); }
  std::vector<float> weight() const {
    std::vector<float> values = noise(w, 9);
    // Channels of very different sizes.
    for (size_t i = 0; i < values.size(); ++i) values[i] *= std::exp2(static_cast<float>(i % 7));
    return values;
  }
  std::vector<float> run(const Plan& plan) const { return run(plan, input(), weight()); }
  std::vector<float> run(const Plan& plan, const std::vector<float>& input,
                         const std::vector<float>& weight) const {
    const Executable exe = lower_inference(model, plan);
    const auto program = emulation_backend().compile(exe);
    for (const Variable& variable : exe.graph.variables()) {
      program->write(variable.value, weight);
    }
    program->write(exe.inputs[0].value, input);
    program->run(Entry::eval, {});
    return program->read(exe.outputs[0].value).data;
  }
};

void expect_near(const std::vector<float>& results, const std::vector<double>& expected) {
  ASSERT_EQ(results.size(), expected.size());
  double largest = 0.0;
  for (const double each : expected) largest = std::max(largest, std::fabs(each));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(results[i]), expected[i], 2e-7 * largest) << i;
  }
}

/// Sums x[m, k] w(k, n).
template <class At>
std::vector<double> multiplied(const std::vector<double>& x, size_t m, size_t k, size_t n,
                               const At& w) {
  std::vector<double> y(m * n);
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t at = 0; at < k; ++at) y[i * n + j] += x[i * k + at] * w(at, j);
    }
  }
  return y;
}

TEST(OperandScales, MatrixProductsHaveAScaleForEachColumn) {
  constexpr size_t kM = 5, kK = 37, kN = 6;
  const Plan plan = int8_plan("divide:0.0073", "channel");
  const Product as_is("Gemm", {kM, kK}, {kK, kN}),
      turned("Gemm", {kM, kK}, {kN, kK}, {{"transB", int64_t{1}}});
  const Product matmul("MatMul", {kM, kK}, {kK, kN});
  const std::vector<double> x = divided(as_is.input(), 0.0073f);
  for (const Product* product : {&as_is, &matmul}) {
    const std::vector<double> w =
        by_channel(product->weight(), kN, [](size_t i) { return i % kN; });
    expect_near(product->run(plan),
                multiplied(x, kM, kK, kN, [&](size_t k, size_t n) { return w[k * kN + n]; }));
  }
  const std::vector<double> w = by_channel(turned.weight(), kN, [](size_t i) { return i / kK; });
  expect_near(turned.run(plan),
              multiplied(x, kM, kK, kN, [&](size_t k, size_t n) { return w[n * kK + k]; }));
}

TEST(OperandScales, FirstOperandsHaveAScaleForEachRow) {
  constexpr size_t kM = 5, kK = 37, kN = 6;
  const Product product("MatMul", {kM, kK}, {kK, kN});
  const std::vector<double> x = by_channel(product.input(), kM, [](size_t i) { return i / kK; });
  const std::vector<double> w = divided(product.weight(), 0.5f);
  expect_near(product.run(int8_plan("channel", "divide:0.5")),
              multiplied(x, kM, kK, kN, [&](size_t k, size_t n) { return w[k * kN + n]; }));
}

TEST(OperandScales, ConvolutionsHaveAScaleForEachOutputChannel) {
  constexpr size_t kIn = 3, kOut = 4, kSide = 5, kKernel = 3, kResult = kSide - kKernel + 1;
  const Product product("Conv", {1, kIn, kSide, kSide}, {kOut, kIn, kKernel, kKernel});
  const std::vector<double> x = divided(product.input(), 0.01f);
  const std::vector<double> w =
      by_channel(product.weight(), kOut, [](size_t i) { return i / (kIn * kKernel * kKernel); });
  std::vector<double> expected(kOut * kResult * kResult);
  for (size_t at = 0; at < expected.size(); ++at) {
    const size_t out = at / (kResult * kResult), row = at / kResult % kResult,
                 column = at % kResult;
    for (size_t i = 0; i < kIn * kKernel * kKernel; ++i) {
      const size_t channel = i / (kKernel * kKernel), dy = i / kKernel % kKernel, dx = i % kKernel;
      expected[at] += x[(channel * kSide + row + dy) * kSide + column + dx] *
                      w[out * kIn * kKernel * kKernel + i];
    }
  }
  expect_near(product.run(int8_plan("divide:0.01", "channel")), expected);
}

TEST(OperandScales, DividingIsNotMultiplyingByTheInverse) {
  constexpr float kScale = 0.003f;
  std::vector<float> x;
  for (int i = -126; i < 126; ++i) x.push_back((static_cast<float>(i) + 0.5f) * kScale);
  const auto count = static_cast<int64_t>(x.size());
  const Product product("MatMul", {count, 1}, {1, 1});
  const std::vector<float> y = product.run(int8_plan("divide:0.003", "divide:1"), x, {1.0f});
  int different = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], static_cast<float>(code_of(x[i], kScale)) * kScale) << x[i];
    different += std::nearbyint(x[i] / kScale) != std::nearbyint(x[i] * (1.0f / kScale));
  }
  EXPECT_GT(different, 0);  // else this could not tell
}

TEST(OperandScales, ARuleThatSetsTheScaleSetsBoth) {
  Plan plan = int8_plan("divide:2", "channel");
  EXPECT_EQ(scale_name(*resolve(plan, "layer", "Gemm").second_scale), "channel");
  PlanRule later{.path = "layer", .op = ""};
  later.scale = parse_scale("current").value();
  plan.rules.push_back(later);
  EXPECT_FALSE(resolve(plan, "layer", "Gemm").second_scale);
  EXPECT_TRUE(resolve(plan, "other", "Gemm").second_scale);
  const Plan again = plan_from_json(plan_to_json(plan));
  EXPECT_EQ(again.rules, plan.rules);
}

TEST(OperandScales, BackwardPassesHaveNoSecondScale) {
  Product product("Gemm", {2, 3}, {3, 4});
  product.model.labels = product.model.graph.add_input("labels", {2}, ElementType::index);
  product.model.logits = product.model.outputs[0].value;
  product.model.loss = product.model.graph.add1("SoftmaxCrossEntropyLoss", "loss",
                                                {product.model.logits, product.model.labels});
  try {
    lower(product.model, int8_plan("divide:2", "channel"), {});
    FAIL() << "it trained";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer: the plan scales the second operand"));
    EXPECT_THAT(error.hint(), HasSubstr("halfscope run"));
  }
  lower(product.model, int8_plan("divide:2", ""), {});  // without it, it trains
}

TEST(OperandScales, TextsOfScalesComeBack) {
  for (const char* text : {"divide:0.25", "divide:1e-30", "channel"}) {
    EXPECT_EQ(scale_name(parse_scale(text).value()), text);
  }
  for (const char* text : {"divide", "divide:0", "divide:-1", "divide:inf", "channel:8",
                           "channel:weights=square", "divide:1,up"}) {
    EXPECT_FALSE(parse_scale(text)) << text;
  }
}

}  // namespace
}  // namespace halfscope
