// SPDX-License-Identifier: MIT
// The parameters behind the initializers of a file: what exporters fold, merge and share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/graph/autodiff.h"
#include "core/onnx/import.h"
#include "core/policy/policy.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

using test::add_metadata;
using test::FileBuilder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kOfNode = 9, kOfValue = 4, kOfGraph = 16;

/// A file with the metadata that dynamo writes.
class MarkedFile : public FileBuilder {
 public:
  MarkedFile() { file().set_producer_name("pytorch"); }

  void signature(const std::vector<std::string>& parameters) {
    std::string text = "\n# inputs\n";
    for (const std::string& name : parameters) {
      std::string argument = "p_" + name;
      std::replace(argument.begin(), argument.end(), '.', '_');
      text += argument + ": PARAMETER target='" + name + "'\n";
    }
    add_metadata(graph(), kOfGraph, "pkg.torch.export.ExportedProgram.graph_signature", text);
  }
  void folded(const std::string& name, const std::string& from) {
    ::onnx::ValueInfoProto& info = *graph().add_value_info();
    info.set_name(name);
    add_metadata(info, kOfValue, "pkg.onnxscript.optimizer.folded_from", from);
  }
  void marked(const std::string& op, std::initializer_list<std::string> inputs,
              const std::string& output, const std::string& call, const std::string& target,
              const std::string& arguments, const std::string& module = "") {
    ::onnx::NodeProto& added = node(op, inputs, {output}, "node_" + output);
    add_metadata(added, kOfNode, "pkg.torch.onnx.fx_node",
                 "%" + call + " : [num_users=1] = call_function[target=torch.ops.aten." + target +
                     "](args = (" + arguments + "), kwargs = {})");
    add_metadata(
        added, kOfNode, "pkg.torch.onnx.name_scopes",
        module.empty() ? "['', '" + call + "']" : "['', '" + module + "', '" + call + "']");
  }
};

std::vector<std::string> parameter_names(const OnnxImport& import) {
  std::vector<std::string> result;
  for (const ImportParameter& each : import.parameters) result.push_back(each.name);
  return result;
}

/// Gradients of the sum of the network's first output, by variable.
std::map<std::string, std::vector<float>> gradients(const OnnxImport& import,
                                                    const std::vector<Tensor>& inputs) {
  Model model = import.model;
  const ValueId output = model.outputs[0].value;
  const Shape shape = model.graph.value(output).shape;
  const ValueId seed = model.graph.add_constant(
      Tensor{shape, std::vector<float>(static_cast<size_t>(element_count(shape)), 1.0f)});
  const GradientMap found = differentiate(model.graph, output, seed);
  model.outputs.clear();
  std::vector<std::string> order;
  for (const Variable& variable : model.graph.variables()) {
    if (!found.contains(variable.value)) continue;
    model.outputs.push_back({variable.path, found.at(variable.value)});
    order.push_back(variable.path);
  }
  const std::vector<Tensor> results =
      test::run(test::start(model, preset_plan("float32").value()), inputs);
  std::map<std::string, std::vector<float>> result;
  for (size_t i = 0; i < order.size(); ++i) result[order[i]] = results[i].data;
  return result;
}

TEST(FoldedParameters, WhatIsComputedFromACastParameterTrainsIt) {
  FileBuilder file;
  file.file().set_producer_name("pytorch");
  file.input("x", {2, 3}).output("y");
  file.floats("norm.gain", {3}, {0.0f, 0.5f, 0.25f});
  test::set_int(file.node("Cast", {"norm.gain"}, {"wide"}, "/norm/Cast"), "to", 1);
  file.floats("onnx::Add_4", {}, {1.0f});
  file.node("Add", {"wide", "onnx::Add_4"}, {"scale"}, "/norm/Add");
  file.node("Mul", {"x", "scale"}, {"y"}, "/norm/Mul");
  const OnnxImport import = file.import();
  EXPECT_THAT(parameter_names(import), ElementsAre("norm.gain"));
  EXPECT_THAT(gradients(import, {{{2, 3}, {1, 2, 3, 4, 5, 6}}})["norm.gain"], ElementsAre(5, 7, 9));
}

