// SPDX-License-Identifier: MIT
// Values that fused plans do not round, as in PyTorch: numbers that arithmetic reads, and the steps
// of an operator that consists of several of ours. The expected values are computed by hand from
// the spacing of float16 (32 from 32768 on, 2^-12 from 0.25 on) and its largest number, 65504.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/onnx/composite_support.h"
#include "tests/onnx/torch_files.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::ElementsAre;
using testing::FloatEq;

constexpr float kInfinite = INFINITY;

std::vector<float> first_output(const OnnxImport& import, const Plan& plan, const Tensor& x) {
  return test::run(test::start(import.model, plan), std::vector{x})[0].data;
}

std::vector<float> first_output(const OnnxImport& import, const char* plan, const Tensor& x) {
  return first_output(import, preset_plan(plan).value(), x);
}

// ---- numbers ----

/// (1 - x) * -1e9
TEST(Numbers, AMaskOfAHugeNumberIsNotANumberInStagewisePlansOnly) {
  FileBuilder file;
  file.input("x", {1, 2}).output("y");
  file.floats("one", {}, {1}).floats("low", {}, {-1e9f});
  file.node("Sub", {"one", "x"}, {"hidden"}, "sub");
  file.node("Mul", {"hidden", "low"}, {"y"}, "mul");
  const OnnxImport import = file.import();
  const Tensor x{{1, 2}, {1, 0}};
  EXPECT_THAT(first_output(import, "float16", x), ElementsAre(0, -kInfinite));
  EXPECT_THAT(first_output(import, "mixed_float16", x), ElementsAre(0, -1e9f)) << "x is fp32";
  const std::vector<float> stagewise = first_output(import, "float16_stagewise", x);
  EXPECT_TRUE(std::isnan(stagewise[0])) << "0 * -inf";
  EXPECT_EQ(stagewise[1], -kInfinite);
}

/// `op` of x and a constant, or the other way round.
FileBuilder with_constant(const char* op, bool first, const std::vector<int64_t>& shape,
                          const std::vector<float>& constant) {
  FileBuilder file;
  file.input("x", {1, 2}).output("y").floats("c", shape, constant);
  if (first) {
    file.node(op, {"c", "x"}, {"y"}, "node");
  } else {
    file.node(op, {"x", "c"}, {"y"}, "node");
  }
  return file;
}

TEST(Numbers, ArithmeticReadsThemUnrounded) {
  // 0.3 is 1228.8 steps of 2^-12. 0.1 in float16 is 0.0999755859375: 3 times that is 1228.5 steps.
  constexpr float kAbove = 1229 * 0x1p-12f, kBelow = 1228 * 0x1p-12f;
  struct Case {
    const char* op;
    bool first;
    float constant, x, fused, stagewise;
  };
  // 2049 is 2048 in float16, and 70000 is infinite.
  for (const Case& each :
       {Case{"Mul", false, 0.1f, 3, kAbove, kBelow}, Case{"Mul", true, 0.1f, 3, kAbove, kBelow},
        Case{"Sub", true, 2049, 2048, 1, 0}, Case{"Add", false, -2049, 2048, -1, 0},
        Case{"Div", false, 70000, 35008, 0.5f, 0}}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 1}}) {
      SCOPED_TRACE(each.op);
      const OnnxImport import = with_constant(each.op, each.first, shape, {each.constant}).import();
      const Tensor x{{1, 2}, {each.x, each.x}};
      // 35008 / 70000 = 0.500114..., 0.23 steps above 0.5
      EXPECT_THAT(first_output(import, "float16", x), ElementsAre(each.fused, each.fused));
      EXPECT_THAT(first_output(import, "float16_stagewise", x),
                  ElementsAre(each.stagewise, each.stagewise));
    }
  }
}

TEST(Numbers, ThoseThatPyTorchRoundsAreRounded) {
  constexpr float kBelow = 1228 * 0x1p-12f;
  const Tensor x{{1, 2}, {3, 3}};
  const OnnxImport several = with_constant("Mul", false, {2}, {0.1f, 0.1f}).import();
  EXPECT_THAT(first_output(several, "float16", x), ElementsAre(kBelow, kBelow));
  // A weight is stored in float16.
  ImportOptions trains;
  trains.trainable = {"c"};
  const OnnxImport weight = with_constant("Mul", false, {1}, {0.1f}).import(trains);
  ASSERT_EQ(weight.model.graph.variables().size(), 1u);
  EXPECT_THAT(first_output(weight, "float16", x), ElementsAre(kBelow, kBelow));
  // An exponent: 70000 is infinite, and 1 to that power 1.
  const OnnxImport power = with_constant("Pow", false, {}, {2049}).import();
  const Tensor near{{1, 2}, {1.0009765625f, 1}};
  const float rounded = static_cast<float>(std::pow(1.0009765625, 2048));
  EXPECT_NEAR(first_output(power, "float16", near)[0], rounded, 0.002) << "steps of 2^-8";
}

// ---- steps of one operator ----

