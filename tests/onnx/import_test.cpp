// SPDX-License-Identifier: MIT
// Import of a file's names, types, dimensions and initializers.
#include "core/onnx/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "core/graph/autodiff.h"
#include "core/onnx/export.h"
#include "core/policy/policy.h"
#include "tests/data/test_files.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> paths(const Model& model) {
  std::vector<std::string> result;
  for (const Node& node : model.graph.nodes()) result.push_back(node.path);
  return result;
}

std::string refusal(const FileBuilder& file, const ImportOptions& options = {}) {
  try {
    file.import(options);
  } catch (const Error& error) {
    return error.what() + std::string(" | ") + error.hint();
  }
  return "";
}

TEST(OnnxImport, NodesKeepTheirNamesOrTakeThatOfTheirResult) {
  FileBuilder file;
  file.input("x", {2}).output("y");
  file.node("Relu", {"x"}, {"a"}, "/block/Relu");
  file.node("Neg", {"a"}, {"b"});
  file.node("Neg", {"b"}, {"c"}, "twice");
  file.node("Neg", {"c"}, {"y"}, "twice");
  EXPECT_THAT(paths(file.import().model), ElementsAre("block", "b", "twice", "twice_2"));
}

TEST(OnnxImport, NamesAreMadePrintable) {
  FileBuilder file;
  file.input("x", {2}).output("y");
  file.node("Relu", {"x"}, {"y"}, "a\nb\x01");
  EXPECT_THAT(paths(file.import().model), ElementsAre("a_b_"));
}

TEST(OnnxImport, NodesMayStandInAnyOrder) {
  FileBuilder file;
  file.input("x", {2}).output("y");
  file.node("Neg", {"a"}, {"y"}, "second");
  file.node("Relu", {"x"}, {"a"}, "first");
  EXPECT_THAT(paths(file.import().model), ElementsAre("first", "second"));
}

