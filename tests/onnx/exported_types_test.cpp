// SPDX-License-Identifier: MIT
// Results of the plan of a file's own types, and lanes with constants that a file casts. The
// expected numbers are from NumPy, which evaluates the files node by node in float16 with sums in
// float32, and from IEEE 754.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/policy/policy.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::Each;
using testing::ElementsAre;

constexpr int kFloat = 1, kHalf = 10;
// Codes of float16.
constexpr int kTwo = 0x4000, kOne = 0x3c00, kHalfOne = 0x3800, kEpsilon = 0x00a8;  // 1.0014e-5

void halves(FileBuilder& file, const std::string& name, const std::vector<int64_t>& shape,
            const std::vector<int>& codes) {
  ::onnx::TensorProto& tensor = *file.graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(kHalf);
  for (const int64_t size : shape) tensor.add_dims(size);
  for (const int code : codes) tensor.add_int32_data(code);
}

void cast(FileBuilder& file, const std::string& from, const std::string& to, int type) {
  test::set_int(file.node("Cast", {from}, {to}, "cast_" + to), "to", type);
}

std::vector<std::string> operators(const Model& model) {
  std::vector<std::string> names;
  for (const Node& node : model.graph.nodes()) names.push_back(node.op);
  return names;
}

std::vector<float> outputs(const OnnxImport& import, const Plan& plan, const Tensor& x) {
  return test::run(test::start(import.model, plan), std::vector{x})[0].data;
}

std::vector<float> outputs(const OnnxImport& import, const std::string& plan, const Tensor& x) {
  return outputs(import, preset_plan(plan).value(), x);
}

/// x - mean(x) over sqrt(mean((x - mean(x))^2) + 1e-5), in halves.
FileBuilder written_layer_norm() {
  FileBuilder file;
  file.input("x", {1, 4}, kHalf).output("y");
  halves(file, "two", {}, {kTwo});
  halves(file, "epsilon", {}, {kEpsilon});
  halves(file, "gamma", {4}, {kOne, kOne, kOne, kOne});
  test::set_ints(file.node("ReduceMean", {"x"}, {"m"}, "mean"), "axes", {-1});
  file.node("Sub", {"x", "m"}, {"c"}, "sub");
  file.node("Pow", {"c", "two"}, {"s"}, "pow");
  test::set_ints(file.node("ReduceMean", {"s"}, {"v"}, "mean_2"), "axes", {-1});
  file.node("Add", {"v", "epsilon"}, {"e"}, "add");
  file.node("Sqrt", {"e"}, {"r"}, "sqrt");
  file.node("Div", {"c", "r"}, {"d"}, "div");
  file.node("Mul", {"d", "gamma"}, {"y"}, "norm");
  return file;
}

TEST(ExportedTypes, AWrittenNormalizationOverflowsWhereTheFileDoes) {
  const OnnxImport import = written_layer_norm().import();
  ASSERT_THAT(operators(import.model), ElementsAre("LayerNormalization"));
  EXPECT_TRUE(resolve(import.types, "norm", "LayerNormalization").stagewise);
  // 450^2 is beyond 65504.
  const Tensor x{{1, 4}, {600, 0, 0, 0}};
  EXPECT_THAT(outputs(import, import.types, x), Each(0.0f));
  EXPECT_THAT(outputs(import, "float16_stagewise", x), Each(0.0f));
  // PyTorch's kernel computes in fp32: 450 / sqrt(67500).
  EXPECT_NEAR(outputs(import, "float16", x)[0], 1.7320508, 1e-3);
  EXPECT_NEAR(outputs(import, "float32", x)[0], 1.7320508, 1e-6);
}

TEST(ExportedTypes, EveryPrimitiveRounds) {
  const OnnxImport import = written_layer_norm().import();
  EXPECT_THAT(outputs(import, import.types, {{1, 4}, {3, 1, 0.25f, -2}}),
              ElementsAre(1.3623046875f, 0.24450683593750f, -0.1746826171875f, -1.4326171875f));
}

