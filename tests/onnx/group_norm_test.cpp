// SPDX-License-Identifier: MIT
// Normalizations as exporters write them today: group normalization as an InstanceNormalization
// between Reshapes, and layer and RMS normalizations in primitives. Expected numbers are those of
// PyTorch, with its gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tests/onnx/composite_support.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::Contains;
using testing::ElementsAre;
using testing::SizeIs;
using Values = std::vector<float>;

const Values kX{-0.75f,  0.125f,  0.875f, 0.0f,   0.75f,  -0.125f, -0.125f, 1.0f,
                -0.375f, -0.375f, 1.0f,   -0.75f, -0.5f,  -0.25f,  -0.875f, 0.75f,
                0.5f,    -0.25f,  -1.0f,  -0.5f,  0.875f, -1.0f,   -0.375f, -0.125f};
const Values kTarget{0.375f,  0.625f,  0.875f,  -0.125f, 0.375f,  0.25f,  -1.0f,   0.125f,
                     -0.75f,  -0.125f, 0.25f,   0.75f,   0.0f,    -0.5f,  -0.875f, 0.125f,
                     -0.625f, 0.5f,    -0.125f, -0.5f,   -0.625f, -0.75f, -0.5f,   -0.125f};
const Values kFactors{0.625f, 1.0f, 1.5f, 2.125f}, kShifts{0.875f, 0.625f, -1.0f, 0.25f};
const Values kGain{-0.875f, 0.125f, 0.25f, 0.125f};
const Values kY{1.89800417f,   0.745654643f,   -0.242073596f, 0.681441605f, 0.907208085f,
                0.643813848f,  -1.5838896f,    1.73506165f,   -2.32143426f, -0.838390589f,
                2.03496075f,   -1.62203181f,   1.28953946f,   0.784882724f, 2.04652452f,
                0.0194119811f, -0.0959381163f, -0.441988409f, -3.00743556f, -1.70531523f,
                1.8755157f,    -0.749196529f,  0.403722465f,  0.864890099f};

/// How the file stores scale and bias.
enum class Affine {
  columns,     ///< [4, 1] (dynamo)
  unsqueezed,  ///< [4], which an Unsqueeze makes a column (TorchScript)
  shared,      ///< columns, and a further output reads the scale
};

/// group_norm(x * gain, 2 groups, scale, bias) of x [2, 4, 3].
FileBuilder normalized_file(Affine form, int64_t batch = 2) {
  FileBuilder file;
  const std::vector<int64_t> shape =
      form == Affine::unsqueezed ? std::vector<int64_t>{4} : std::vector<int64_t>{4, 1};
  file.input("x", {batch, 4, 3}).output("y").floats("gain", {4, 1}, kGain);
  file.floats("ones", {2}, {1, 1}).floats("zeros", {2}, {0, 0});
  file.floats("scale", shape, kFactors).floats("bias", shape, kShifts);
  file.integers("groups", {3}, {0, 2, -1}).integers("axis", {1}, {1});
  file.node("Mul", {"x", "gain"}, {"gained"}, "gain");
  file.node("Reshape", {"gained", "groups"}, {"split"}, "split");
  file.node("InstanceNormalization", {"split", "ones", "zeros"}, {"normal"}, "instance");
  file.node("Shape", {"gained"}, {"whole"}, "shape");
  file.node("Reshape", {"normal", "whole"}, {"joined"}, "join");
  std::string scale = "scale", bias = "bias";
  if (form == Affine::unsqueezed) {
    file.node("Unsqueeze", {scale, "axis"}, {"scale_column"}, "turn_scale");
    file.node("Unsqueeze", {bias, "axis"}, {"bias_column"}, "turn_bias");
    scale = "scale_column";
    bias = "bias_column";
  }
  file.node("Mul", {"joined", scale}, {"scaled"}, "times");
  file.node("Add", {"scaled", bias}, {"y"}, "norm");
  if (form == Affine::shared) {
    file.node("Mul", {"x", "scale"}, {"z"}, "other");
    file.output("z");
  }
  return file;
}

std::map<std::string, Tensor> learnt(const Model& model, const Plan& plan) {
  auto result = test::weight_gradients(model, {{"x", kX}, {"targets", kTarget}}, plan);
  result.erase("loss");
  return result;
}

