// SPDX-License-Identifier: MIT
// Every operator that sums uses the accumulation of its plan. The probe is 4096 ones: one fp16
// chain adds them up to 2048, because 2048 + 1 rounds to 2048, while fp32 gets 4096.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/numeric/sums/accumulate.h"
#include "emulation/backends.h"
#include "emulation/isa.h"
#include "tests/support/op_harness.h"

namespace halfscope {
namespace {

using test::Operand;
using test::OpProgram;

Tensor filled(const Shape& shape, float value = 1.0f) {
  return {shape, std::vector<float>(static_cast<size_t>(element_count(shape)), value)};
}

Operand ones(const Shape& shape) { return {filled(shape)}; }

/// The operator with all values in fp16, summing as named; the gradient of its output is all ones.
OpProgram in_half(const std::string& op, const std::vector<Operand>& operands,
                  const Attributes& attributes, const Shape& output,
                  const std::string& accumulation) {
  const auto make = [&](Graph& graph, const std::vector<ValueId>& inputs) {
    return graph.add(op, "node", inputs, attributes).front();
  };
  const auto adjust = [&](Graph& graph) {
    for (ValueId value = 0; value < static_cast<ValueId>(graph.values().size()); ++value) {
      if (graph.value(value).type == ElementType::real) graph.value(value).format = kFp16;
    }
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
      graph.node(id).plan.accumulation = parse_accumulation(accumulation).value();
      graph.node(id).plan.read = kFp16;
    }
  };
  return OpProgram(emulation_backend(), operands, make, filled(output), false, adjust);
}

struct Sum {
  std::string name, op;
  std::vector<Operand> operands;
  Attributes attributes;
  Shape output;
  int gradient_of;  ///< look at this operand's gradient; -1: at the output
  float divided_by = 1.0f;
};

std::vector<Sum> sums() {
  const Attributes axis1{{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}};
  const Attributes axis0{{"axes", std::vector<int64_t>{0}}, {"keepdims", int64_t{0}}};
  const Attributes planes{{"axes", std::vector<int64_t>{0, 2, 3}}, {"keepdims", int64_t{0}}};
  return {
      {"reduction", "ReduceSum", {ones({2, 4096})}, axis1, {2}, -1},
      {"bias gradient of Gemm", "ReduceSum", {ones({4096, 3})}, axis0, {3}, -1},
      {"bias gradient of Conv", "ReduceSum", {ones({4, 3, 32, 32})}, planes, {3}, -1},
      {"mean", "ReduceMean", {ones({2, 4096})}, axis1, {2}, -1, 4096.0f},
      {"pooling", "GlobalAveragePool", {ones({1, 2, 64, 64})}, {}, {1, 2, 1, 1}, -1, 4096.0f},
      {"Gemm", "Gemm", {ones({2, 4096}), ones({4096, 3})}, {}, {2, 3}, -1},
      {"Gemm, weights", "Gemm", {ones({4096, 2}), ones({2, 3})}, {}, {4096, 3}, 1},
      {"Gemm, input", "Gemm", {ones({2, 3}), ones({3, 4096})}, {}, {2, 4096}, 0},
      {"Conv", "Conv", {ones({1, 4096, 2, 2}), ones({3, 4096, 1, 1})}, {}, {1, 3, 2, 2}, -1},
      {"Conv, weights", "Conv", {ones({4, 2, 32, 32}), ones({3, 2, 1, 1})}, {}, {4, 3, 32, 32}, 1},
      {"Conv, input", "Conv", {ones({1, 2, 2, 2}), ones({4096, 2, 1, 1})}, {}, {1, 4096, 2, 2}, 0},
  };
}

/// The first element of what the case looks at, all of them being equal.
float result_of(const Sum& sum, const std::string& accumulation) {
  OpProgram program = in_half(sum.op, sum.operands, sum.attributes, sum.output, accumulation);
  program.run();
  const Tensor result = sum.gradient_of < 0
                            ? program.output()
                            : program.gradient(static_cast<size_t>(sum.gradient_of)).value();
  for (const float x : result.data) EXPECT_EQ(x, result.data[0]) << sum.name;
  return result.data.at(0) * sum.divided_by;
}

TEST(AccumulationOfOperators, ManyOnes) {
  for (const Sum& sum : sums()) {
    EXPECT_EQ(result_of(sum, "fp32"), 4096.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "format"), 2048.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "format-mul-add"), 2048.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "fma32-then-round"), 2048.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "format:promote=1000"), 4096.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "format:split-k=2"), 4096.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "pairwise"), 4096.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "interleaved16"), 4096.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "kahan"), 4096.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "tensor-core:a100,acc=fp16"), 4096.0f) << sum.name;
    // From 2048 on each of 1024 ones counts as two, from 4096 on each of the others as four.
    EXPECT_EQ(result_of(sum, "format:rounding=up"), 8192.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "format-mul-add:rounding=up"), 8192.0f) << sum.name;
    EXPECT_EQ(result_of(sum, "format:rounding=toward-zero"), 2048.0f) << sum.name;
  }
}