TEST(ExportedTypes, PrimitivesAreCalledByWhatTheyDo) {
  const OnnxImport import = written_layer_norm().import();
  std::vector<std::string> paths;
  const auto running = test::start(import.model, import.types);
  for (const Node& node : running.executable.graph.nodes()) {
    if (node.op != "Cast") paths.push_back(node.path);
  }
  EXPECT_THAT(paths, ElementsAre("norm/mean", "norm/centre", "norm/square", "norm/var", "norm/eps",
                                 "norm/sqrt", "norm/normalize", "norm/scale"));
}

TEST(ExportedTypes, ARuleCanNameAPrimitive) {
  const OnnxImport import = written_layer_norm().import();
  Plan plan = import.types;
  for (const char* path : {"norm/square", "norm/var"}) keep_fp32(plan, path);
  // fp32(67500) rounds to infinity where the sum with epsilon is written, unless that is in fp32,
  // too.
  for (const char* path : {"norm/eps", "norm/sqrt"}) keep_fp32(plan, path);
  EXPECT_NEAR(outputs(import, plan, {{1, 4}, {600, 0, 0, 0}})[0], 1.7320508, 1e-3);
}

/// x * (1 / rms(x)), in halves, or in float32 between Casts.
FileBuilder written_rms_norm(bool wide) {
  FileBuilder file;
  file.input("x", {1, 4}, kHalf).output("y");
  const std::string x = wide ? "w" : "x", y = wide ? "n" : "y";
  if (wide) {
    cast(file, "x", "w", kFloat);
    file.floats("two", {}, {2}).floats("epsilon", {}, {1e-5f});
  } else {
    halves(file, "two", {}, {kTwo});
    halves(file, "epsilon", {}, {kEpsilon});
  }
  file.node("Pow", {x, "two"}, {"s"}, "pow");
  test::set_ints(file.node("ReduceMean", {"s"}, {"v"}, "mean"), "axes", {-1});
  file.node("Add", {"v", "epsilon"}, {"e"}, "add");
  file.node("Sqrt", {"e"}, {"r"}, "sqrt");
  file.node("Reciprocal", {"r"}, {"i"}, "inverse");
  file.node("Mul", {x, "i"}, {y}, "rms");
  if (wide) cast(file, "n", "y", kHalf);
  return file;
}

TEST(ExportedTypes, PrimitivesHaveTheFormOfTheFile) {
  const OnnxImport import = written_rms_norm(false).import();
  ASSERT_THAT(operators(import.model), ElementsAre("RMSNormalization"));
  // x / r would be 1.1494140625 first.
  EXPECT_THAT(outputs(import, import.types, {{1, 4}, {1.580078125f, 1, 0.25f, -2}}),
              ElementsAre(1.1484375f, 0.72705078125f, 0.1817626953125f, -1.4541015625f));
}

TEST(ExportedTypes, WhatTheFileComputesInFloat32BetweenCastsStaysFused) {
  const OnnxImport import = written_rms_norm(true).import();
  ASSERT_THAT(operators(import.model), ElementsAre("Identity", "RMSNormalization", "Identity"));
  EXPECT_FALSE(resolve(import.types, "rms", "RMSNormalization").stagewise);
  // 600^2 is no problem there: the result is 2.
  EXPECT_THAT(outputs(import, import.types, {{1, 4}, {600, 0, 0, 0}}), ElementsAre(2, 0, 0, 0));
}