TEST(FoldedParameters, AFunctionOfAParameterIsComputedBack) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"scale"});
  file.floats("exp", {}, {std::exp(1.5f)});
  file.folded("exp", "['scale']");
  file.marked("Mul", {"exp", "x"}, "y", "mul", "mul.Tensor", "%exp, %x");
  const OnnxImport import = file.import();
  ASSERT_THAT(parameter_names(import), ElementsAre("scale"));
  EXPECT_NEAR(import.model.initial.at("scale").data[0], 1.5f, 1e-6f);
  EXPECT_NEAR(gradients(import, {{{2}, {1, 2}}})["scale"][0], 3 * std::exp(1.5f), 1e-5f);
  ASSERT_EQ(import.doubts.size(), 1u);
  EXPECT_THAT(import.doubts[0].why, HasSubstr("recovered its values"));
}

TEST(FoldedParameters, OfTwoFunctionsTheFileNamesTheLast) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"ssm.a_log"});
  file.floats("neg", {2}, {-std::exp(0.5f), -std::exp(-2.0f)});
  file.folded("neg", "['exp', 'ssm.a_log']");
  file.marked("Mul", {"neg", "x"}, "y", "mul", "mul.Tensor", "%neg, %x", "ssm");
  const OnnxImport import = file.import();
  ASSERT_THAT(parameter_names(import), ElementsAre("ssm.a_log"));
  const std::vector<float>& start = import.model.initial.at("ssm.a_log").data;
  EXPECT_NEAR(start[0], 0.5f, 1e-6f);
  EXPECT_NEAR(start[1], -2.0f, 1e-6f);
  EXPECT_NEAR(gradients(import, {{{2}, {1, 1}}})["ssm.a_log"][1], -std::exp(-2.0f), 1e-6f);
}

TEST(FoldedParameters, TheInverseRootIsTwoFunctions) {
  MarkedFile file;
  file.input("x", {1, 2}).output("y");
  file.signature({"variance"});
  file.floats("view_2", {1, 2}, {0.5f, 2.0f});
  file.folded("view_2", "['rsqrt', 'val_3', 'variance']");
  file.marked("Mul", {"view_2", "x"}, "y", "mul", "mul.Tensor", "%view_2, %x");
  const OnnxImport import = file.import();
  ASSERT_THAT(parameter_names(import), ElementsAre("variance"));
  EXPECT_THAT(import.model.initial.at("variance").data, ElementsAre(4.0f, 0.25f));
  // -x / 2 v^1.5
  EXPECT_THAT(gradients(import, {{{1, 2}, {16, 1}}})["variance"], ElementsAre(-1.0f, -4.0f));
}

TEST(FoldedParameters, AFunctionWithUnknownNumbersIsNotComputedBack) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"raw"});
  file.floats("softplus", {2}, {0.5f, 2.0f});
  file.folded("softplus", "['beta', 'raw', 'self_scaled']");
  file.marked("Mul", {"softplus", "x"}, "y", "mul", "mul.Tensor", "%softplus, %x");
  const OnnxImport import = file.import();
  EXPECT_THAT(import.model.initial.begin()->second.data, ElementsAre(0.5f, 2.0f));
  ASSERT_EQ(import.doubts.size(), 1u);
  EXPECT_THAT(import.doubts[0].why, HasSubstr("trains in its place"));
}

TEST(FoldedParameters, AFunctionOfAParameterThatTheFileHasIsOneWithIt) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"rate"});
  file.floats("exp", {2}, {std::exp(0.5f), std::exp(-1.0f)}).floats("rate", {2}, {0.5f, -1.0f});
  file.folded("exp", "['rate']");
  file.marked("Mul", {"exp", "x"}, "m", "mul", "mul.Tensor", "%exp, %x");
  file.marked("Add", {"m", "rate"}, "y", "add", "add.Tensor", "%mul, %p_rate");
  const OnnxImport import = file.import();
  ASSERT_THAT(parameter_names(import), ElementsAre("rate"));
  EXPECT_EQ(import.model.initial.at("rate").data[0], 0.5f);
  EXPECT_NEAR(gradients(import, {{{2}, {2, 3}}})["rate"][1], 3 * std::exp(-1.0f) + 1, 1e-5f);
}

