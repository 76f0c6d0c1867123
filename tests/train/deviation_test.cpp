// SPDX-License-Identifier: MIT
// Distances from the truth worked out by hand: what a meter sums up over batches, what
// it leaves out, by how much values move by one ulp, and in which format a lane reads its
// variables.
#include "core/observe/deviation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/models/loss.h"
#include "core/models/models.h"
#include "core/policy/policy.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Floats = std::vector<float>;

Deviation measured(const Floats& x, const Floats& truth, double factor = 1.0) {
  DeviationMeter meter;
  meter.add(x, truth, factor);
  Deviation result;
  meter.write(result);
  return result;
}

TEST(DeviationMeter, IsARelativeNorm) {
  // 0.5 of 5, the longest side of a right triangle with sides 3 and 4.
  const Deviation far = measured({3.0f, 4.5f}, {3.0f, 4.0f});
  EXPECT_EQ(far.n, 2);
  EXPECT_EQ(far.broken, 0);
  EXPECT_DOUBLE_EQ(far.error, 0.1);
  EXPECT_DOUBLE_EQ(far.ratio, std::sqrt(29.25 / 25.0));
  const Deviation equal = measured({3.0f, -4.0f}, {3.0f, -4.0f});
  EXPECT_EQ(equal.error, 0.0);
  EXPECT_EQ(equal.ratio, 1.0);
  EXPECT_DOUBLE_EQ(measured({-3.0f, -4.0f}, {3.0f, 4.0f}).error, 2.0) << "signs count";
}

// Loss scales are powers of two, but need not be.
TEST(DeviationMeter, DividesByTheFactorFirst) {
  const Deviation scaled = measured({24.0f, 36.0f}, {3.0f, 4.0f}, 8.0);
  EXPECT_DOUBLE_EQ(scaled.error, 0.1);
  EXPECT_DOUBLE_EQ(scaled.ratio, std::sqrt(29.25 / 25.0));
  EXPECT_EQ(measured({30.0f}, {10.0f}, 3.0).error, 0.0);
  // When the scaled number is fp32's largest, the unscaled one is not infinite.
  EXPECT_EQ(measured({0x1p127f}, {0x1p100f}, 0x1p27).error, 0.0);
}

TEST(DeviationMeter, SumsUpBatches) {
  DeviationMeter meter;
  meter.add(Floats{3.5f, 4.0f}, Floats{3.0f, 4.0f});
  meter.add(Floats{6.0f, 8.5f}, Floats{6.0f, 8.0f});
  EXPECT_EQ(meter.count(), 4);
  EXPECT_EQ(meter.truth_energy(), 125.0);
  Deviation both;
  meter.write(both);
  EXPECT_EQ(both.n, 4);
  EXPECT_DOUBLE_EQ(both.error, std::sqrt(0.5 / 125.0));
}

TEST(DeviationMeter, CountsWhatIsFiniteInTheTruthOnly) {
  const Deviation some = measured({kInf, 2.5f, kNaN, -kInf}, {1.0f, 2.0f, 3.0f, 4.0f});
  EXPECT_EQ(some.n, 4);
  EXPECT_EQ(some.broken, 3);
  EXPECT_DOUBLE_EQ(some.error, 0.25) << "of what is finite in both";
  EXPECT_DOUBLE_EQ(some.ratio, 1.25);
}

TEST(DeviationMeter, LeavesOutWhatTheTruthDoesNotKnow) {
  const Deviation some = measured({5.0f, kNaN, kInf, 2.5f}, {kInf, kInf, kNaN, 2.0f});
  EXPECT_EQ(some.broken, 0);
  EXPECT_DOUBLE_EQ(some.error, 0.25);
}

TEST(DeviationMeter, HasNoDistanceOfNothing) {
  for (const Deviation& none : {measured({kNaN, kInf}, {1.0f, 2.0f}), measured({}, {})}) {
    EXPECT_EQ(none.broken, none.n);
    EXPECT_TRUE(std::isnan(none.error));
    EXPECT_TRUE(std::isnan(none.ratio));
  }
}