TEST(OnnxGroupNorm, BecomesOneNodeWithVariablesOfItsChannels) {
  for (const Affine form : {Affine::columns, Affine::unsqueezed}) {
    const Model model = normalized_file(form).import().model;
    EXPECT_THAT(test::node_list(model), ElementsAre("gain Mul", "norm GroupNormalization"));
    EXPECT_EQ(int_attribute(model.graph.nodes()[1], "num_groups", 0), 2);
    std::map<std::string, Shape> shapes;  // the ones and zeros are no variables
    for (const Variable& variable : model.graph.variables())
      shapes[variable.path + " " + variable.alias] = model.graph.value(variable.value).shape;
    const std::map<std::string, Shape> expected{
        {"gain.scale gain", {4, 1}}, {"norm.weight scale", {4}}, {"norm.bias bias", {4}}};
    EXPECT_EQ(shapes, expected);
    EXPECT_EQ(model.initial.at("norm.weight").shape, Shape{4});
    EXPECT_THAT(model.initial, SizeIs(3));
  }
  const Model shared = normalized_file(Affine::shared).import().model;
  EXPECT_THAT(test::node_list(shared), Contains("norm GroupNormalization"));
  EXPECT_THAT(test::node_list(shared), Contains("norm/weight Reshape"));
}

TEST(OnnxGroupNorm, GivesPyTorchsOutputsAndGradients) {
  const std::map<std::string, Tensor> expected{
      {"scale", {{4}, {0.88422662f, 0.0742276758f, 1.14709973f, 0.358817428f}}},
      {"bias", {{4}, {0.501877725f, 0.101162434f, -0.177708119f, 0.0494962111f}}},
      {"gain", {{4, 1}, {0.0161139201f, 0.113324411f, -0.779059291f, 1.56908607f}}}};
  for (const Affine form : {Affine::columns, Affine::unsqueezed, Affine::shared}) {
    for (const bool stagewise : {false, true}) {
      SCOPED_TRACE(static_cast<int>(form) * 2 + (stagewise ? 1 : 0));
      const Model model = normalized_file(form).import().model;
      const std::vector<Tensor> in{{{2, 4, 3}, kX}};
      test::expect_close(test::run(test::start(model, test::float_plan(stagewise)), in).at(0),
                         {{2, 4, 3}, kY}, 1e-6);
      const auto actual = learnt(model, test::float_plan(stagewise));
      ASSERT_EQ(actual.size(), expected.size());
      for (const auto& [name, tensor] : expected) {
        SCOPED_TRACE(name);
        Tensor gradient = actual.at(name);
        if (form == Affine::shared && name == "scale") gradient.shape = {4};
        test::expect_close(gradient, tensor, 2e-6);
      }
    }
  }
}

TEST(OnnxGroupNorm, TakesAnyBatch) {
  const Model model = normalized_file(Affine::columns, -1).import({.batch = 1}).model;
  EXPECT_THAT(test::node_list(model), Contains("norm GroupNormalization"));
  const Tensor first{{1, 4, 3}, {kX.begin(), kX.begin() + 12}};
  test::expect_close(
      test::run(test::start(model, test::float_plan(false)), std::span(&first, 1)).at(0),
      {{1, 4, 3}, {kY.begin(), kY.begin() + 12}}, 1e-6);
}

TEST(OnnxGroupNorm, HasOnesAndZerosWhereTheFileHasNoScale) {
  FileBuilder file = normalized_file(Affine::columns);
  file.graph().mutable_node()->RemoveLast();
  file.graph().mutable_node()->RemoveLast();
  file.graph().mutable_node(file.graph().node_size() - 1)->set_output(0, "y");
  const Model model = file.import().model;
  EXPECT_THAT(test::node_list(model), ElementsAre("gain Mul", "join GroupNormalization"));
  EXPECT_THAT(model.graph.variables(), SizeIs(1));
  Tensor expected{{2, 4, 3}, kY};
  for (size_t i = 0; i < kY.size(); ++i)
    expected.data[i] = (kY[i] - kShifts[i / 3 % 4]) / kFactors[i / 3 % 4];
  const std::vector<Tensor> in{{{2, 4, 3}, kX}};
  test::expect_close(test::run(test::start(model, test::float_plan(false)), in).at(0), expected,
                     1e-6);
}

// With as many groups as channels, PyTorch's exporter omits the Reshapes.
TEST(OnnxGroupNorm, MayHaveAGroupForEveryChannel) {
  FileBuilder file;
  file.input("x", {2, 4, 3}).output("y").floats("ones", {4}, {1, 1, 1, 1});
  file.floats("zeros", {4}, {0, 0, 0, 0}).floats("scale", {4, 1}, kFactors);
  file.node("InstanceNormalization", {"x", "ones", "zeros"}, {"normal"}, "instance");
  file.node("Mul", {"normal", "scale"}, {"y"}, "times");
  const Model model = file.import().model;
  EXPECT_THAT(test::node_list(model), ElementsAre("times GroupNormalization"));
  EXPECT_THAT(model.graph.variables(), SizeIs(1));
}