TEST(OnnxImport, WeightsAreCalledByTheirFirstReader) {
  FileBuilder file;
  file.input("x", {2, 3}).output("y");
  file.floats("onnx::w", {3, 2}, {1, 2, 3, 4, 5, 6}).floats("onnx::b", {2}, {7, 8});
  file.node("Gemm", {"x", "onnx::w", "onnx::b"}, {"y"}, "fc1");
  const Model model = file.import().model;
  ASSERT_EQ(model.graph.variables().size(), 2u);
  EXPECT_EQ(model.graph.variables()[0].path, "fc1.weight");
  EXPECT_EQ(model.graph.variables()[0].alias, "onnx::w");
  EXPECT_EQ(model.graph.variables()[1].path, "fc1.bias");
  EXPECT_THAT(model.initial.at("fc1.weight").data, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(OnnxImport, ScalarsAndMasksAreConstants) {
  FileBuilder file;
  file.input("x", {2, 2}).output("y");
  file.floats("half", {}, {0.5f}).floats("mask", {2, 2}, {0, -1e9f, 0, 0}).floats("b", {2}, {1, 2});
  file.node("Mul", {"x", "half"}, {"s"}, "scale");
  file.node("Add", {"s", "mask"}, {"m"}, "mask_scores");
  file.node("Add", {"m", "b"}, {"y"}, "shift");
  const Model model = file.import().model;
  ASSERT_EQ(model.graph.variables().size(), 1u);
  EXPECT_EQ(model.graph.variables()[0].path, "shift.bias");
}

TEST(OnnxImport, InitializersListedAsInputsAreNone) {
  FileBuilder file;
  file.input("x", {1, 2}).input("w", {2, 2}).output("y");
  file.floats("w", {2, 2}, {1, 0, 0, 1});
  file.node("MatMul", {"x", "w"}, {"y"}, "fc");
  EXPECT_EQ(file.import().model.graph.inputs().size(), 1u);
}

// PyTorch writes tensors of equal values as one initializer and an Identity for every other.
TEST(OnnxImport, AnIdentityOfAnInitializerIsOne) {
  FileBuilder file;
  file.input("x", {4, 2}).output("y");
  for (const char* name : {"s", "b"}) file.floats(name, {2}, {name[0] == 's' ? 1.0f : 0.0f, 0.5f});
  file.node("Identity", {"b"}, {"m"}, "copy");
  file.node("Identity", {"s"}, {"v"}, "other");
  file.node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"}, "bn");
  const Model model = file.import().model;
  std::vector<std::string> operators;
  for (const Node& node : model.graph.nodes()) operators.push_back(node.op);
  EXPECT_EQ(operators, (std::vector<std::string>{"BatchNormalization"}));
  EXPECT_EQ(model.initial.at("bn.running_mean").data, model.initial.at("bn.bias").data);
  EXPECT_EQ(model.initial.at("bn.running_var").data, model.initial.at("bn.weight").data);
}

TEST(OnnxImport, BatchNormalizationsTrain) {
  FileBuilder file;
  file.input("x", {4, 2}).output("y");
  file.floats("s", {2}, {1, 1}).floats("b", {2}, {0, 0}).floats("m", {2}, {3, 4});
  file.floats("v", {2}, {5, 6});
  file.node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"}, "bn");
  const Model model = file.import().model;
  int buffers = 0;
  for (const Variable& variable : model.graph.variables()) {
    if (!variable.buffer) continue;
    ++buffers;
    EXPECT_NE(variable.next, kNone);
  }
  EXPECT_EQ(buffers, 2);
  EXPECT_THAT(model.initial.at("bn.running_mean").data, ElementsAre(3, 4));
  EXPECT_THAT(model.initial.at("bn.running_var").data, ElementsAre(5, 6));
}

TEST(OnnxImport, OpenDimensions) {
  FileBuilder file;
  file.input("x", {-1, 3}).output("y");
  file.node("Relu", {"x"}, {"y"});
  const auto shape = [&](const ImportOptions& options) {
    const Model model = file.import(options).model;
    return model.graph.value(model.outputs[0].value).shape;
  };
  EXPECT_EQ(shape({}), (Shape{1, 3}));
  EXPECT_EQ(shape({.batch = 16}), (Shape{16, 3}));

  FileBuilder sequence;
  sequence.input("ids", {-1, -1, 4}).output("y");
  sequence.node("Relu", {"ids"}, {"y"});
  EXPECT_THAT(refusal(sequence),
              HasSubstr("input ids: the size of dimension 'ids.1' is not fixed"));
  EXPECT_THAT(refusal(sequence), HasSubstr("--dimension ids.1="));
  auto* shape_proto = sequence.graph().mutable_input(0)->mutable_type()->mutable_tensor_type();
  shape_proto->mutable_shape()->mutable_dim(1)->set_dim_param("sequence");
  EXPECT_THAT(refusal(sequence), HasSubstr("--dimension sequence="));
  const Model model = sequence.import({.batch = 2, .dimensions = {{"sequence", 7}}}).model;
  EXPECT_EQ(model.graph.value(model.outputs[0].value).shape, (Shape{2, 7, 4}));
}

TEST(OnnxImport, ABatchOfOneInTheFileIsReplaced) {
  FileBuilder file;
  file.input("x", {1, 2, 3}).output("y");
  file.integers("flat", {2}, {1, 6}).floats("w", {6, 2}, std::vector<float>(12, 1.0f));
  file.node("Reshape", {"x", "flat"}, {"f"}, "flatten");
  file.node("MatMul", {"f", "w"}, {"y"}, "fc");
  const Model model = file.import({.batch = 5}).model;
  EXPECT_EQ(model.graph.value(model.outputs[0].value).shape, (Shape{5, 2}));
}

TEST(OnnxImport, AFixedBatchStaysWhereTheNetworkDependsOnIt) {
  constexpr int64_t kBatch = 3;
  const auto stays = [](const std::string& name, const auto& build) {
    FileBuilder file;
    file.input("x", {1, 4}).output("y");
    build(file);
    EXPECT_EQ(file.import({.batch = kBatch}).model.graph.value(0).shape, (Shape{1, 4})) << name;
  };
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    stays(op, [&](FileBuilder& file) { test::set_int(file.node(op, {"x"}, {"y"}), "axis", 0); });
  }
  for (const char* op : {"ReduceMean", "ReduceMax", "ReduceMin"}) {
    stays(op, [&](FileBuilder& file) { test::set_ints(file.node(op, {"x"}, {"y"}), "axes", {0}); });
  }
  stays("ReduceSum of all", [](FileBuilder& file) { file.node("ReduceSum", {"x"}, {"y"}); });
  stays("CumSum", [](FileBuilder& file) {
    file.integers("axis", {}, {0}).node("CumSum", {"x", "axis"}, {"y"});
  });
  stays("LayerNormalization", [](FileBuilder& file) {
    file.floats("s", {1, 4}, {1, 1, 1, 1});
    test::set_int(file.node("LayerNormalization", {"x", "s"}, {"y"}), "axis", 0);
  });
  stays("first row", [](FileBuilder& file) {
    file.integers("row", {1}, {0}).node("Gather", {"x", "row"}, {"first"});
    file.node("Sub", {"x", "first"}, {"y"});
  });
  stays("flat", [](FileBuilder& file) {
    file.integers("flat", {1}, {-1}).node("Reshape", {"x", "flat"}, {"f"});
    file.node("Softmax", {"f"}, {"y"});
  });
  stays("rows of one sample", [](FileBuilder& file) {
    file.integers("rows", {2}, {2, -1}).node("Reshape", {"x", "rows"}, {"y"});
  });
  stays("product of samples", [](FileBuilder& file) {
    test::set_ints(file.node("Transpose", {"x"}, {"t"}), "perm", {1, 0});
    file.node("MatMul", {"t", "x"}, {"p"});
    file.node("MatMul", {"x", "p"}, {"y"});
  });
  stays("constant with as many rows", [](FileBuilder& file) {
    file.floats("c", {3, 4}, std::vector<float>(12, 1.0f)).node("Add", {"x", "c"}, {"y"});
  });
  stays("shape as a number", [](FileBuilder& file) {
    file.node("Shape", {"x"}, {"s"});
    test::set_int(file.node("Cast", {"s"}, {"f"}), "to", 1);
    file.integers("zero", {1}, {0}).node("Gather", {"f", "zero"}, {"n"});
    file.node("Mul", {"x", "n"}, {"y"});
  });
  stays("elements of the first sample", [](FileBuilder& file) {
    file.integers("w", {1, 4}, {0, 0, 0, 0});
    test::set_int(file.node("GatherElements", {"x", "w"}, {"y"}), "axis", 0);
  });
}

TEST(OnnxImport, ABatchIsReplacedWhereEveryNodeKeepsSamplesApart) {
  FileBuilder file;
  file.input("x", {1, 2, 4}).output("y");
  file.floats("w", {4, 4}, std::vector<float>(16, 0.5f)).floats("b", {4}, {1, 2, 3, 4});
  file.floats("s", {4}, {1, 1, 1, 1});
  file.node("MatMul", {"x", "w"}, {"m"}, "product");
  file.node("Add", {"m", "b"}, {"a"}, "shift");
  file.node("LayerNormalization", {"a", "s"}, {"l"}, "norm");
  test::set_ints(file.node("Transpose", {"l"}, {"t"}, "move"), "perm", {0, 2, 1});
  file.node("MatMul", {"l", "t"}, {"scores"}, "scores");
  file.node("Softmax", {"scores"}, {"y"}, "softmax");
  const Model model = file.import({.batch = 5}).model;
  EXPECT_EQ(model.graph.value(model.outputs[0].value).shape, (Shape{5, 2, 2}));
}

TEST(OnnxImport, DimensionsThatNobodyAsksForAreErrors) {
  FileBuilder file;
  file.input("x", {-1, 3}).output("y");
  file.node("Relu", {"x"}, {"y"});
  EXPECT_THAT(refusal(file, {.dimensions = {{"sequnce", 3}}}), HasSubstr("dimension 'sequnce'"));
}

TEST(OnnxImport, ManyNodesOfOneNameAreNoTrouble) {
  FileBuilder file;
  file.input("x", {1}).output("y");
  constexpr int kNodes = 20000;
  for (int i = 0; i < kNodes; ++i) {
    file.node("Relu", {i == 0 ? "x" : "v" + std::to_string(i)},
              {i + 1 == kNodes ? "y" : "v" + std::to_string(i + 1)}, "same");
  }
  const Model model = file.import().model;
  EXPECT_EQ(model.graph.nodes().back().path, "same_20000");
}

/// Calls a function of the file: y = Clip(LeakyRelu(x, alpha of the call), low), low left out.
FileBuilder calling_a_function() {
  FileBuilder file;
  file.input("x", {4}).output("y");
  ::onnx::FunctionProto& function = *file.file().add_functions();
  function.set_name("Leaky");
  function.set_domain("local");
  function.add_input("a");
  function.add_input("low");
  function.add_output("b");
  function.add_attribute("slope");
  ::onnx::NodeProto& leak = *function.add_node();
  leak.set_op_type("LeakyRelu");
  leak.add_input("a");
  leak.add_output("l");
  ::onnx::AttributeProto& alpha = *leak.add_attribute();
  alpha.set_name("alpha");
  alpha.set_type(::onnx::AttributeProto::FLOAT);
  alpha.set_ref_attr_name("slope");
  ::onnx::NodeProto& clip = *function.add_node();
  clip.set_op_type("Clip");
  clip.add_input("l");
  clip.add_input("low");
  clip.add_output("b");
  file.node("Leaky", {"x"}, {"y"}, "call").set_domain("local");
  return file;
}

TEST(OnnxImport, FunctionsTakeTheAttributesOfTheirCall) {
  const std::vector<Tensor> x{{{4}, {-2.0f, -1.0f, 0.0f, 3.0f}}};
  const auto run = [&](const FileBuilder& file) {
    return test::run(test::start(file.import().model, preset_plan("float32").value()), x)[0].data;
  };
  FileBuilder file = calling_a_function();
  EXPECT_THAT(run(file), ElementsAre(-2.0f * 0.01f, -0.01f, 0.0f, 3.0f));  // the operator's own
  ::onnx::AttributeProto& slope = *file.graph().mutable_node(0)->add_attribute();
  slope.set_name("slope");
  slope.set_type(::onnx::AttributeProto::FLOAT);
  slope.set_f(0.5f);
  EXPECT_THAT(run(file), ElementsAre(-1.0f, -0.5f, 0.0f, 3.0f));
  EXPECT_THAT(paths(file.import().model), testing::Each(HasSubstr("call/")));
}

TEST(OnnxImport, FunctionsHaveDefaultsOfTheirOwn) {
  FileBuilder file = calling_a_function();
  ::onnx::AttributeProto slope;
  slope.set_name("slope");
  slope.set_type(::onnx::AttributeProto::FLOAT);
  slope.set_f(0.25f);
  // FunctionProto.attribute_proto, field 11, of IR version 9.
  const std::string text = slope.SerializeAsString();
  const std::string field = std::string("\x5a") + static_cast<char>(text.size()) + text;
  ASSERT_TRUE(file.file().mutable_functions(0)->MergeFromString(field));
  const std::vector<Tensor> x{{{4}, {-2.0f, -1.0f, 0.0f, 3.0f}}};
  const auto run = [&] {
    return test::run(test::start(file.import().model, preset_plan("float32").value()), x)[0].data;
  };
  EXPECT_THAT(run(), ElementsAre(-0.5f, -0.25f, 0.0f, 3.0f));
  slope.set_f(0.5f);
  *file.graph().mutable_node(0)->add_attribute() = slope;  // the call's own comes first
  EXPECT_THAT(run(), ElementsAre(-1.0f, -0.5f, 0.0f, 3.0f));
}

TEST(OnnxImport, DamagedDefaultsOfFunctionsAreRefused) {
  for (const std::string& field : {std::string("\x5a\x01\x0a"), std::string("\x58\x01")}) {
    FileBuilder file = calling_a_function();
    ASSERT_TRUE(file.file().mutable_functions(0)->MergeFromString(field));
    EXPECT_THAT(refusal(file), HasSubstr("damaged"));
  }
}

TEST(OnnxImport, WhatIntegersAtRunTimeCannotDoIsRefused) {
  const auto refused = [](const char* op, std::initializer_list<std::string> inputs, int type,
                          const std::function<void(::onnx::NodeProto&)>& with = {}) {
    FileBuilder file;
    file.input("ids", {2, 3}, type).input("x", {2, 3}).output("y");
    file.integers("two", {}, {2}).floats("real", {}, {0.5f});
    file.integers("pads", {4}, {0, 1, 0, 1}).integers("most", {}, {INT64_MAX});
    file.node("Identity", {"ids"}, {"i"});
    ::onnx::NodeProto& node = file.node(op, inputs, {"y"}, "node");
    if (with) with(node);
    return refusal(file);
  };
  constexpr int kUint8 = 2, kInt64 = 7;
  EXPECT_THAT(refused("Add", {"i", "x"}, kInt64), HasSubstr("its inputs mix reals and integers"));
  EXPECT_THAT(refused("Mul", {"i", "real"}, kInt64),
              HasSubstr("its inputs mix reals and integers"));
  EXPECT_THAT(refused("Concat", {"i", "x"}, kInt64,
                      [](::onnx::NodeProto& node) { test::set_int(node, "axis", 0); }),
              HasSubstr("its inputs mix reals and integers"));
  EXPECT_THAT(refused("Add", {"i", "i"}, kUint8), HasSubstr("computing with uint8 at run time"));
  EXPECT_THAT(refused("Add", {"i", "most"}, kInt64), HasSubstr("is out of range"));
  EXPECT_THAT(refused("Pad", {"i", "pads", "most"}, kInt64),
              HasSubstr("a value that is not an index"));
  EXPECT_THAT(refused("Mod", {"x", "x"}, kInt64), HasSubstr("Mod of reals"));
  EXPECT_THAT(refused("ReduceMean", {"i"}, kInt64), HasSubstr("computing reals from integers"));
  EXPECT_THAT(refused("Exp", {"i"}, kInt64), HasSubstr("computing reals from integers"));
  EXPECT_THAT(refused("Cast", {"i"}, kInt64,
                      [](::onnx::NodeProto& node) { test::set_int(node, "to", kUint8); }),
              HasSubstr("a cast to uint8 at run time"));
}

TEST(OnnxImport, NumbersOfIntegersLetNoGradientThrough) {
  FileBuilder file;
  file.input("x", {2, 3}).output("y");
  file.floats("w", {3, 3}, std::vector<float>(9, 0.25f));
  file.node("MatMul", {"x", "w"}, {"m"}, "product");
  file.node("ArgMax", {"m"}, {"a"}, "most");
  test::set_int(file.node("Cast", {"a"}, {"f"}, "number"), "to", 1);
  file.node("Add", {"m", "f"}, {"y"}, "sum");
  Graph graph = file.import().model.graph;
  const ValueId y = graph.nodes().back().outputs[0];
  const ValueId loss = graph.add1("ReduceSum", "loss", {y}, {{"keepdims", int64_t{0}}});
  const GradientMap gradients = differentiate(graph, loss, graph.add_constant(1.0f));
  EXPECT_TRUE(gradients.contains(graph.variables()[0].value));
  for (const Node& node : graph.nodes()) {
    EXPECT_FALSE(node.phase == Phase::backward && node.path == "most");
  }
}

TEST(OnnxImport, IntegersThatSelectStayIntegers) {
  FileBuilder file;
  file.input("ids", {2, 3}, 7).input("mask", {2, 3}, 7).output("y");
  file.floats("table", {5, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  file.integers("last", {1}, {-1});
  file.node("Gather", {"table", "ids"}, {"e"}, "embed");
  file.node("Unsqueeze", {"mask", "last"}, {"m"}, "wide");
  test::set_int(file.node("Cast", {"m"}, {"f"}, "numbers"), "to", 1);
  file.node("Mul", {"e", "f"}, {"y"}, "hide");
  const Model model = file.import().model;
  EXPECT_EQ(model.graph.value(model.graph.input("ids")).type, ElementType::index);
  EXPECT_EQ(model.graph.value(model.graph.input("mask")).type, ElementType::real);
  const std::vector<Tensor> inputs{{{2, 3}, {0, 1, 4, 2, 2, -1}}, {{2, 3}, {1, 0, 1, 1, 1, 0}}};
  const auto network = test::start(model, preset_plan("float32").value());
  EXPECT_THAT(test::run(network, inputs)[0].data, ElementsAre(0, 1, 0, 0, 8, 9, 4, 5, 4, 5, 0, 0));
}

TEST(OnnxImport, TheTypesOfTheFileAreAPlan) {
  FileBuilder file;
  file.input("x", {2, 2}).output("y");
  file.floats("w", {2, 2}, {1, 0, 0, 1});
  test::set_int(file.node("Cast", {"x"}, {"h"}, "narrow"), "to", 10);
  file.node("Relu", {"h"}, {"r"}, "relu");
  test::set_int(file.node("Cast", {"r"}, {"y"}, "widen"), "to", 1);
  const OnnxImport import = file.import();
  const auto format = [&](const std::string& path) {
    return resolve(import.types, path, "").write;
  };
  EXPECT_EQ(format("narrow"), kFp16);
  EXPECT_EQ(format("relu"), kFp16);
  EXPECT_EQ(format("widen"), kFp32);
  const std::vector<Tensor> x{{{2, 2}, {1.0f + 0x1p-12f, 70000.0f, -3.0f, 0x1p-26f}}};
  EXPECT_THAT(test::run(test::start(import.model, import.types), x)[0].data,
              ElementsAre(1.0f, INFINITY, 0.0f, 0.0f));
}

TEST(OnnxImport, WhatNeverDependsOnAnInputIsLeftOut) {
  FileBuilder file;
  file.input("x", {2}).output("y").output("shape");
  file.node("Relu", {"x"}, {"y"});
  file.node("Shape", {"x"}, {"shape"});
  const OnnxImport import = file.import();
  EXPECT_EQ(import.model.outputs.size(), 1u);
  EXPECT_THAT(import.notes, testing::Contains(HasSubstr("output shape")));
}

TEST(OnnxExport, RoundsWhereThePlanDoes) {
  FileBuilder file;
  file.input("x", {1, 3}).output("y");
  file.floats("w", {3, 2}, {1, 2, 3, 4, 5, 6});
  file.node("MatMul", {"x", "w"}, {"m"}, "fc");
  file.node("Softmax", {"m"}, {"y"}, "softmax");
  const Model model = file.import().model;
  const std::vector<Tensor> x{{{1, 3}, {0.3f, -0.7f, 0.11f}}};
  for (const char* name : {"float16", "bfloat16", "mixed_float16"}) {
    SCOPED_TRACE(name);
    const Plan plan = preset_plan(name).value();
    const auto network = test::start(model, plan);
    const std::string bytes = onnx_bytes(network.executable, "net", model.initial);
    const OnnxImport again = parse_onnx(
        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "again.onnx", ".");
    // The file's own types round like the plan; here three products have the same sum in any order.
    const std::vector<Tensor> expected = test::run(network, x);
    const std::vector<Tensor> actual = test::run(test::start(again.model, again.types), x);
    test::expect_close(actual[0], expected[0], 1e-6);
  }
}

TEST(OnnxExport, SaysWhatItCannotExpress) {
  FileBuilder file;
  file.input("x", {1, 3}).output("y");
  file.node("Relu", {"x"}, {"y"}, "relu");
  const Model model = file.import().model;
  Plan plan = preset_plan("float32").value();
  plan.defaults.read = plan.defaults.write = parse_format("e5m6").value();
  EXPECT_THROW(onnx_bytes(lower_inference(model, plan), "net", {}), Error);

  FileBuilder sums;
  sums.input("x", {1, 3}).output("y");
  sums.node("Softmax", {"x"}, {"y"}, "softmax");
  const Model softmax = sums.import().model;
  plan = preset_plan("float32").value();
  EXPECT_FALSE(onnx_bytes(lower_inference(softmax, plan), "net", {}).empty());
  accumulate_in(plan, parse_accumulation("kahan").value());
  EXPECT_THROW(onnx_bytes(lower_inference(softmax, plan), "net", {}), Error);
}

}  // namespace
}  // namespace halfscope