TEST(DeviationMeter, OfZeroAnythingElseIsInfinitelyFar) {
  const Deviation other = measured({0.0f, 1e-30f}, {0.0f, 0.0f});
  EXPECT_TRUE(std::isinf(other.error));
  EXPECT_TRUE(std::isinf(other.ratio));
  const Deviation same = measured({0.0f, -0.0f}, {0.0f, 0.0f});
  EXPECT_EQ(same.error, 0.0);
  EXPECT_EQ(same.ratio, 1.0);
}

// Position 4 is as far from 3 as from 1000.
TEST(DeviationMeter, IndicesAreEqualOrNot) {
  for (const float wrong : {3.0f, 1000.0f}) {
    DeviationMeter meter;
    meter.add_indices(Floats{1.0f, 2.0f, wrong, 4.0f}, Floats{1.0f, 2.0f, 0.0f, 4.0f});
    Deviation result;
    meter.write(result);
    EXPECT_EQ(result.n, 4);
    EXPECT_EQ(result.broken, 0);
    EXPECT_DOUBLE_EQ(result.error, 0.5) << "the root of one in four";
    EXPECT_TRUE(std::isnan(result.ratio)) << "they have no size";
  }
}

TEST(Deviation, KindsHaveNamesThatReadBack) {
  for (const auto of :
       {Deviation::Of::output, Deviation::Of::loss, Deviation::Of::gradient, Deviation::Of::weight,
        Deviation::Of::average, Deviation::Of::buffer, Deviation::Of::training}) {
    EXPECT_EQ(parse_deviation(deviation_name(of)), of);
  }
  EXPECT_STREQ(deviation_name(Deviation::Of::gradient), "gradient");
  EXPECT_FALSE(parse_deviation("gradients"));
}

// Numbers of nine bits and more.
TEST(MoveByUlp, OfAFormatWithTenBits) {
  for (uint64_t key = 0; key < 16; ++key) {
    Floats values{0x1.01p0f, 0x1.81p0f, 0x1.83p1f, -0x1.01p0f, 0x1.81p-100f, 0x1.01p100f};
    const Floats ulps{0x1p-10f, 0x1p-10f, 0x1p-9f, 0x1p-10f, 0x1p-110f, 0x1p90f};
    const Floats before = values;
    move_by_ulp(values, 10, key);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::fabs(values[i] - before[i]), ulps[i]) << before[i];
    }
  }
}

TEST(MoveByUlp, OfAnyMagnitude) {
  for (const int bits : {2, 3, 7, 10}) {
    for (int exponent = -126; exponent <= 127; ++exponent) {
      const float value = std::ldexp(0x1.234566p0f, exponent);
      Floats values{value, -value};
      move_by_ulp(values, bits, 9);
      for (const float moved : values) {
        EXPECT_EQ(std::fabs(std::fabs(moved) - value), std::ldexp(1.0f, exponent - bits))
            << value << " with " << bits << " bits";
      }
    }
    Floats subnormal{0x1.2345p-130f};
    move_by_ulp(subnormal, bits, 9);
    EXPECT_EQ(std::fabs(subnormal[0] - 0x1.2345p-130f), std::ldexp(1.0f, -130 - bits)) << bits;
  }
}