TEST(ExportedTypes, AGeluMultipliesInTheOrderOfTheFile) {
  for (const bool half_first : {true, false}) {
    FileBuilder file;
    file.input("x", {1, 1}, kHalf).output("y");
    halves(file, "half", {}, {kHalfOne});
    halves(file, "one", {}, {kOne});
    halves(file, "root", {}, {0x3da8});  // 1.4140625
    file.node("Div", {"x", "root"}, {"d"}, "div");
    file.node("Erf", {"d"}, {"f"}, "erf");
    file.node("Add", {"f", "one"}, {"g"}, "add");
    if (half_first) {
      file.node("Mul", {"x", "half"}, {"h"}, "mul");
      file.node("Mul", {"h", "g"}, {"y"}, "gelu");
    } else {
      file.node("Mul", {"x", "g"}, {"h"}, "mul");
      file.node("Mul", {"h", "half"}, {"y"}, "gelu");
    }
    const OnnxImport import = file.import();
    ASSERT_THAT(operators(import.model), ElementsAre("Gelu"));
    const Tensor x{{1, 1}, {40000}};
    // 2 * 40000 overflows on the way.
    const float expected = half_first ? 40000.0f : INFINITY;
    EXPECT_EQ(outputs(import, import.types, x)[0], expected);
    EXPECT_EQ(outputs(import, "float16", x)[0], 40000.0f);
  }
}

TEST(ExportedTypes, AnInstanceNormalizationHasStatisticsOfItsType) {
  FileBuilder file;
  file.input("x", {1, 1, 2, 2}, kHalf).output("y");
  halves(file, "gamma", {1}, {kOne});
  halves(file, "beta", {1}, {0});
  file.node("InstanceNormalization", {"x", "gamma", "beta"}, {"y"}, "norm");
  const OnnxImport import = file.import();
  const Tensor x{{1, 1, 2, 2}, {512, -512, 512, -512}};
  EXPECT_THAT(outputs(import, import.types, x), Each(0.0f)) << "512^2 overflows float16";
  EXPECT_THAT(outputs(import, "float16", x), ElementsAre(1, -1, 1, -1));
}

/// softmax(x k * scale) v with a softmax in float32 between Casts.
TEST(ExportedTypes, ThePartsOfAnAttentionHaveTheTypesOfTheFile) {
  FileBuilder file;
  file.input("q", {1, 1}, kHalf).input("k", {1, 2}, kHalf).input("v", {2, 1}, kHalf);
  file.output("y");
  file.node("MatMul", {"q", "k"}, {"s"}, "scores");
  cast(file, "s", "w", kFloat);
  file.floats("mask", {1, 2}, {0, -1e9f});
  file.node("Add", {"w", "mask"}, {"a"}, "add");
  test::set_int(file.node("Softmax", {"a"}, {"p"}, "softmax"), "axis", -1);
  cast(file, "p", "h", kHalf);
  file.node("MatMul", {"h", "v"}, {"y"}, "attend");
  const OnnxImport import = file.import();
  ASSERT_THAT(operators(import.model), ElementsAre("Attention"));
  const auto running = test::start(import.model, import.types);
  std::vector<std::string> formats;
  for (const Node& node : running.executable.graph.nodes()) {
    if (node.op != "Cast") formats.push_back(node.path + " " + format_name(node.plan.write));
  }
  EXPECT_THAT(formats, ElementsAre("attend/scores fp16", "attend/mask fp32", "attend/softmax fp32",
                                   "attend/mix fp16"));
}

TEST(ExportedTypes, ACastThatRoundsWithinAnAttentionStays) {
  FileBuilder file;
  file.input("q", {1, 1}).input("k", {1, 2}).input("v", {2, 1}).output("y");
  file.node("MatMul", {"q", "k"}, {"s"}, "scores");
  cast(file, "s", "h", kHalf);
  cast(file, "h", "w", kFloat);
  test::set_int(file.node("Softmax", {"w"}, {"p"}, "softmax"), "axis", -1);
  file.node("MatMul", {"p", "v"}, {"y"}, "attend");
  const OnnxImport import = file.import();
  const std::vector<Tensor> inputs{{{1, 1}, {1}}, {{1, 2}, {70000, 0}}, {{2, 1}, {1, 2}}};
  // 70000 is infinite in float16, and a softmax with an infinity is NaN.
  EXPECT_TRUE(std::isnan(test::run(test::start(import.model, import.types), inputs)[0].data[0]));
}

// ---- constants ----