TEST(OnnxGroupNorm, StaysAsWrittenWhereItIsSomethingElse) {
  const auto kept = [](const std::function<void(FileBuilder&)>& change) {
    FileBuilder file = normalized_file(Affine::columns);
    change(file);
    for (const std::string& node : test::node_list(file.import().model)) {
      if (node == "instance InstanceNormalization") return true;
    }
    return false;
  };
  EXPECT_FALSE(kept([](FileBuilder&) {}));
  EXPECT_TRUE(kept([](FileBuilder& file) { file.output("normal"); })) << "read elsewhere";
  EXPECT_TRUE(kept([](FileBuilder& file) {
    file.floats("learnt", {2}, {1, 2});
    file.graph().mutable_node(2)->set_input(1, "learnt");
  })) << "a scale for each group";
  EXPECT_TRUE(kept([](FileBuilder& file) {
    file.floats("learnt", {2}, {0.5f, 0});
    file.graph().mutable_node(2)->set_input(2, "learnt");
  })) << "a bias for each group";
}

// PyTorch writes LayerNorm(bias=False) with zeros as a constant, which is not trained.
TEST(OnnxNormalizations, ConstantsStayConstants) {
  FileBuilder file;
  file.input("x", {2, 4, 3}).output("y").floats("scale", {3}, {0.625f, 1, 1.5f});
  ::onnx::TensorProto zeros;
  zeros.set_data_type(1);
  zeros.add_dims(3);
  for (int i = 0; i < 3; ++i) zeros.add_float_data(0.0f);
  ::onnx::AttributeProto& value = *file.node("Constant", {}, {"zeros"}).add_attribute();
  value.set_name("value");
  value.set_type(::onnx::AttributeProto::TENSOR);
  *value.mutable_t() = zeros;
  file.node("LayerNormalization", {"x", "scale", "zeros"}, {"y"}, "norm");
  const Model model = file.import().model;
  ASSERT_THAT(model.graph.variables(), SizeIs(1));
  EXPECT_EQ(model.graph.variables()[0].path, "norm.weight");
}

/// The forms of layer and RMS normalization that PyTorch's exporters write.
struct Written {
  const char* what;
  bool mean;
  std::string root;       ///< "sqrt": divided by; "reciprocal", "quotient", "power": multiplied by
  bool twice = false;     ///< the difference from the mean is computed twice (var_mean)
  bool flat = false;      ///< the variance comes without the last dimension, which a Reshape adds
  bool plus_one = false;  ///< the scale is 1 + weight
  bool product = false;   ///< the square is a product
};

FileBuilder primitives_of(const Written& form) {
  FileBuilder file(18);
  file.input("x", {2, 4, 3}).output("y").floats("weight", {3}, {0.625f, 1, 1.5f});
  file.floats("bias", {3}, {0.875f, 0.625f, -1}).floats("two", {}, {2}).floats("one", {}, {1});
  file.floats("epsilon", {}, {1e-5f}).floats("minus_half", {}, {-0.5f});
  file.integers("last", {1}, {-1}).integers("kept", {3}, {2, 4, 1});
  std::string x = "x", square_of = "x";
  if (form.mean) {
    file.node("ReduceMean", {"x", "last"}, {"mean"}, "mean");
    file.node("Sub", {"x", "mean"}, {"centred"}, "centre");
    x = square_of = "centred";
    if (form.twice) {
      file.node("ReduceMean", {"x", "last"}, {"mean_again"}, "mean_again");
      file.node("Sub", {"x", "mean_again"}, {"centred_again"}, "centre_again");
      square_of = "centred_again";
    }
  }
  if (form.product) file.node("Mul", {square_of, square_of}, {"squares"}, "square");
  if (!form.product) file.node("Pow", {square_of, "two"}, {"squares"}, "square");
  ::onnx::NodeProto& var = file.node("ReduceMean", {"squares", "last"}, {"var"}, "var");
  if (form.flat) {
    test::set_int(var, "keepdims", 0);
    file.node("Reshape", {"var", "kept"}, {"var_kept"}, "keep");
  }
  file.node("Add", {form.flat ? "var_kept" : "var", "epsilon"}, {"sum"}, "add");
  if (form.root != "power") file.node("Sqrt", {"sum"}, {"deviation"}, "sqrt");
  if (form.root == "sqrt") {
    file.node("Div", {x, "deviation"}, {"normal"}, "normalize");
  } else {
    if (form.root == "reciprocal") file.node("Reciprocal", {"deviation"}, {"inverse"}, "inverse");
    if (form.root == "quotient") file.node("Div", {"one", "deviation"}, {"inverse"}, "inverse");
    if (form.root == "power") file.node("Pow", {"sum", "minus_half"}, {"inverse"}, "inverse");
    file.node("Mul", {x, "inverse"}, {"normal"}, "normalize");
  }
  if (form.plus_one) file.node("Add", {"weight", "one"}, {"scale"}, "plus_one");
  file.node("Mul", {form.plus_one ? "scale" : "weight", "normal"}, {"scaled"}, "scale");
  file.node(form.mean ? "Add" : "Identity", {"scaled"}, {"y"}, "last");
  if (form.mean) file.graph().mutable_node(file.graph().node_size() - 1)->add_input("bias");
  return file;
}