TEST(FoldedParameters, AFunctionThatLosesDigitsIsNotComputedBack) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"gate"});
  file.floats("sigmoid", {2}, {0.5f, 0.9999999f});  // sigmoid of 0 and of about 16
  file.folded("sigmoid", "['gate']");
  file.marked("Mul", {"sigmoid", "x"}, "y", "mul", "mul.Tensor", "%sigmoid, %x");
  const OnnxImport import = file.import();
  EXPECT_EQ(import.model.initial.begin()->second.data[0], 0.5f);
  ASSERT_EQ(import.doubts.size(), 1u);
  EXPECT_THAT(import.doubts[0].why, HasSubstr("trains in its place"));
}

/// Dynamo's exporter gives a convolution without a bias one of zeros, made from its weight's shape.
TEST(FoldedParameters, ZerosInPlaceOfABiasAreNoParameter) {
  for (const bool biased : {false, true}) {
    MarkedFile file;
    file.input("x", {1, 1, 3, 3}).output("y");
    file.signature(biased ? std::vector<std::string>{"conv.weight", "conv.bias"}
                          : std::vector<std::string>{"conv.weight"});
    file.floats("conv.weight", {2, 1, 1, 1}, {1, 2});
    const std::string bias = biased ? "conv.bias" : "val_5";
    file.floats(bias, {2}, {0, 0});
    if (!biased) file.folded(bias, "['conv.weight']");
    file.marked("Conv", {"x", "conv.weight", bias.c_str()}, "y", "conv2d", "conv2d.default",
                biased ? "%x, %p_conv_weight, %p_conv_bias" : "%x, %p_conv_weight", "conv");
    const OnnxImport import = file.import();
    if (biased) {
      EXPECT_THAT(parameter_names(import), ElementsAre("conv.weight", "conv.bias"));
    } else {
      EXPECT_THAT(parameter_names(import), ElementsAre("conv.weight"));
    }
    EXPECT_THAT(import.doubts, IsEmpty());
  }
}

/// Where the file says that the network calls torch.log, the sigmoid before it rounds.
TEST(FoldedParameters, ALogarithmThatTheNetworkTakesItselfIsNoLogSigmoid) {
  for (const bool fused : {false, true}) {
    MarkedFile file;
    file.input("x", {1, 2}).output("y");
    const std::string call = fused ? "log_sigmoid" : "sigmoid", log = fused ? call : "log";
    file.marked("Sigmoid", {"x"}, "s", call, call + ".default", "%x");
    file.marked("Log", {"s"}, "y", log, log + ".default", fused ? "%x" : "%sigmoid");
    const Model model = file.import().model;
    const std::vector<Tensor> x{{{1, 2}, {-40, 0}}};
    const auto y = test::run(test::start(model, preset_plan("float16").value()), x);
    EXPECT_EQ(y[0].data[0], fused ? -40.0f : -std::numeric_limits<float>::infinity());
    // The sigmoid of -200 is 0 in fp32.
    const std::vector<Tensor> far{{{1, 2}, {-200, 0}}};
    const auto z = test::run(test::start(model, preset_plan("float32").value()), far);
    EXPECT_EQ(z[0].data[0], fused ? -200.0f : -std::numeric_limits<float>::infinity());
    EXPECT_FLOAT_EQ(z[0].data[1], std::log(0.5f));
  }
}

TEST(FoldedParameters, EqualResultsOfDifferentParametersTrainApart) {
  MarkedFile file;
  file.input("x", {1, 2}).output("y");
  file.signature({"a.weight", "a.bias", "b.weight", "b.bias"});
  file.floats("view", {1, 2}, {0, 0});
  file.folded("view", "['a.bias', 'val_1']");
  const char* first = "%view, %view_1, %x";
  file.marked("Mul", {"view", "x"}, "p", "addcmul", "addcmul.default", first, "a");
  file.marked("Add", {"view", "p"}, "addcmul", "addcmul", "addcmul.default", first, "a");
  const char* second = "%view_2, %view_3, %addcmul";
  file.marked("Mul", {"view", "addcmul"}, "q", "addcmul_1", "addcmul.default", second, "b");
  file.marked("Add", {"view", "q"}, "y", "addcmul_1", "addcmul.default", second, "b");
  const OnnxImport import = file.import();
  EXPECT_THAT(parameter_names(import),
              testing::UnorderedElementsAre("a.weight", "a.bias", "b.weight", "b.bias"));
  EXPECT_THAT(import.doubts, IsEmpty());
  auto found = gradients(import, {{{1, 2}, {3, 4}}});
  EXPECT_THAT(found["b.bias"], ElementsAre(1, 1));
  EXPECT_THAT(found["a.bias"], ElementsAre(0, 0));
}

