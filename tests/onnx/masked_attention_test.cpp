// SPDX-License-Identifier: MIT
// scaled_dot_product_attention as PyTorch 2.15 writes it with a mask of booleans: scaled queries
// and keys, -inf where a key is hidden, and a guard that gives 0 where all of them are. Expected
// numbers are those of PyTorch, with its gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "core/onnx/export.h"
#include "core/policy/policy.h"
#include "tests/onnx/composite_support.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::ElementsAre;
using Texts = std::vector<std::string>;

const std::vector<float> kTokens{-0.125f, -0.625f, 0.5f,   1.0f,    -0.75f, -1.0f,
                                 1.0f,    0.25f,   -0.25f, -0.375f, 1.0f,   0.25f};
const std::vector<float> kWanted{0.125f, -0.75f,  -0.125f, 0.0f, 0.375f, 0.75f,
                                 -1.0f,  -0.375f, -0.625f, 1.0f, 0.375f, -0.5f};
const std::vector<float> kHidden{0, 1, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1};
const std::vector<float> kMixed{
    -0.421875f,    0.203125f,  0, 0, -0.110530384f, 0.0832662806f, -0.416644841f, 0.115738325f,
    -0.432570219f, 0.1175078f, 0, 0};

enum class Guard { none, where, reversed, softmax_alone };

/// `mask`: "input" is read as numbers, and 1 hides a key; "known" are booleans of the file.
FileBuilder masked_file(Guard guard, bool known = false) {
  FileBuilder file;
  file.input("x", {2, 3, 2}).output("y");
  file.floats("wq", {2, 2}, {0.625f, 0.125f, 0, -0.125f});
  file.floats("wk", {2, 2}, {-0.625f, -0.25f, 1, 0.375f});
  file.floats("wv", {2, 2}, {-1, 0.25f, 0.875f, -0.375f});
  // The square root of 1 / sqrt(2), on both sides.
  file.floats("scale", {1}, {0.840896415f}).floats("zero", {}, {0.0f}).floats("one", {}, {1.0f});
  file.floats("low", {}, {-std::numeric_limits<float>::infinity()});
  if (known) {
    ::onnx::TensorProto& hidden = *file.graph().add_initializer();
    hidden.set_name("hidden");
    hidden.set_data_type(9);  // booleans
    for (int64_t size : {2, 3, 3}) hidden.add_dims(size);
    for (float each : kHidden) hidden.add_int32_data(each != 0.0f ? 1 : 0);
  } else {
    file.input("mask", {2, 3, 3});
    file.node("Equal", {"mask", "one"}, {"hidden"}, "hides");
  }
  file.node("MatMul", {"x", "wq"}, {"q"}, "to_q");
  file.node("MatMul", {"x", "wk"}, {"k"}, "to_k");
  file.node("MatMul", {"x", "wv"}, {"v"}, "to_v");
  test::set_ints(file.node("Transpose", {"k"}, {"kt"}, "turn"), "perm", {0, 2, 1});
  file.node("Mul", {"q", "scale"}, {"qs"}, "scale_q");
  file.node("Mul", {"kt", "scale"}, {"ks"}, "scale_k");
  file.node("Where", {"hidden", "low", "zero"}, {"bias"}, "bias_of");
  file.node("MatMul", {"qs", "ks"}, {"s"}, "first");
  file.node("Add", {"s", "bias"}, {"masked"}, "add");
  test::set_int(file.node("Softmax", {"masked"}, {"p"}, "soft"), "axis", -1);
  std::string weights = "p";
  if (guard != Guard::none) {
    file.node("IsNaN", {"p"}, {"lost"}, "is_nan");
    weights = "kept";
    if (guard == Guard::reversed) {
      file.node("Not", {"lost"}, {"fine"}, "not");
      file.node("Where", {"fine", "p", "zero"}, {"kept"}, "guard");
    } else {
      file.node("Where", {"lost", "zero", "p"}, {"kept"}, "guard");
    }
  }
  file.node("MatMul", {weights, "v"}, {"y"}, "attend");
  if (guard == Guard::softmax_alone) file.output("s");  // keeps the attention separate
  return file;
}

std::vector<Tensor> tokens_and_mask() { return {{{2, 3, 2}, kTokens}, {{2, 3, 3}, kHidden}}; }

/// Returns the existing attentions and softmaxes.
Texts attentions(const Model& model) {
  Texts result = test::node_list(model);
  std::erase_if(result, [](const std::string& node) {
    return !node.ends_with(" Attention") && !node.ends_with(" Softmax");
  });
  return result;
}

TEST(MaskedAttention, BecomesOneNodeWithItsGuard) {
  for (const Guard guard : {Guard::where, Guard::reversed}) {
    const Model model = masked_file(guard).import().model;
    EXPECT_THAT(attentions(model), ElementsAre("attend Attention"));
    EXPECT_EQ(int_attribute(model.graph.nodes().back(), "zero_masked", 0), 1);
  }
  const Model plain = masked_file(Guard::none).import().model;
  EXPECT_THAT(attentions(plain), ElementsAre("attend Attention"));
  EXPECT_EQ(int_attribute(plain.graph.nodes().back(), "zero_masked", 0), 0);
  EXPECT_THAT(attentions(masked_file(Guard::softmax_alone).import().model),
              ElementsAre("guard Softmax"));
}