/// h = x (a product, so that mixed plans make it float16), y = `op` of each row of h.
OnnxImport reduction(const char* op, int64_t size, bool keeps = true) {
  FileBuilder file(13);
  file.input("x", {1, size}).output("y").floats("two", {1, 1}, {2}).floats("half", {1, 1}, {0.5f});
  file.node("Relu", {"x"}, {"h"}, "h");
  ::onnx::NodeProto& node = file.node(op, {"h"}, {"y"}, "norm");
  test::set_ints(node, "axes", {1});
  test::set_int(node, "keepdims", keeps ? 1 : 0);
  return file.import();
}

TEST(Steps, SquaresOfANormDoNotOverflow) {
  const Tensor x{{1, 2}, {3000, 4000}};
  for (const bool keeps : {true, false}) {
    const OnnxImport import = reduction("ReduceL2", 2, keeps);
    for (const char* plan : {"float32", "float16", "mixed_float16"})
      EXPECT_THAT(first_output(import, plan, x), ElementsAre(5000)) << plan;
    EXPECT_THAT(first_output(import, "float16_stagewise", x), ElementsAre(kInfinite));
  }
}

// 1 + 2^-12 is 1 in float16, and its logarithm 0.
TEST(Steps, OfOneCallOfPyTorchStayInItsKernel) {
  const auto log1p = [](const char* second) {
    test::DynamoFile file;
    file.input("x", {1, 2}).output("y").floats("one", {}, {1});
    file.node("Add", {"x", "one"}, {"sum"}, "sum");
    file.call("", "log1p", "", {});
    file.node("Log", {"sum"}, {"y"}, "log");
    file.call("", second, "", {});
    return file.import();
  };
  const Tensor x{{1, 2}, {0x1p-12f, 1}};
  EXPECT_FLOAT_EQ(first_output(log1p("log1p"), "float16", x)[0], 0x1p-12f);
  EXPECT_EQ(first_output(log1p("log1p"), "float16_stagewise", x)[0], 0.0f);
  EXPECT_EQ(first_output(log1p("log"), "float16", x)[0], 0.0f) << "another call's";
}

TEST(Steps, SmallSquaresAreNotFlushed) {
  // 4096 times 2^-26, which float16 flushes, is 2^-14.
  const Tensor x{{1, 4096}, std::vector<float>(4096, 0x1p-13f)};
  const OnnxImport squares = reduction("ReduceSumSquare", 4096);
  EXPECT_THAT(first_output(squares, "float16", x), ElementsAre(0x1p-14f));
  EXPECT_THAT(first_output(squares, "float16_stagewise", x), ElementsAre(0));
  const OnnxImport norm = reduction("ReduceL2", 4096);
  EXPECT_THAT(first_output(norm, "float16", x), ElementsAre(0x1p-7f));
  EXPECT_THAT(first_output(norm, "float16_stagewise", x), ElementsAre(0));
}

TEST(Steps, TheSumBelowALogarithmDoesNotOverflow) {
  const Tensor x{{1, 2}, {60000, 60000}};
  const OnnxImport import = reduction("ReduceLogSum", 2);
  EXPECT_NEAR(first_output(import, "float16", x)[0], std::log(120000.0), 0.004) << "steps of 2^-7";
  EXPECT_THAT(first_output(import, "float16_stagewise", x), ElementsAre(kInfinite));
}

TEST(Steps, ASumThatRoundsItsTermsRoundsThemHereToo) {
  // 2048 + 1 is 2048 in float16, and the root of 2048 is 45.25 there.
  Plan plan = preset_plan("float16").value();
  const Tensor x{{1, 4096}, std::vector<float>(4096, 1.0f)};
  const OnnxImport import = reduction("ReduceL2", 4096);
  EXPECT_THAT(first_output(import, plan, x), ElementsAre(64));
  accumulate_in(plan, Accumulation::format);
  EXPECT_THAT(first_output(import, plan, x), ElementsAre(45.25f));
}

TEST(Steps, TheResultIsRoundedOnceToTheFormatOfItsInput) {
  // 1.0507... * 3 is 3.15210...: 1614 steps of 2^-9 are 3.15234375, 1613 would be 3.150390625.
  FileBuilder file;
  file.input("x", {1, 1}).output("y").floats("w", {1, 1}, {1});
  file.node("MatMul", {"x", "w"}, {"h"}, "h");
  file.node("Selu", {"h"}, {"y"}, "selu");
  const OnnxImport import = file.import();
  const Tensor x{{1, 1}, {3}};
  for (const char* plan : {"float16", "mixed_float16"}) {
    EXPECT_THAT(first_output(import, plan, x), ElementsAre(1614 * 0x1p-9f)) << plan;
    const Executable exe = lower_inference(import.model, preset_plan(plan).value());
    EXPECT_EQ(exe.graph.value(exe.outputs[0].value).format, kFp16) << plan;
  }
}