TEST(FoldedParameters, AProductWithZerosLeavesABias) {
  MarkedFile file;
  file.input("x", {1, 2}).output("y");
  file.signature({"rnn.weight", "rnn.bias"});
  file.floats("linear", {1, 2}, {0.5f, -0.25f}).floats("rnn.bias", {2}, {0.5f, -0.25f});
  file.floats("val_1", {2, 2}, {1, 2, 3, 4});
  file.folded("linear", "['rnn.bias', 'rnn.weight', 'zeros']");
  file.folded("val_1", "['rnn.weight']");
  file.marked("Add", {"linear", "x"}, "a", "add", "add.Tensor", "%linear, %x", "rnn");
  const char* call = "%a, %p_rnn_weight, %p_rnn_bias";
  file.marked("MatMul", {"a", "val_1"}, "m", "linear_1", "linear.default", call, "rnn");
  file.marked("Add", {"m", "rnn.bias"}, "y", "linear_1", "linear.default", call, "rnn");
  const OnnxImport import = file.import();
  EXPECT_THAT(parameter_names(import), testing::UnorderedElementsAre("rnn.weight", "rnn.bias"));
  EXPECT_THAT(import.doubts, IsEmpty());
  // Through the first sum and the product, and directly.
  EXPECT_THAT(gradients(import, {{{1, 2}, {0, 0}}})["rnn.bias"], ElementsAre(3 + 1, 7 + 1));
}

TEST(FoldedParameters, AllReadWhatWasComputedFromSeveralParameters) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"tokens.weight", "positions.weight"});
  file.floats("add", {2}, {0.5f, -0.25f});
  file.folded("add", "['positions.weight', 'tokens.weight']");
  file.marked("Mul", {"add", "x"}, "m", "mul", "mul.Tensor", "%add, %x", "first");
  file.marked("Add", {"add", "m"}, "y", "add_1", "add.Tensor", "%add, %mul", "second");
  const OnnxImport import = file.import();
  EXPECT_THAT(parameter_names(import), ElementsAre("first.add"));
  EXPECT_THAT(gradients(import, {{{2}, {3, 4}}})["first.add"], ElementsAre(4, 5));
  ASSERT_FALSE(import.doubts.empty());
  EXPECT_THAT(import.doubts[0].why, HasSubstr("computed it from"));
}