// fp16 has 11 bits, so that 8 are exact on purpose; bf16 has 8, e4m3 4 and e5m2 3.
TEST(MoveByUlp, NumbersOfFewBitsStay) {
  const auto stays = [](float value, int bits) {
    Floats values{value, -value};
    move_by_ulp(values, bits, 3);
    return values == Floats{value, -value};
  };
  for (const float value : {1.0f, 50.0f, 255.0f, 0x1.fep-20f, 0x1.fep-140f}) {
    EXPECT_TRUE(stays(value, 10)) << value;
  }
  for (const float value : {257.0f, 511.0f, 0.1f, 0x1.01p-20f, 0x1.01p-130f}) {
    EXPECT_FALSE(stays(value, 10)) << value;
  }
  EXPECT_TRUE(stays(31.0f, 7));
  EXPECT_FALSE(stays(33.0f, 7));
  EXPECT_TRUE(stays(4.0f, 3));
  EXPECT_FALSE(stays(3.0f, 3));
  EXPECT_FALSE(stays(1.0f, 2)) << "e5m2 has no bit to spare";
  for (const int wide : {23, 52}) {
    EXPECT_TRUE(stays(255.0f, wide));
    EXPECT_FALSE(stays(257.0f, wide)) << "random numbers may have unused bits, too";
  }
}

TEST(MoveByUlp, AFewSuchNumbersAmongOthersAreMoved) {
  Floats values{1.0f, 0.1f, 0.2f};
  move_by_ulp(values, 10, 3);
  EXPECT_NE(values[0], 1.0f);
  EXPECT_NE(values[1], 0.1f);
  values = {1.0f, 0.1f, 0.0f, kInf};
  move_by_ulp(values, 10, 3);
  EXPECT_EQ(values[0], 1.0f) << "half of those that are numbers and not zero";
  EXPECT_NE(values[1], 0.1f);
  values = {255.0f, 257.0f};
  move_by_ulp(values, 23, 3);
  EXPECT_EQ(values[0], 255.0f);
  EXPECT_EQ(std::fabs(values[1] - 257.0f), 0x1p-15f);
}

TEST(MoveByUlp, ZeroInfinityAndNaNStay) {
  for (const int bits : {2, 10, 23}) {
    Floats values{0.0f, -0.0f, kInf, -kInf, kNaN};
    move_by_ulp(values, bits, 5);
    EXPECT_EQ(values[0], 0.0f);
    EXPECT_TRUE(std::signbit(values[1]) && values[1] == 0.0f);
    EXPECT_EQ(values[2], kInf);
    EXPECT_EQ(values[3], -kInf);
    EXPECT_TRUE(std::isnan(values[4]));
  }
}

TEST(MoveByUlp, InFp32TakesTheNeighbour) {
  for (const int bits : {23, 52}) {
    Floats values;
    for (int i = 0; i < 400; ++i) {
      values.push_back((i % 2 == 0 ? 1.0f : -1.0f) *
                       std::ldexp(1.0001f + 0.001f * static_cast<float>(i), i % 61 - 30));
    }
    const Floats before = values;
    move_by_ulp(values, bits, 7);
    for (size_t i = 0; i < values.size(); ++i) {
      const float up = std::nextafterf(before[i], kInf), down = std::nextafterf(before[i], -kInf);
      EXPECT_TRUE(values[i] == up || values[i] == down) << before[i] << " to " << values[i];
    }
  }
}

// For 10,000 fair coins, the number of heads has a standard deviation of 50.
TEST(MoveByUlp, HalfGoUpAndTheKeyDecidesWhich) {
  for (const int bits : {7, 10, 23}) {
    const Floats before(10000, 1.2501f);
    Floats values = before, again = before, other = before;
    move_by_ulp(values, bits, 1);
    move_by_ulp(again, bits, 1);
    move_by_ulp(other, bits, uint64_t{1} << 40);
    int64_t up = 0, as_other = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      up += values[i] > before[i] ? 1 : 0;
      as_other += values[i] == other[i] ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(up), 5000.0, 250.0);
    EXPECT_NEAR(static_cast<double>(as_other), 5000.0, 250.0) << "another key, other directions";
    EXPECT_EQ(values, again);
  }
}

Plan preset(const std::string& name) { return preset_plan(name).value(); }