TEST(Steps, TheirGradientsAreNotRoundedEither) {
  // h = (24000, 32000), y = 40000 and a target of 39968: dy = 64, dh = 64 h / y, which comes as two
  // equal halves 19.2 and 25.6, rounded to steps of 2^-6. 2 y overflows float16.
  FileBuilder file(13);
  file.input("x", {1, 1}).output("y").floats("w", {1, 2}, {24000, 32000});
  file.node("MatMul", {"x", "w"}, {"h"}, "h");
  ::onnx::NodeProto& norm = file.node("ReduceL2", {"h"}, {"y"}, "norm");
  test::set_ints(norm, "axes", {1});
  const OnnxImport import = file.import();
  for (const char* plan : {"float16", "float16_stagewise"}) {
    const std::map<std::string, Tensor> found = test::weight_gradients(
        import.model, {{"x", {1}}, {"targets", {39968}}}, preset_plan(plan).value());
    if (plan == std::string("float16")) {
      EXPECT_THAT(found.at("loss").data, ElementsAre(1024));
      EXPECT_THAT(found.at("w").data, ElementsAre(2 * 1229 * 0x1p-6f, 2 * 1638 * 0x1p-6f));
    } else {
      EXPECT_THAT(found.at("loss").data, ElementsAre(kInfinite));
    }
  }
}

// ---- steps of operators that only PyTorch has ----

/// PyTorch's exporter writes x.std(-1) like this: the root of mean((x - mean(x))^2) * count /
/// divisor.
FileBuilder written_std(float count, float divisor, int type = 1, bool reshapes = false) {
  FileBuilder file;
  file.input("x", {1, 4}, type).output("y").floats("n", {}, {count}).floats("d", {}, {divisor});
  for (const char* name : {"n", "d"}) {
    const std::string cast = std::string(name) + "_cast";
    test::set_int(file.node("Cast", {name}, {cast}, cast), "to", type);
  }
  test::set_ints(file.node("ReduceMean", {"x"}, {"m"}, "mean"), "axes", {-1});
  file.node("Sub", {"x", "m"}, {"c"}, "sub");
  file.node("Mul", {"c", "c"}, {"s"}, "square");
  ::onnx::NodeProto& mean = file.node("ReduceMean", {"s"}, {"v"}, "var");
  test::set_ints(mean, "axes", {-1});
  test::set_int(mean, "keepdims", reshapes ? 0 : 1);
  file.node("Mul", {"v", "n_cast"}, {"t"}, "total");
  file.node("Div", {"t", "d_cast"}, {"q"}, "quotient");
  file.integers("shape", {2}, {1, 1});
  if (reshapes) file.node("Reshape", {"q", "shape"}, {"r"}, "reshape");
  file.node("Sqrt", {reshapes ? "r" : "q"}, {"y"}, "std");
  return file;
}

TEST(Steps, AStandardDeviationIsOneOperator) {
  // Squares of 1000 overflow; 4e6 / 3 is 1154.7^2, and float16 has steps of 1 there.
  const Tensor x{{1, 4}, {1000, -1000, 1000, -1000}};
  const OnnxImport import = written_std(4, 3).import();
  EXPECT_THAT(first_output(import, "float16", x), ElementsAre(1155));
  EXPECT_THAT(first_output(import, "float16_stagewise", x), ElementsAre(kInfinite));
  EXPECT_THAT(first_output(written_std(4, 3, 1, true).import(), "float16", x), ElementsAre(1155));
  // The number of elements is another, so it is something else.
  EXPECT_THAT(first_output(written_std(5, 3).import(), "float16", x), ElementsAre(kInfinite));
  // A float16 file rounds the results of these nodes.
  const OnnxImport narrow = written_std(4, 3, 10).import();
  EXPECT_THAT(first_output(narrow, narrow.types, x), ElementsAre(kInfinite));
  EXPECT_THAT(first_output(narrow, "float16", x), ElementsAre(1155));
}

TEST(Steps, AVarianceIsOneOperator) {
  FileBuilder file = written_std(4, 3);
  file.graph().mutable_node()->RemoveLast();
  file.graph().mutable_output(0)->set_name("q");
  const OnnxImport import = file.import();
  const Tensor x{{1, 4}, {210, -210, 210, -210}};
  EXPECT_THAT(first_output(import, "float16", x), ElementsAre(58816)) << "58800, in steps of 32";
  EXPECT_THAT(first_output(import, "float16_stagewise", x), ElementsAre(kInfinite))
      << "4 times 44100";
}

TEST(Steps, ALogarithmOfASigmoidIsOneOperatorUnlessTheSigmoidIsReadElsewhere) {
  for (const bool shared : {false, true}) {
    FileBuilder file;
    file.input("x", {1, 2}).output("y");
    file.node("Sigmoid", {"x"}, {"s"}, "sigmoid");
    file.node("Log", {"s"}, {"y"}, "log");
    if (shared) file.output("s");
    const OnnxImport import = file.import();
    const Tensor x{{1, 2}, {-40, 0}};
    const float fused = shared ? -kInfinite : -40;
    const float half = -0.693359375f;  // ln 2 = 1419.6 steps of 2^-11
    EXPECT_THAT(first_output(import, "float16", x), ElementsAre(fused, half));
    EXPECT_THAT(first_output(import, "float16_stagewise", x), ElementsAre(-kInfinite, half));
  }
}

}  // namespace
}  // namespace halfscope
