// SPDX-License-Identifier: MIT
// The tensors of a file that train, those that are one parameter, and the names of them and their
// layers. The files are written like those of PyTorch's exporters.
#include "core/onnx/readings.h"

#include <gmock/gmock.h>

#include <random>

#include "core/onnx/values.h"
#include "tests/data/test_files.h"
#include "tests/onnx/torch_files.h"

namespace halfscope {
namespace {

using test::add_metadata;
using test::constant;
using test::doubtful;
using test::DynamoFile;
using test::FileBuilder;
using test::layers;
using test::Names;
using test::random_values;
using test::ScriptFile;
using test::trained;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// Two normalizations that start alike are stored once; the metadata says what each reads.
TEST(Readings, MergedTensorsOfDynamoAreToldApart) {
  DynamoFile file;
  file.input("x", {2, 4}).output("y");
  file.floats("a.weight", {4}, {1, 1, 1, 1}).floats("a.bias", {4}, {0, 0, 0, 0});
  file.signature({"a.weight", "a.bias", "b.weight", "b.bias"});
  file.node("LayerNormalization", {"x", "a.weight", "a.bias"}, {"h"}, "node_layer_norm");
  file.call("a", "layer_norm", "", {"a.weight", "a.bias"});
  file.node("LayerNormalization", {"h", "a.weight", "a.bias"}, {"y"}, "node_layer_norm_1");
  file.call("b", "layer_norm", "_1", {"b.weight", "b.bias"});
  const OnnxImport import = file.import();
  EXPECT_THAT(trained(import), ElementsAre("a.weight", "a.bias", "b.weight", "b.bias"));
  EXPECT_THAT(layers(import), ElementsAre("a", "b"));
  EXPECT_THAT(doubtful(import), IsEmpty());
}

// A module that is called twice has one set of weights.
TEST(Readings, CallsOfOneModuleShareItsWeights) {
  DynamoFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("m.weight", {3, 3}, random_values(9, 1)).floats("m.bias", {3}, {0, 0, 0});
  file.signature({"m.weight", "m.bias"});
  file.node("Gemm", {"x", "m.weight", "m.bias"}, {"h"}, "node_linear");
  file.call("m", "linear", "", {"m.weight", "m.bias"});
  file.node("Gemm", {"h", "m.weight", "m.bias"}, {"y"}, "node_linear_1");
  file.call("m", "linear", "_1", {"m.weight", "m.bias"});
  const OnnxImport import = file.import();
  EXPECT_THAT(trained(import), ElementsAre("m.weight", "m.bias"));
  EXPECT_THAT(layers(import), ElementsAre("m", "m:call_2"));
}

TEST(Readings, BuffersAndUnmarkedConstantsOfDynamoDoNotTrain) {
  DynamoFile file;
  file.input("x", {2, 4}).output("y");
  file.floats("table", {4}, random_values(4, 1)).floats("val_3", {4}, random_values(4, 2));
  file.floats("scale", {}, {0.5f});
  file.signature({"scale"}, {"table"});
  file.node("Add", {"x", "table"}, {"a"}, "node_add");
  file.call("", "add", "", {"table"});
  file.node("Add", {"a", "val_3"}, {"b"}, "node_add_1");
  file.call("", "add", "_1", {});
  file.node("Mul", {"b", "scale"}, {"y"}, "node_mul");  // one number, but a parameter
  file.call("", "mul", "", {"scale"});
  const OnnxImport import = file.import();
  EXPECT_THAT(trained(import), ElementsAre("scale"));
  EXPECT_THAT(constant(import), UnorderedElementsAre("table", "val_3"));
}

TEST(Readings, BiasesOfZerosThatWereRemovedComeBack) {
  DynamoFile file;
  file.input("x", {1, 2, 4, 4}).output("y");
  file.floats("c.weight", {3, 2, 1, 1}, random_values(6, 1));
  file.signature({"c.weight", "c.bias"});
  file.node("Conv", {"x", "c.weight"}, {"y"}, "node_conv2d");
  file.call("c", "conv2d", "", {"c.weight", "c.bias"});
  const OnnxImport import = file.import();
  EXPECT_THAT(trained(import), ElementsAre("c.weight", "c.bias"));
  EXPECT_THAT(import.model.initial.at("c.bias").data, ElementsAre(0, 0, 0));
}

TEST(Readings, FoldedBatchNormalizationsAreDoubtful) {
  DynamoFile file;
  file.input("x", {1, 2, 4, 4}).output("y");
  file.floats("c.weight", {3, 2, 1, 1}, random_values(6, 1));
  file.floats("c_bias", {3}, random_values(3, 2));
  file.signature({"c.weight", "bn.weight", "bn.bias"}, {"bn.running_mean", "bn.running_var"});
  file.node("Conv", {"x", "c.weight", "c_bias"}, {"y"}, "node_Conv_1");
  file.call("bn", "_native_batch_norm_legit_no_training", "",
            {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"});
  add_metadata(*file.graph().mutable_node(0), 9, "pkg.onnxscript.rewriter.rule_name",
               "FuseBatchNorm");
  const OnnxImport import = file.import();
  EXPECT_THAT(layers(import), ElementsAre("c"));  // by its weight
  ASSERT_THAT(doubtful(import), Contains("batch normalization"));
}

// A tied table is stored as it is and transposed.
TEST(Readings, TransposedTensorsOfOneParameterStayTied) {
  DynamoFile file;
  file.input("x", {2, 3}).output("y");
  const std::vector<float> w{1, 2, 3, 4, 5, 6};
  file.floats("w", {2, 3}, w).floats("val_1", {3, 2}, {1, 4, 2, 5, 3, 6});
  file.signature({"w"});
  file.folded_from("val_1", "['w']");
  file.node("MatMul", {"x", "val_1"}, {"h"}, "node_a");
  file.call("a", "linear", "", {"w"});
  file.node("MatMul", {"h", "w"}, {"y"}, "node_b");
  file.call("b", "matmul", "", {"w"});
  const OnnxImport import = file.import();
  ASSERT_THAT(trained(import), ElementsAre("w"));
  EXPECT_THAT(import.parameters[0].readers, UnorderedElementsAre("a", "b"));
  const auto running = test::start(import.model, Plan{});
  const std::vector<Tensor> x{Tensor{{2, 3}, {1, 0, 0, 0, 1, 0}}};
  EXPECT_THAT(test::run(running, x)[0].data, ElementsAre(17, 22, 27, 22, 29, 36));
}

TEST(Readings, AParameterThatWasFoldedAwayIsDoubtful) {
  DynamoFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("w", {3}, random_values(3, 1));
  file.signature({"w", "gone"});
  file.node("Mul", {"x", "w"}, {"y"}, "node_mul");
  file.call("", "mul", "", {"w"});
  EXPECT_THAT(doubtful(file.import()), ElementsAre("gone"));
}

TEST(Readings, IdentitiesOfTorchScriptAreParametersOfTheirOwn) {
  ScriptFile file;
  file.input("x", {2, 4}).output("y");
  file.floats("a.weight", {4}, {1, 1, 1, 1}).floats("a.bias", {4}, {0, 0, 0, 0});
  file.node("Identity", {"a.weight"}, {"b.weight"}, "Identity_0");
  file.node("Identity", {"a.bias"}, {"b.bias"}, "Identity_1");
  file.node("LayerNormalization", {"x", "a.weight", "a.bias"}, {"h"}, "/a/LayerNormalization");
  file.node("LayerNormalization", {"h", "b.weight", "b.bias"}, {"y"}, "/b/LayerNormalization");
  const OnnxImport import = file.import();
  EXPECT_THAT(trained(import), ElementsAre("a.weight", "a.bias", "b.weight", "b.bias"));
  EXPECT_THAT(layers(import), ElementsAre("a", "b"));
}

// Folded weights have numbers for names: what reads them says whose they are.
TEST(Readings, FurtherCallsOfAModuleAreRecognised) {
  ScriptFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("onnx::MatMul_7", {3, 3}, random_values(9, 1)).floats("m.bias", {3}, {0, 0, 0});
  file.node("Identity", {"onnx::MatMul_7"}, {"onnx::MatMul_9"}, "Identity_0");
  file.node("MatMul", {"x", "onnx::MatMul_7"}, {"a"}, "/m/MatMul");
  file.node("Add", {"m.bias", "a"}, {"h"}, "/m/Add");
  file.node("MatMul", {"h", "onnx::MatMul_9"}, {"b"}, "/m_1/MatMul");
  file.node("Add", {"m.bias", "b"}, {"y"}, "/m_1/Add");
  const OnnxImport import = file.import();
  EXPECT_THAT(trained(import), ElementsAre("m.weight", "m.bias"));
  EXPECT_THAT(layers(import), ElementsAre("m", "m:call_2"));
}

// Copies of a module start from the same random numbers, and train separately.
TEST(Readings, CopiesOfAModuleAreNotTied) {
  ScriptFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("onnx::MatMul_1", {3, 3}, random_values(9, 1));
  file.floats("onnx::MatMul_2", {3, 3}, random_values(9, 2));
  std::string h = "x";
  for (const char* layer : {"0", "1"}) {
    const std::string module = "/layers." + std::string(layer), k(layer);
    file.node("MatMul", {h, "onnx::MatMul_1"}, {"a" + k}, module + "/first/MatMul");
    file.node("MatMul", {"a" + k, "onnx::MatMul_2"}, {k == "1" ? "y" : "b"},
              module + "/second/MatMul");
    h = "b";
  }
  EXPECT_THAT(trained(file.import()),
              UnorderedElementsAre("layers.0.first.weight", "layers.0.second.weight",
                                   "layers.1.first.weight", "layers.1.second.weight"));
}

TEST(Readings, ATableAndItsTransposeAreTied) {
  ScriptFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("emb.weight", {2, 3}, {1, 2, 3, 4, 5, 6});
  file.floats("onnx::MatMul_5", {3, 2}, {1, 4, 2, 5, 3, 6});
  file.node("MatMul", {"x", "onnx::MatMul_5"}, {"h"}, "/head/MatMul");
  file.node("MatMul", {"h", "emb.weight"}, {"y"}, "/emb/MatMul");
  EXPECT_THAT(trained(file.import()), ElementsAre("emb.weight"));
}

TEST(Readings, AClassTokenForEachSampleIsOneRow) {
  ScriptFile file;
  file.input("x", {4, 2, 2}).output("y");
  std::vector<float> token;
  for (int i = 0; i < 4; ++i) token.insert(token.end(), {0.5f, -0.25f});
  file.floats("onnx::Concat_9", {4, 1, 2}, token);
  test::set_int(file.node("Concat", {"onnx::Concat_9", "x"}, {"y"}, "/Concat"), "axis", 1);
  const OnnxImport import = file.import();
  ASSERT_EQ(import.parameters.size(), 1u);
  EXPECT_EQ(import.parameters[0].shape, (Shape{1, 1, 2}));
}

// Like a table of relative positions that was gathered: its rows train once.
TEST(Readings, RepeatedRowsAreATable) {
  ScriptFile file;
  file.input("x", {1, 2, 4, 4}).output("y");
  const std::vector<float> table = random_values(14, 3);  // [7, 2]
  std::vector<float> values;
  for (size_t head = 0; head < 2; ++head) {
    for (size_t i = 0; i < 4; ++i) {
      for (size_t j = 0; j < 4; ++j) values.push_back(table[(3 + i - j) * 2 + head]);
    }
  }
  file.floats("onnx::Add_9", {1, 2, 4, 4}, values);
  file.node("Add", {"x", "onnx::Add_9"}, {"y"}, "/attn/Add");
  const OnnxImport import = file.import();
  ASSERT_EQ(import.parameters.size(), 1u);
  EXPECT_EQ(import.parameters[0].shape, (Shape{7, 2}));
  const auto running = test::start(import.model, Plan{});
  const std::vector<Tensor> x{Tensor{{1, 2, 4, 4}, std::vector<float>(32, 0.0f)}};
  EXPECT_EQ(test::run(running, x)[0].data, values);
}

TEST(Readings, FrozenBatchNormalizationsDoNotTrain) {
  ScriptFile file;
  file.input("x", {1, 2, 2, 2}).output("y");
  file.floats("bn.weight", {1, 2, 1, 1}, {1, 2}).floats("bn.var", {1, 2, 1, 1}, {3, 4});
  file.floats("eps", {}, {1e-5f});
  file.node("Add", {"bn.var", "eps"}, {"v"}, "/bn/Add");
  file.node("Sqrt", {"v"}, {"s"}, "/bn/Sqrt");
  file.node("Div", {"bn.weight", "s"}, {"scale"}, "/bn/Div");
  file.node("Mul", {"x", "scale"}, {"y"}, "/bn/Mul");
  EXPECT_THAT(trained(file.import()), IsEmpty());
}

// A variance without the other tensors of a normalization may be a parameter as well.
TEST(Readings, VariancesAloneAreDoubtful) {
  ScriptFile file;
  file.input("x", {1, 2}).output("y");
  file.floats("v", {2}, {3, 4}).floats("onnx::Add_9", {}, {1e-5f});
  file.node("Add", {"v", "onnx::Add_9"}, {"sum"}, "/Add");
  file.node("Sqrt", {"sum"}, {"s"}, "/Sqrt");
  file.node("Div", {"x", "s"}, {"y"}, "/Div");
  EXPECT_THAT(trained(file.import()), IsEmpty());
  EXPECT_THAT(doubtful(file.import()), ElementsAre("v"));
  EXPECT_THAT(trained(file.import({.trainable = {"v"}})), ElementsAre("v"));
}

// As in weight standardization and in rows of length one: the root is of the weight's own numbers.
TEST(Readings, NormalizedWeightsTrain) {
  ScriptFile file;
  file.input("x", {1, 3}).output("y");
  file.floats("w", {2, 3}, random_values(6, 1)).floats("g", {2, 1}, random_values(2, 2));
  file.floats("onnx::Add_9", {}, {1e-5f});
  file.node("Mul", {"w", "w"}, {"squares"}, "/Mul");
  test::set_ints(file.node("ReduceMean", {"squares"}, {"mean"}, "/ReduceMean"), "axes", {1});
  file.node("Add", {"mean", "onnx::Add_9"}, {"v"}, "/Add");
  file.node("Sqrt", {"v"}, {"s"}, "/Sqrt");
  file.node("Mul", {"g", "w"}, {"scaled"}, "/Mul_1");
  file.node("Div", {"scaled", "s"}, {"weight"}, "/Div");
  test::set_int(file.node("Gemm", {"x", "weight"}, {"y"}, "/Gemm"), "transB", 1);
  EXPECT_THAT(trained(file.import()), UnorderedElementsAre("w", "g"));
}

TEST(Readings, GuessesCanBeCorrected) {
  ScriptFile file;
  file.input("x", {4}).output("y");
  file.floats("positions", {4}, {0, 1, 2, 3}).floats("w", {4}, random_values(4, 1));
  file.node("Add", {"x", "positions"}, {"a"}, "/Add");
  file.node("Mul", {"a", "w"}, {"b"}, "/first/Mul");
  file.node("Mul", {"b", "w"}, {"y"}, "/second/Mul");
  EXPECT_THAT(trained(file.import()), ElementsAre("w"));
  EXPECT_THAT(doubtful(file.import()), UnorderedElementsAre("positions", "w"));
  const OnnxImport other = file.import({.trainable = {"pos*"}, .frozen = {"w"}});
  EXPECT_THAT(trained(other), ElementsAre("positions"));
  EXPECT_THAT(doubtful(other), IsEmpty());
  EXPECT_THAT(constant(other), ElementsAre("w"));
  EXPECT_THAT(trained(file.import({.untied = {"w"}})),
              UnorderedElementsAre("first.weight", "second.weight"));
  test::expect_error([&] { file.import({.frozen = {"nothing"}}); }, ErrorKind::usage,
                     {"no weight matches"});
}

// TorchScript does not distinguish parameters from buffers; a list in the file does.
TEST(Readings, AListOfParametersSettlesWhatTrains) {
  ScriptFile file;
  file.input("x", {4}).output("y");
  file.floats("mean", {4}, random_values(4, 1)).floats("gamma", {4}, {0, 1, 2, 3});
  file.node("Sub", {"x", "mean"}, {"a"}, "/Sub");
  file.node("Mul", {"a", "gamma"}, {"y"}, "/Mul");
  EXPECT_THAT(doubtful(file.import()), UnorderedElementsAre("mean", "gamma"));
  ::onnx::StringStringEntryProto& list = *file.file().add_metadata_props();
  list.set_key("halfscope.parameters");
  list.set_value("gamma\nunused");
  const OnnxImport import = file.import();
  EXPECT_THAT(trained(import), ElementsAre("gamma"));
  EXPECT_THAT(constant(import), ElementsAre("mean"));
  EXPECT_THAT(doubtful(import), ElementsAre("unused"));
}

// A buffer that starts equal to a parameter is stored once with it, and stays as it is.
TEST(Readings, ABufferThatEqualsAParameterDoesNotTrain) {
  DynamoFile file;
  file.input("x", {2, 4}).output("y");
  file.floats("w", {4}, {1, 1, 1, 1});
  file.signature({"w"}, {"scale"});
  file.node("Mul", {"x", "w"}, {"a"}, "node_mul");
  file.call("", "mul", "", {"w"});
  file.node("Mul", {"a", "w"}, {"y"}, "node_mul_1");
  file.call("", "mul", "_1", {"scale"});
  const OnnxImport import = file.import();
  ASSERT_THAT(trained(import), ElementsAre("w"));
  EXPECT_EQ(import.parameters[0].readers.size(), 1u);
}

TEST(Readings, DetachedValuesAreDoubtful) {
  DynamoFile file;
  file.input("x", {3}).output("y");
  file.floats("w", {3}, random_values(3, 1));
  file.signature({"w"});
  file.node("Mul", {"x", "w"}, {"a"}, "node_mul");
  file.call("", "mul", "", {"w"});
  file.node("Add", {"a", "x"}, {"y"}, "node_add");
  add_metadata(*file.graph().mutable_node(1), 9, "pkg.torch.onnx.name_scopes",
               "['', 'head', 'add']");
  add_metadata(
      *file.graph().mutable_node(1), 9, "pkg.torch.onnx.fx_node",
      "%add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%detach_2, "
      "%x), kwargs = {})");
  EXPECT_THAT(doubtful(file.import()), ElementsAre("head"));
}

// In an export for training, a batch normalization in eval() keeps its statistics.
TEST(Readings, BatchNormalizationsInEvalKeepTheirStatistics) {
  ScriptFile file;
  file.input("x", {4, 2}).output("y");
  for (const char* n : {"a", "b"}) {
    const std::string name(n);
    file.floats(name + ".weight", {2}, {1, 1}).floats(name + ".bias", {2}, {0, 0});
    file.floats(name + ".running_mean", {2}, {3, 4}).floats(name + ".running_var", {2}, {5, 6});
  }
  test::set_int(file.node("BatchNormalization",
                          {"x", "a.weight", "a.bias", "a.running_mean", "a.running_var"},
                          {"h", "m", "v"}, "/a/BatchNormalization"),
                "training_mode", 1);
  test::set_int(file.node("BatchNormalization",
                          {"h", "b.weight", "b.bias", "b.running_mean", "b.running_var"}, {"y"},
                          "/b/BatchNormalization"),
                "training_mode", 0);
  Names buffers;
  const OnnxImport import = file.import();
  for (const Variable& variable : import.model.graph.variables()) {
    if (variable.buffer) buffers.push_back(variable.path);
  }
  EXPECT_THAT(buffers, ElementsAre("a.running_mean", "a.running_var"));
}

// Files without any names: what starts equal is stored once, and each node gets its own.
TEST(Readings, WithoutNamesOnesAreToldApartAndRandomNumbersAreTied) {
  FileBuilder file;
  file.input("x", {2, 2}).output("y");
  file.floats("s", {2}, {1, 1}).floats("z", {2}, {0, 0}).floats("w", {2, 2}, {1, 3, 2, 5});
  file.node("LayerNormalization", {"x", "s", "z"}, {"a"}, "n1");
  file.node("MatMul", {"a", "w"}, {"b"}, "p1");
  file.node("MatMul", {"b", "w"}, {"c"}, "p2");
  file.node("LayerNormalization", {"c", "s", "z"}, {"y"}, "n2");
  const OnnxImport import = file.import();
  EXPECT_THAT(trained(import),
              UnorderedElementsAre("n1.weight", "n1.bias", "p1.weight", "n2.weight", "n2.bias"));
}

TEST(Values, FormulasAreRecognised) {
  const auto tensor = [](Shape shape, std::vector<float> values) {
    return onnx_files::KnownTensor{.shape = std::move(shape), .reals = std::move(values)};
  };
  std::vector<float> sines;
  for (int k = 0; k < 6; ++k) {
    for (double frequency : {1.0, 0.01})
      sines.push_back(static_cast<float>(std::sin(k * frequency)));
  }
  EXPECT_TRUE(onnx_files::follows_formula(tensor({6, 2}, sines)));
  EXPECT_TRUE(onnx_files::follows_formula(tensor({4}, {1, 0.1f, 0.01f, 0.001f})));
  EXPECT_TRUE(onnx_files::follows_formula(tensor({5}, {0, 2, 4, 6, 8})));
  EXPECT_FALSE(onnx_files::follows_formula(tensor({4}, {1, 1, 1, 1})));
  EXPECT_FALSE(onnx_files::follows_formula(tensor({8}, random_values(8, 5))));
  EXPECT_FALSE(onnx_files::follows_formula(tensor({4, 4}, {1, 0, 0, 0, 0, 1, 0, 0,  //
                                                           0, 0, 1, 0, 0, 0, 0, 1})));
}

// TorchScript leaves out modules that it does not call; the names of weights have them.
TEST(ModuleNames, WeightsSayWhatTorchScriptLeavesOut) {
  ScriptFile file;
  file.input("x", {2, 3}).output("y");
  for (const char* name : {"enc.l", "dec.l", "dec.out"})
    file.floats(std::string(name) + ".weight", {3, 3}, random_values(9, name[0]));
  file.node("MatMul", {"x", "enc.l.weight"}, {"a"}, "/l/MatMul");
  file.node("Relu", {"a"}, {"b"}, "/l/act/Relu");
  file.node("MatMul", {"b", "dec.l.weight"}, {"c"}, "/l_1/MatMul");
  file.node("MatMul", {"c", "dec.out.weight"}, {"y"}, "/dec/MatMul");
  EXPECT_THAT(layers(file.import()), ElementsAre("enc.l:matmul", "enc.l.act", "dec.l", "dec.out"));
}

TEST(ModuleNames, ErrorsNameTheModule) {
  ScriptFile file;
  file.input("x", {2, 3}).output("y");
  file.node("Det", {"x"}, {"y"}, "/body/body.1/Det");
  test::expect_error([&] { file.import(); }, ErrorKind::runtime,
                     {"body.1 (Det /body/body.1/Det): this operator is not supported"});
}

// A plan selects a node by its path, by its module, and by the file's own name.
TEST(ModuleNames, PlansSelectLayersByEachOfTheirNames) {
  ScriptFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("net.0.fc.weight", {3, 3}, random_values(9, 1));
  file.node("MatMul", {"x", "net.0.fc.weight"}, {"a"}, "/net/net.0/fc/MatMul");
  file.node("Add", {"a", "x"}, {"b"}, "/net/net.0/Add");
  file.node("Relu", {"b"}, {"y"}, "/net/net.0/Relu");
  const OnnxImport import = file.import();
  EXPECT_THAT(layers(import), ElementsAre("net.0.fc", "net.0:add", "net.0:relu"));
  const auto narrow = [&](const std::string& glob) {
    Plan plan;
    plan.rules.push_back({.path = glob, .op = "", .read = kFp16, .write = kFp16});
    Names paths;
    for (const LayerInfo& layer : lower_inference(import.model, plan).layers) {
      if (layer.write == kFp16) paths.push_back(layer.path);
    }
    return paths;
  };
  EXPECT_THAT(narrow("net.0:add"), ElementsAre("net.0:add"));
  EXPECT_THAT(narrow("net.0"), ElementsAre("net.0:add", "net.0:relu"));
  EXPECT_THAT(narrow("net.0*"), ElementsAre("net.0.fc", "net.0:add", "net.0:relu"));
  EXPECT_THAT(narrow("/net/net.0/fc/MatMul"), ElementsAre("net.0.fc"));
  test::expect_error([&] { narrow("net.1"); }, ErrorKind::usage, {"no layer matches"});
}

}  // namespace
}  // namespace halfscope