// PyTorch's own normalizations have powers, and its variance subtracts the mean once more.
TEST(OnnxNormalizations, AProductInAFileOfPyTorchIsTheNetworksOwn) {
  const auto is_found = [](Written form, bool product, const char* producer) {
    form.product = product;
    FileBuilder file = primitives_of(form);
    file.file().set_producer_name(producer);
    // PyTorch writes numbers as nodes; initializers would be parameters.
    ::onnx::GraphProto& graph = file.graph();
    for (int i = graph.initializer_size() - 1; i >= 0; --i) {
      if (graph.initializer(i).dims_size() > 0) continue;
      ::onnx::NodeProto& node = file.node("Constant", {}, {graph.initializer(i).name()});
      ::onnx::AttributeProto& value = *node.add_attribute();
      value.set_name("value");
      value.set_type(::onnx::AttributeProto::TENSOR);
      *value.mutable_t() = graph.initializer(i);
      graph.mutable_initializer()->DeleteSubrange(i, 1);
      for (int at = graph.node_size() - 1; at > 0; --at)
        graph.mutable_node()->SwapElements(at, at - 1);
    }
    return file.import().model.graph.nodes().size() <= 3;
  };
  const Written rms{"rms", false, "reciprocal"}, layer{"layer", true, "sqrt"};
  const Written var{"x.var(-1)", true, "sqrt", true};
  for (const Written& form : {rms, layer, var}) {
    SCOPED_TRACE(form.what);
    EXPECT_TRUE(is_found(form, false, "pytorch"));
    EXPECT_TRUE(is_found(form, true, "tf2onnx"));
    EXPECT_EQ(is_found(form, true, "pytorch"), form.twice);
  }
}

TEST(OnnxNormalizations, AreFoundInEveryForm) {
  for (const Written& form :
       {Written{"TensorFlow", true, "sqrt"}, Written{"var of TorchScript", true, "quotient", true},
        Written{"var of dynamo", true, "reciprocal", true, true}, Written{"rsqrt", true, "power"},
        Written{"Llama", false, "reciprocal"}, Written{"T5", false, "quotient"},
        Written{"Gemma", false, "power", false, false, true}}) {
    SCOPED_TRACE(form.what);
    const Model model = primitives_of(form).import().model;
    const std::string op = form.mean ? "LayerNormalization" : "RMSNormalization";
    const std::string node = (form.mean ? "last " : "scale ") + op;
    EXPECT_THAT(test::node_list(model), Contains(node));
    EXPECT_LE(model.graph.nodes().size(), 3u);
    // The primitives compute the same.
    const std::vector<Tensor> in{{{2, 4, 3}, kX}};
    FileBuilder apart = primitives_of(form);
    apart.output("squares");
    const Model primitives = apart.import().model;
    EXPECT_GT(primitives.graph.nodes().size(), 6u);
    test::expect_close(test::run(test::start(model, test::float_plan(false)), in).at(0),
                       test::run(test::start(primitives, test::float_plan(false)), in).at(0), 2e-6);
    const auto one = learnt(model, test::float_plan(false));
    const auto many = learnt(primitives, test::float_plan(false));
    ASSERT_EQ(one.size(), form.mean ? 2u : 1u);
    for (const auto& [name, gradient] : many) test::expect_close(one.at(name), gradient, 5e-6);
  }
}

}  // namespace
}  // namespace halfscope