TEST(FoldedParameters, LookingUpPaddingDoesNotTrainIt) {
  const auto by_metadata = [](const std::string& arguments) {
    MarkedFile file;
    file.input("tokens", {3}, 7).output("y");
    file.signature({"table.weight"});
    file.floats("table.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
    file.marked("Gather", {"table.weight", "tokens"}, "y", "embedding", "embedding.default",
                arguments, "table");
    return gradients(file.import(), {{{3}, {1, 1, 2}}})["table.weight"];
  };
  EXPECT_THAT(by_metadata("%p_table_weight, %tokens, 1"), ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(by_metadata("%p_table_weight, %tokens"), ElementsAre(0, 0, 2, 2, 1, 1));
}

TEST(FoldedParameters, ARowOfZerosIsPadding) {
  FileBuilder file;
  file.file().set_producer_name("pytorch");
  file.input("tokens", {3}, 7).output("y");
  file.floats("table.weight", {3, 2}, {0, 0, 3, 4, 5, 6});
  file.node("Gather", {"table.weight", "tokens"}, {"y"}, "/table/Gather");
  const OnnxImport import = file.import();
  EXPECT_THAT(import.notes,
              testing::Contains(HasSubstr("row 0 of table.weight contains only zeros")));
  const std::vector<Tensor> tokens{{{3}, {0, 1, 0}}};
  EXPECT_THAT(gradients(import, tokens)["table.weight"], ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_THAT(test::run(test::start(import.model, preset_plan("float32").value()), tokens)[0].data,
              ElementsAre(0, 0, 3, 4, 0, 0));
  const OnnxImport whole = file.import({.trainable = {"table.*"}});
  EXPECT_THAT(whole.notes, IsEmpty());
  EXPECT_THAT(gradients(whole, tokens)["table.weight"], ElementsAre(2, 2, 1, 1, 0, 0));
}

TEST(FoldedParameters, ACastBufferOfZerosIsDoubted) {
  FileBuilder file;
  file.file().set_producer_name("pytorch");
  file.input("x", {2, 3}).output("y");
  file.floats("model.final_shift", {1, 3}, {0, 0, 0});
  test::set_int(file.node("Cast", {"model.final_shift"}, {"c"}, "/model/Cast"), "to", 1);
  file.node("Add", {"x", "c"}, {"y"}, "/model/Add");
  const OnnxImport import = file.import();
  EXPECT_THAT(parameter_names(import), ElementsAre("model.final_shift"));
  ASSERT_EQ(import.doubts.size(), 1u);
  EXPECT_THAT(import.doubts[0].why, HasSubstr("--frozen model.final_shift"));
}

// The exporter reorders the gates of each layer, adds its two biases, and reads the size of a state
// that is zero.
TEST(FoldedParameters, LayersOfARecurrentModuleTrainWithoutDoubts) {
  MarkedFile file;
  file.input("x", {3, 2, 4}).output("out");
  std::vector<std::string> parameters;
  std::string arguments = "%x, [%zeros, %zeros_1], [";
  for (const std::string layer : {"0", "1"}) {
    for (const char* role : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
      parameters.push_back(std::string("rnn.") + role + "_l" + layer);
      arguments += std::string("%p_rnn_") + role + "_l" + layer + ", ";
    }
  }
  file.signature(parameters);
  std::string from = "x";
  for (const std::string layer : {"0", "1"}) {
    const auto numbers = [&](int64_t count) {
      std::vector<float> values;
      for (int64_t i = 0; i < count; ++i) {
        values.push_back(static_cast<float>((i + (layer == "1" ? 2 : 0)) % 7 - 3) / 8.0f);
      }
      return values;
    };
    const int64_t width = layer == "0" ? 4 : 2;
    file.floats("val_1" + layer, {1, 8, width}, numbers(8 * width));
    file.floats("val_2" + layer, {1, 8, 2}, numbers(16));
    file.floats("val_3" + layer, {1, 16}, numbers(16));
    file.folded("val_1" + layer, "['rnn.weight_ih_l" + layer + "', 'val_0', 'zeros']");
    file.folded("val_2" + layer, "['rnn.weight_hh_l" + layer + "', 'val_0', 'zeros']");
    file.folded("val_3" + layer,
                "['rnn.bias_hh_l" + layer + "', 'rnn.bias_ih_l" + layer + "', 'val_0', 'zeros']");
    const std::string out = layer == "0" ? "y" : "z";
    file.marked("LSTM", {from, "val_1" + layer, "val_2" + layer, "val_3" + layer}, out, "lstm",
                "lstm.input", arguments + "], True, 2, 0.0, True, False, False", "rnn");
    test::set_int(*file.graph().mutable_node(file.graph().node_size() - 1), "hidden_size", 2);
    const std::string flat = layer == "0" ? "h" : "out";
    file.integers("axis" + layer, {1}, {1});
    file.marked("Squeeze", {out, "axis" + layer}, flat, "lstm", "lstm.input", arguments, "rnn");
    from = flat;
  }
  const OnnxImport import = file.import();
  for (const ImportDoubt& each : import.doubts) ADD_FAILURE() << each.name << ": " << each.why;
  EXPECT_THAT(parameter_names(import),
              testing::UnorderedElementsAre("rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias",
                                            "rnn.weight_ih_l1", "rnn.weight_hh_l1", "rnn.bias_l1"));
}

}  // namespace
}  // namespace halfscope