TEST(CastConstants, LanesRoundAnEpsilonThemselves) {
  FileBuilder file;
  file.input("x", {1, 2}, kHalf).output("y");
  file.floats("wide", {}, {1e-8f});
  cast(file, "wide", "epsilon", kHalf);
  file.node("Add", {"x", "epsilon"}, {"s"}, "add");
  file.node("Log", {"s"}, {"y"}, "log");
  const OnnxImport import = file.import();
  const Tensor x{{1, 2}, {0, 1}};
  EXPECT_NEAR(outputs(import, "float32", x)[0], std::log(1e-8), 1e-5);
  EXPECT_THAT(outputs(import, import.types, x), ElementsAre(-INFINITY, 0));
  EXPECT_THAT(outputs(import, "float16", x), ElementsAre(-INFINITY, 0));
}

TEST(CastConstants, ArithmeticThatRoundingChangesIsDoneByEveryLane) {
  // (1 - keep) * -1e9: 0 times -inf is NaN in float16.
  FileBuilder file;
  file.input("x", {1, 2}, kHalf).output("y");
  file.floats("keep", {1, 2}, {1, 0}).floats("one", {}, {1}).floats("low", {}, {-1e9f});
  cast(file, "keep", "k", kHalf);
  cast(file, "one", "o", kHalf);
  cast(file, "low", "l", kHalf);
  file.node("Sub", {"o", "k"}, {"hide"}, "sub");
  file.node("Mul", {"hide", "l"}, {"mask"}, "mul");
  file.node("Add", {"x", "mask"}, {"y"}, "add");
  const OnnxImport import = file.import();
  const Tensor x{{1, 2}, {3, 4}};
  EXPECT_THAT(outputs(import, "float32", x), ElementsAre(3, -1e9f));
  const std::vector<float> half = outputs(import, import.types, x);
  EXPECT_TRUE(std::isnan(half[0]));
  EXPECT_EQ(half[1], -INFINITY);
}

TEST(CastConstants, OneThatIsCastBackIsRoundedInTheLaneOfTheTypes) {
  FileBuilder file;
  file.input("x", {1, 1}).output("y");
  file.floats("wide", {}, {1e-12f});
  cast(file, "wide", "half", kHalf);
  cast(file, "half", "back", kFloat);
  file.node("Add", {"x", "back"}, {"y"}, "add");
  const OnnxImport import = file.import();
  const Tensor x{{1, 1}, {0}};
  EXPECT_EQ(outputs(import, "float32", x)[0], 1e-12f);
  EXPECT_EQ(outputs(import, import.types, x)[0], 0.0f);
}

TEST(CastConstants, MovedAndJoinedOnesAreKnownUnrounded) {
  FileBuilder file;
  file.input("x", {1, 4}, kHalf).output("y");
  file.floats("wide", {}, {1e-12f}).floats("ten", {}, {1e6f});
  file.integers("shape", {2}, {1, 2});
  cast(file, "wide", "small", kHalf);
  cast(file, "ten", "large", kHalf);
  file.node("Expand", {"small", "shape"}, {"a"}, "expand");
  file.node("Expand", {"large", "shape"}, {"b"}, "expand_2");
  test::set_int(file.node("Concat", {"a", "b"}, {"c"}, "concat"), "axis", 1);
  file.node("Mul", {"x", "c"}, {"y"}, "mul");
  const OnnxImport import = file.import();
  ASSERT_THAT(operators(import.model), ElementsAre("Mul"));
  const Tensor x{{1, 4}, {1, 1, 1, 1}};
  EXPECT_THAT(outputs(import, "float32", x), ElementsAre(1e-12f, 1e-12f, 1e6f, 1e6f));
  EXPECT_THAT(outputs(import, import.types, x), ElementsAre(0, 0, INFINITY, INFINITY));
}

TEST(CastConstants, AClipRoundsItsLimitWithItsResult) {
  FileBuilder file;
  file.input("x", {1, 2}, kHalf).output("y");
  file.floats("wide", {}, {1e-12f});
  cast(file, "wide", "low", kHalf);
  file.node("Clip", {"x", "low"}, {"y"}, "clip");
  const OnnxImport import = file.import();
  const Tensor x{{1, 2}, {0, 5}};
  EXPECT_THAT(outputs(import, "float32", x), ElementsAre(1e-12f, 5));
  EXPECT_THAT(outputs(import, import.types, x), ElementsAre(0, 5));
}