TEST(ReadPrecision, IsThatOfTheFormatAVariableIsNarrowedTo) {
  const Model mlp = build_mlp({6, 5, 4, 3}, 2, {6});
  Plan plan = preset("mixed_float16");
  keep_fp32(plan, "fc2");
  const ReadPrecision mixed = read_precision(lower(mlp, plan, {}));
  EXPECT_THAT(mixed.variables, UnorderedElementsAre(Pair("fc1.weight", 10), Pair("fc1.bias", 10),
                                                    Pair("fc2.weight", 23), Pair("fc2.bias", 23),
                                                    Pair("fc3.weight", 10), Pair("fc3.bias", 10)));
  EXPECT_THAT(mixed.inputs, UnorderedElementsAre(Pair("input", 10))) << "labels are no reals";
  EXPECT_EQ(read_precision(lower(mlp, preset("mixed_bfloat16"), {})).variables.at("fc1.weight"), 7);
  // Stored in the format: nothing is narrowed for the layer.
  EXPECT_EQ(read_precision(lower(mlp, preset("float16"), {})).variables.at("fc3.weight"), 10);
  // Codes with a scale: e4m3 has three bits.
  EXPECT_EQ(read_precision(lower(mlp, preset("fp8_current"), {})).variables.at("fc1.weight"), 3);
  for (const auto& [path, bits] : read_precision(lower(mlp, preset("float32"), {})).variables) {
    EXPECT_EQ(bits, 23) << path;
  }
}

TEST(ReadPrecision, OptimizerStateIsNotWhatIsRead) {
  Plan plan = preset("mixed_bfloat16");
  const Executable exe =
      lower(build_mlp({6, 3}, 2, {6}), plan, {.optimizer = parse_optimizer("adam")});
  EXPECT_EQ(read_precision(exe).variables.at("fc1.weight"), 7);
  EXPECT_EQ(read_precision(exe).inputs.count("loss_scale"), 0u);
}

/// y = x w^T with the Transpose as a separate node; w is also added, in fp32, to a constant.
Model transposed() {
  Model model;
  model.name = "transposed";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {2, 3}), w = graph.add_variable("fc.weight", {4, 3}, {});
  const ValueId turned =
      graph.add1("Transpose", "turn", {w}, {{"perm", std::vector<int64_t>{1, 0}}});
  model.outputs = {{"y", graph.add1("MatMul", "fc", {x, turned})}};
  return model;
}

TEST(ReadPrecision, FollowsWhatOnlyMovesElements) {
  Plan plan = preset("float32");
  PlanRule rule;
  rule.op = "MatMul";
  rule.read = rule.write = kBf16;
  plan.rules.push_back(rule);
  const ReadPrecision found = read_precision(lower_inference(transposed(), plan));
  EXPECT_THAT(found.variables, UnorderedElementsAre(Pair("fc.weight", 7)));
  EXPECT_THAT(found.inputs, UnorderedElementsAre(Pair("x", 7)));
}

// A weight that two layers read counts as in the narrower one.
TEST(ReadPrecision, TheNarrowestReaderCounts) {
  Model model;
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {2, 3}), w = graph.add_variable("w", {3, 3}, {});
  const ValueId first = graph.add1("MatMul", "a", {x, w});
  model.outputs = {{"y", graph.add1("MatMul", "b", {first, w})}};
  Plan plan = preset("mixed_float16");
  keep_fp32(plan, "b");
  EXPECT_EQ(read_precision(lower_inference(model, plan)).variables.at("w"), 10);
  keep_fp32(plan, "a");
  EXPECT_EQ(read_precision(lower_inference(model, plan)).variables.at("w"), 23);
}

TEST(ReadPrecision, TargetsAreNotMoved) {
  Model model;
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {2, 3}), w = graph.add_variable("w", {3, 2}, {});
  model.outputs = {{"y", graph.add1("MatMul", "fc", {x, w})}};
  add_loss(model, parse_loss("mse"));
  const Executable exe = lower(model, preset("mixed_float16"), {});
  ASSERT_EQ(exe.inputs.size(), 2u) << "x and targets";
  EXPECT_THAT(read_precision(exe).inputs, UnorderedElementsAre(Pair("x", 10)));
}

}  // namespace
}  // namespace halfscope