TEST(MaskedAttention, GivesPyTorchsOutputsWithRowsThatAreHidden) {
  const Tensor expected{{2, 3, 2}, kMixed};
  for (const Guard guard : {Guard::where, Guard::reversed, Guard::softmax_alone}) {
    for (const bool known : {false, true}) {
      const Model model = masked_file(guard, known).import().model;
      for (const bool stagewise : {false, true}) {
        const auto running = test::start(model, test::float_plan(stagewise));
        test::expect_close(test::run(running, tokens_and_mask()).at(0), expected, 1e-6);
      }
      Plan exact = preset_plan("float64").value();
      test::expect_close(test::run(test::start(model, exact), tokens_and_mask()).at(0), expected,
                         1e-6);
    }
  }
  // Without the guard they are lost, as in the file.
  const Tensor y =
      test::run(test::start(masked_file(Guard::none).import().model, test::float_plan(false)),
                tokens_and_mask())
          .at(0);
  EXPECT_TRUE(std::isnan(y.data[2]) && std::isnan(y.data[11]));
  EXPECT_FALSE(std::isnan(y.data[0]));
}

TEST(MaskedAttention, HasPyTorchsGradientsWithRowsThatAreHidden) {
  const std::map<std::string, Tensor> expected{
      {"loss", {{}, {0.307582647f}}},
      {"wq", {{2, 2}, {0.00187829533f, 0.000905841123f, 0.0006133719f, 0.000262277084f}}},
      {"wk", {{2, 2}, {-0.00805921573f, -0.00135374162f, -0.00386307528f, -0.000687973108f}}},
      {"wv", {{2, 2}, {0.0740565211f, -0.0246540159f, 0.0766526759f, -0.0569624901f}}}};
  for (const Guard guard : {Guard::where, Guard::softmax_alone}) {
    for (const bool stagewise : {false, true}) {
      SCOPED_TRACE(stagewise ? "stagewise" : "fused");
      const auto actual = test::weight_gradients(
          masked_file(guard).import().model,
          {{"x", kTokens}, {"mask", kHidden}, {"targets", kWanted}}, test::float_plan(stagewise));
      ASSERT_EQ(actual.size(), expected.size());
      for (const auto& [name, tensor] : expected) {
        SCOPED_TRACE(name);
        ASSERT_TRUE(actual.contains(name));
        test::expect_close(actual.at(name), tensor, 2e-6);
      }
    }
  }
}

// Overflows still show: only rows that are all -inf are set to zero.
TEST(MaskedAttention, PassesNaNsOn) {
  const Model model = masked_file(Guard::where).import().model;
  std::vector<Tensor> in = tokens_and_mask();
  in[0].data[0] = std::numeric_limits<float>::quiet_NaN();
  for (const bool stagewise : {false, true}) {
    const Tensor y = test::run(test::start(model, test::float_plan(stagewise)), in).at(0);
    EXPECT_TRUE(std::isnan(y.data[0]));
    EXPECT_FALSE(std::isnan(y.data[6]));
  }
}

TEST(MaskedAttention, GoesOutWithItsGuardAndComesBack) {
  for (const Guard guard : {Guard::where, Guard::softmax_alone}) {
    const Model model = masked_file(guard).import().model;
    const std::string bytes = onnx_bytes(model, model.initial);
    const Model again =
        parse_onnx({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "again", ".")
            .model;
    EXPECT_EQ(attentions(again), attentions(model));
    for (const bool stagewise : {false, true}) {
      test::expect_close(
          test::run(test::start(again, test::float_plan(stagewise)), tokens_and_mask()).at(0),
          {{2, 3, 2}, kMixed}, 1e-6);
    }
  }
}

TEST(MaskedAttention, FindsNaNs) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> numbers{0.0f, inf, -inf, std::numeric_limits<float>::quiet_NaN(),
                                   -1e38f};
  for (const std::string from : {"numbers", "x"}) {  // folded, and at run time
    FileBuilder file;
    file.input("x", {5}).input("zeros", {5}).output("is_nan");
    file.floats("numbers", {5}, numbers).floats("ones", {5}, std::vector<float>(5, 1.0f));
    file.node("IsNaN", {from}, {"lost"}, "nan");
    file.node("Where", {"lost", "ones", "zeros"}, {"is_nan"});
    const std::vector<Tensor> in{{{5}, numbers}, {{5}, std::vector<float>(5, 0.0f)}};
    const Model model = file.import().model;
    test::expect_close(test::run(test::start(model, test::float_plan(false)), in).at(0),
                       {{5}, {0, 0, 0, 1, 0}}, 0.0);
  }
}

}  // namespace
}  // namespace halfscope