TEST(CastConstants, ANormalizationKeepsTheEpsilonThatTheFileCasts) {
  FileBuilder file;
  file.input("x", {1, 2}, kHalf).output("y");
  halves(file, "two", {}, {kTwo});
  file.floats("wide", {}, {1e-12f});
  cast(file, "wide", "epsilon", kHalf);
  file.node("Pow", {"x", "two"}, {"s"}, "pow");
  test::set_ints(file.node("ReduceMean", {"s"}, {"v"}, "mean"), "axes", {-1});
  file.node("Add", {"v", "epsilon"}, {"e"}, "add");
  file.node("Sqrt", {"e"}, {"r"}, "sqrt");
  file.node("Div", {"x", "r"}, {"y"}, "rms");
  const OnnxImport import = file.import();
  ASSERT_THAT(operators(import.model), ElementsAre("RMSNormalization"));
  const Tensor x{{1, 2}, {0, 0}};
  EXPECT_THAT(outputs(import, "float32", x), Each(0.0f));
  for (const float y : outputs(import, import.types, x)) EXPECT_TRUE(std::isnan(y)) << "0 / 0";
}

// ---- presets ----

TEST(PureFormats, NoOperatorComputesInFp32) {
  FileBuilder file;
  file.input("x", {1, 2}).output("e").output("p").output("s").output("r");
  file.floats("three", {}, {3});
  file.node("Exp", {"x"}, {"e"}, "exp");
  file.node("Pow", {"x", "three"}, {"p"}, "pow");
  file.integers("axes", {1}, {1});
  file.node("ReduceSum", {"e", "axes"}, {"s"}, "sum");
  file.node("Reciprocal", {"x"}, {"r"}, "reciprocal");
  const OnnxImport import = file.import();
  const std::vector<Tensor> x{{{1, 2}, {20, 0x1p-17f}}};
  for (const char* name : {"float16", "float16_stagewise"}) {
    const auto y = test::run(test::start(import.model, preset_plan(name).value()), x);
    EXPECT_THAT(y[0].data, ElementsAre(INFINITY, 1)) << "exp(20) is 4.9e8";
    EXPECT_THAT(y[1].data, ElementsAre(8000, 0));
    EXPECT_THAT(y[2].data, ElementsAre(INFINITY));
    EXPECT_THAT(y[3].data, ElementsAre(0.04998779296875f, INFINITY)) << "2^17 is beyond 65504";
  }
}

TEST(PureFormats, StagewiseSumsCanRoundEveryTerm) {
  // 2048 + 1 is 2048 in float16, so a sum of ones stalls there.
  FileBuilder file;
  file.input("x", {1, 4096}).output("sum").output("mean").output("pool");
  file.integers("axes", {1}, {1}).integers("shape", {3}, {1, 1, 4096});
  file.node("ReduceSum", {"x", "axes"}, {"sum"}, "sum");
  test::set_ints(file.node("ReduceMean", {"x"}, {"mean"}, "mean"), "axes", {1});
  file.node("Reshape", {"x", "shape"}, {"image"}, "image");
  file.node("GlobalAveragePool", {"image"}, {"pool"}, "pool");
  const OnnxImport import = file.import();
  const std::vector<Tensor> x{{{1, 4096}, std::vector<float>(4096, 1.0f)}};
  Plan plan = preset_plan("float16_stagewise").value();
  auto y = test::run(test::start(import.model, plan), x);
  EXPECT_EQ(y[0].data[0], 4096.0f);
  EXPECT_EQ(y[1].data[0], 1.0f);
  accumulate_in(plan, Accumulation::format);
  y = test::run(test::start(import.model, plan), x);
  EXPECT_EQ(y[0].data[0], 2048.0f);
  EXPECT_EQ(y[1].data[0], 0.5f);
  EXPECT_EQ(y[2].data[0], 0.5f);
}

}  // namespace
}  // namespace halfscope