// Sums begin with +0, and so do totals of parts; only pairwise sums add nothing to their products.
TEST(AccumulationOfOperators, SumsOfNegativeZeros) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    for (const char* how : {"pairwise", "fp32", "fp64", "interleaved16", "kahan", "format",
                            "format-mul-add", "fma32-then-round", "pairwise:split-k=2",
                            "pairwise:split-k=4096", "pairwise:split-k=10000", "pairwise:promote=8",
                            "pairwise:promote=5000", "pairwise:promote=3,split-k=5",
                            "kahan:split-k=2", "fp32:split-k=3", "format:split-k=2"}) {
      for (Sum sum : sums()) {
        for (float& x : sum.operands[sum.gradient_of == 0 ? 1 : 0].real.data) x = -0.0f;
        const float result = result_of(sum, how);
        EXPECT_EQ(result, 0.0f) << sum.name << ' ' << how;
        EXPECT_EQ(std::signbit(result), std::string(how) == "pairwise")
            << sum.name << ' ' << how << ' ' << isa_name(isa);
      }
    }
  }
  set_active_isa(before);
}

/// Every one counts as itself on average, and elements draw on their own.
TEST(AccumulationOfOperators, ManyOnesStochastically) {
  for (const Sum& sum : sums()) {
    for (const char* how : {"format:rounding=stochastic", "format-mul-add:rounding=stochastic"}) {
      OpProgram program = in_half(sum.op, sum.operands, sum.attributes, sum.output, how);
      program.run();
      const Tensor result = sum.gradient_of < 0
                                ? program.output()
                                : program.gradient(static_cast<size_t>(sum.gradient_of)).value();
      bool alike = true;
      for (const float x : result.data) {
        // Up to 4096 steps of 2 or 4 with a chance of a half or a quarter: a deviation of 100.
        EXPECT_NEAR(x * sum.divided_by, 4096.0f, 450.0f) << sum.name;
        alike = alike && x == result.data[0];
      }
      EXPECT_FALSE(alike) << sum.name;
    }
  }
}

TEST(AccumulationOfOperators, TensorCoresDoProductsOnly) {
  std::vector<float> terms(32, 0x1p-13f);
  terms[0] = 2048.0f;
  const Operand row{Tensor{{1, 32}, terms}}, column{filled({32, 1})};
  const Attributes all{{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}};
  const auto read = [](OpProgram program) {
    program.run();
    return program.output().data[0];
  };
  const auto in_fp32 = [](Graph& graph) {
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
      graph.node(id).plan.accumulation = parse_accumulation("tensor-core:a100").value();
      graph.node(id).plan.read = kFp16;
    }
  };
  const auto make = [](const std::string& op, const Attributes& attributes) {
    return [=](Graph& graph, const std::vector<ValueId>& inputs) {
      return graph.add(op, "node", inputs, attributes).front();
    };
  };
  const float product = read(OpProgram(emulation_backend(), {row, column}, make("Gemm", {}),
                                       filled({1, 1}), false, in_fp32));
  const float sum = read(
      OpProgram(emulation_backend(), {row}, make("ReduceSum", all), filled({1}), false, in_fp32));
  // a100 keeps 24 bits below 2048: 7 terms of half an fp32 ulp in the first block, cut to 3 ulps,
  // then 8 in each of three more. In an fp32 chain each one is a tie, rounded to even, and lost.
  EXPECT_EQ(product, 2048.0f + 15 * 0x1p-12f);
  EXPECT_EQ(sum, 2048.0f);
}

TEST(AccumulationOfOperators, BatchNormalization) {
  const Shape image{1, 1, 64, 64};
  const std::vector<Operand> operands{
      ones(image), ones({1}), {filled({1}, 0.0f)}, {filled({1}, 0.0f)}, ones({1})};
  const auto normalized = [&](const std::string& accumulation) {
    OpProgram program = in_half("BatchNormalization", operands, {{"training_mode", int64_t{1}}},
                                image, accumulation);
    program.run();
    return program.output().data[0];
  };
  EXPECT_EQ(normalized("fp32"), 0.0f) << "all alike: each is the mean";
  EXPECT_EQ(normalized("tensor-core:h100"), 0.0f);
  // Mean 2048 / 4096; squares of 0.5 add up to 512 in fp16, where 512 + 0.25 rounds to 512.
  const double expected = 0.5 / std::sqrt(512.0 / 4096.0 + 1e-5);
  EXPECT_NEAR(normalized("format"), expected, expected * 0x1p-11);
  OpProgram program =
      in_half("BatchNormalization", operands, {{"training_mode", int64_t{1}}}, image, "format");
  program.run();
  EXPECT_EQ(program.gradient(2).value().data[0], 2048.0f) << "sum of 4096 gradients";
  OpProgram stochastic = in_half("BatchNormalization", operands, {{"training_mode", int64_t{1}}},
                                 image, "format:rounding=stochastic");
  stochastic.run();
  EXPECT_NEAR(stochastic.gradient(2).value().data[0], 4096.0f, 450.0f);
}

TEST(AccumulationOfOperators, NormalizationsWithinASample) {
  const auto first = [](const std::string& op, const std::vector<Operand>& operands,
                        const Attributes& attributes, const std::string& accumulation) {
    OpProgram program = in_half(op, operands, attributes, operands[0].real.shape, accumulation);
    program.run();
    return program.output().data[0];
  };
  const Operand zeros{filled({4096}, 0.0f)};
  const double expected = 0.5 / std::sqrt(512.0 / 4096.0 + 1e-5);  // as in BatchNormalization
  for (const auto& [op, operands, attributes] :
       std::vector<std::tuple<std::string, std::vector<Operand>, Attributes>>{
           {"LayerNormalization", {ones({1, 4096}), ones({4096}), zeros}, {}},
           {"InstanceNormalization", {ones({1, 1, 4096}), ones({1}), {filled({1}, 0.0f)}}, {}},
           {"GroupNormalization",
            {ones({1, 2, 2048}), ones({2}), {filled({2}, 0.0f)}},
            {{"num_groups", int64_t{1}}}}}) {
    EXPECT_EQ(first(op, operands, attributes, "fp32"), 0.0f) << op;
    EXPECT_EQ(first(op, operands, attributes, "tensor-core:h100"), 0.0f) << op;
    EXPECT_NEAR(first(op, operands, attributes, "format"), expected, expected * 0x1p-11) << op;
  }
  const std::vector<Operand> rms{ones({1, 4096}), ones({4096})};
  EXPECT_EQ(first("RMSNormalization", rms, {}, "fp32"), 1.0f);
  EXPECT_NEAR(first("RMSNormalization", rms, {}, "format"), std::sqrt(2.0), 1e-3);
  // The gradient of a bias adds up rows.
  const std::vector<Operand> rows{ones({4096, 2}), ones({2}), ones({2})};
  OpProgram program = in_half("LayerNormalization", rows, {}, {4096, 2}, "format");
  program.run();
  EXPECT_EQ(program.gradient(2).value().data, (std::vector<float>{2048.0f, 2048.0f}));
  OpProgram wide = in_half("LayerNormalization", rows, {}, {4096, 2}, "fp32");
  wide.run();
  EXPECT_EQ(wide.gradient(2).value().data, (std::vector<float>{4096.0f, 4096.0f}));
}

TEST(AccumulationOfOperators, Softmax) {
  const auto of = [](const std::string& op, const std::string& accumulation) {
    OpProgram program = in_half(op, {{filled({1, 4096}, 0.0f)}}, {}, {1, 4096}, accumulation);
    program.run();
    return std::pair(program.output().data[0], program.gradient(0).value().data[0]);
  };
  EXPECT_EQ(of("Softmax", "fp32").first, 0x1p-12f);
  EXPECT_EQ(of("Softmax", "format").first, 0x1p-11f) << "4096 exponentials of 0";
  for (const auto& [accumulation, sum] : {std::pair("fp32", 4096.0), std::pair("format", 2048.0)}) {
    const auto [y, dx] = of("LogSoftmax", accumulation);
    EXPECT_NEAR(y, -std::log(sum), 0.004) << accumulation;
    EXPECT_NEAR(dx, 1.0 - std::exp(static_cast<double>(y)) * sum, 1e-5) << accumulation;
  }
}

TEST(AccumulationOfOperators, SquaredErrors) {
  const auto loss = [](const std::string& accumulation) {
    OpProgram program = in_half("MeanSquaredError", {ones({2, 2048}), {filled({2, 2048}, 0.0f)}},
                                {}, {}, accumulation);
    program.run();
    return program.scalar_output();
  };
  EXPECT_EQ(loss("fp32"), 1.0);
  EXPECT_EQ(loss("format"), 0.5);
  EXPECT_EQ(loss("format:rounding=up"), 2.0);
}

TEST(AccumulationOfOperators, Loss) {
  const auto loss = [&](int64_t rows, int64_t classes, const std::string& accumulation) {
    const Operand labels{{}, std::vector<int32_t>(static_cast<size_t>(rows), 0)};
    OpProgram program = in_half("SoftmaxCrossEntropyLoss",
                                {{filled({rows, classes}, 0.0f)}, labels}, {}, {}, accumulation);
    program.run();
    return program.scalar_output();
  };
  EXPECT_NEAR(loss(1, 4096, "fp32"), std::log(4096.0), 0.01);
  EXPECT_NEAR(loss(1, 4096, "format"), std::log(2048.0), 0.01) << "4096 exponentials of 0";
  EXPECT_NEAR(loss(1, 4096, "format:rounding=up"), std::log(8192.0), 0.01);
  EXPECT_NEAR(loss(1, 4096, "format:rounding=stochastic"), std::log(4096.0), 0.12);
  EXPECT_NEAR(loss(4096, 2, "format:rounding=stochastic"), std::log(2.0), 0.08);
  // The mean of the rows' losses log(2): in fp16 the sum stops at 1024, where 0.69 rounds to 1,
  // and at 2048, where it rounds to nothing.
  EXPECT_NEAR(loss(4096, 2, "fp32"), std::log(2.0), 1e-3);
  EXPECT_NEAR(loss(4096, 2, "format"), 0.5, 1e-3);
}

}  // namespace
}  // namespace halfscope
