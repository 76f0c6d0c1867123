// SPDX-License-Identifier: MIT
// Which tensors of a file train, which of them are one parameter, and what they and their layers
// are called. The files are written as PyTorch's exporters write them.
#include "core/onnx/readings.h"

#include <gmock/gmock.h>

#include <random>

#include "core/onnx/values.h"
#include "tests/data/test_files.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Names = std::vector<std::string>;

std::vector<float> random_values(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(generator() % 100003) / 50000.0f - 1.0f;
  return values;
}

Names trained(const OnnxImport& import) {
  Names names;
  for (const ImportParameter& each : import.parameters) names.push_back(each.name);
  return names;
}
Names doubtful(const OnnxImport& import) {
  Names names;
  for (const ImportDoubt& each : import.doubts) names.push_back(each.name);
  return names;
}
Names constant(const OnnxImport& import) {
  Names names;
  for (const ImportConstant& each : import.constants) names.push_back(each.name);
  return names;
}
Names layers(const OnnxImport& import) {
  Names paths;
  for (const Node& node : import.model.graph.nodes()) paths.push_back(node.path);
  return paths;
}

/// Metadata, whose field the classes of older ONNX do not know.
void note(google::protobuf::Message& message, int field, const std::string& key,
          const std::string& value) {
  ::onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(
      field, entry.SerializeAsString());
}

/// Files as torch.onnx.export(dynamo=True) writes them.
class DynamoFile : public FileBuilder {
 public:
  DynamoFile() { file().set_producer_name("pytorch"); }

  void signature(const Names& parameters, const Names& buffers = {}) {
    std::string text = "\n# inputs\n";
    for (const auto* list : {&parameters, &buffers}) {
      for (const std::string& name : *list) {
        text += argument(name) + ": " + (list == &parameters ? "PARAMETER" : "BUFFER") +
                " target='" + name + "'\n";
      }
    }
    note(graph(), 16, "pkg.torch.export.ExportedProgram.graph_signature", text + "x: USER_INPUT\n");
  }
  static std::string argument(std::string name) {
    std::replace(name.begin(), name.end(), '.', '_');
    return "p_" + name;
  }
  void folded_from(const std::string& name, const std::string& list) {
    ::onnx::ValueInfoProto& info = *graph().add_value_info();
    info.set_name(name);
    note(info, 4, "pkg.onnxscript.optimizer.folded_from", list);
  }
  /// Says that the last node is of the call NUMBER of `what` in `module`, which reads `reads`.
  void call(const std::string& module, const std::string& what, const std::string& number,
            const Names& reads) {
    ::onnx::NodeProto& node = *graph().mutable_node(graph().node_size() - 1);
    std::string scopes = "[''";
    for (size_t dot = module.find('.'); dot != std::string::npos; dot = module.find('.', dot + 1))
      scopes += ", '" + module.substr(0, dot) + "'";
    if (!module.empty()) scopes += ", '" + module + "'";
    note(node, 9, "pkg.torch.onnx.name_scopes", scopes + ", '" + what + "']");
    std::string text = "%" + what + number +
                       " : [num_users=1] = call_function[target=" + "torch.ops.aten." + what +
                       ".default](args = (%x";
    for (const std::string& each : reads) text += ", %" + argument(each);
    note(node, 9, "pkg.torch.onnx.fx_node", text + "), kwargs = {})");
  }
};

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
  note(*file.graph().mutable_node(0), 9, "pkg.onnxscript.rewriter.rule_name", "FuseBatchNorm");
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

/// Files as torch.onnx.export(dynamo=False) writes them.
class ScriptFile : public FileBuilder {
 public:
  ScriptFile() { file().set_producer_name("pytorch"); }
};

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
  EXPECT_THAT(layers(import), ElementsAre("m", "m:bias", "m:call_2", "m:bias_2"));
}

// Copies of a module start from the same random numbers, and train apart.
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

// As a table of relative positions that was gathered: its rows train once.
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

TEST(Readings, GuessesCanBeCorrected) {
  ScriptFile file;
  file.input("x", {4}).output("y");
  file.floats("positions", {4}, {0, 1, 2, 3}).floats("w", {4}, random_values(4, 1));
  file.node("Add", {"x", "positions"}, {"a"}, "/Add");
  file.node("Mul", {"a", "w"}, {"b"}, "/first/Mul");
  file.node("Mul", {"b", "w"}, {"y"}, "/second/Mul");
  EXPECT_THAT(trained(file.import()), ElementsAre("w"));
  EXPECT_THAT(doubtful(file.import()), ElementsAre("positions"));
  const OnnxImport other = file.import({.trainable = {"pos*"}, .frozen = {"w"}});
  EXPECT_THAT(trained(other), ElementsAre("positions"));
  EXPECT_THAT(doubtful(other), IsEmpty());
  EXPECT_THAT(constant(other), ElementsAre("w"));
  EXPECT_THAT(trained(file.import({.untied = {"w"}})),
              UnorderedElementsAre("first.weight", "second.weight"));
  test::expect_error([&] { file.import({.frozen = {"nothing"}}); }, ErrorKind::usage,
                     {"no weight matches"});
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

TEST(OnnxReadings, AFunctionOfAParameterIsComputedBack) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"scale"});
  file.floats("exp", {}, {std::exp(1.5f)});
  file.folded("exp", "['scale']");
  file.marked("Mul", {"exp", "x"}, "y", "mul", "mul.Tensor", "%exp, %x");
  const OnnxImport import = file.import();
  ASSERT_THAT(names(import), ElementsAre("scale"));
  EXPECT_NEAR(import.model.initial.at("scale").data[0], 1.5f, 1e-6f);
  EXPECT_NEAR(gradients(import, {{{2}, {1, 2}}})["scale"][0], 3 * std::exp(1.5f), 1e-5f);
  ASSERT_EQ(import.doubts.size(), 1u);
  EXPECT_THAT(import.doubts[0].why, HasSubstr("computed back"));
}

TEST(OnnxReadings, OfTwoFunctionsTheFileNamesTheLast) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"ssm.a_log"});
  file.floats("neg", {2}, {-std::exp(0.5f), -std::exp(-2.0f)});
  file.folded("neg", "['exp', 'ssm.a_log']");
  file.marked("Mul", {"neg", "x"}, "y", "mul", "mul.Tensor", "%neg, %x", "ssm");
  const OnnxImport import = file.import();
  ASSERT_THAT(names(import), ElementsAre("ssm.a_log"));
  const std::vector<float>& start = import.model.initial.at("ssm.a_log").data;
  EXPECT_NEAR(start[0], 0.5f, 1e-6f);
  EXPECT_NEAR(start[1], -2.0f, 1e-6f);
  EXPECT_NEAR(gradients(import, {{{2}, {1, 1}}})["ssm.a_log"][1], -std::exp(-2.0f), 1e-6f);
}

TEST(OnnxReadings, TheInverseRootIsTwoFunctions) {
  MarkedFile file;
  file.input("x", {1, 2}).output("y");
  file.signature({"variance"});
  file.floats("view_2", {1, 2}, {0.5f, 2.0f});
  file.folded("view_2", "['rsqrt', 'val_3', 'variance']");
  file.marked("Mul", {"view_2", "x"}, "y", "mul", "mul.Tensor", "%view_2, %x");
  const OnnxImport import = file.import();
  ASSERT_THAT(names(import), ElementsAre("variance"));
  EXPECT_THAT(import.model.initial.at("variance").data, ElementsAre(4.0f, 0.25f));
  // -x / 2 v^1.5
  EXPECT_THAT(gradients(import, {{{1, 2}, {16, 1}}})["variance"], ElementsAre(-1.0f, -4.0f));
}

TEST(OnnxReadings, AFunctionWithUnknownNumbersIsNotComputedBack) {
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

TEST(OnnxReadings, AFunctionOfAParameterThatTheFileHasIsOneWithIt) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"rate"});
  file.floats("exp", {2}, {std::exp(0.5f), std::exp(-1.0f)}).floats("rate", {2}, {0.5f, -1.0f});
  file.folded("exp", "['rate']");
  file.marked("Mul", {"exp", "x"}, "m", "mul", "mul.Tensor", "%exp, %x");
  file.marked("Add", {"m", "rate"}, "y", "add", "add.Tensor", "%mul, %p_rate");
  const OnnxImport import = file.import();
  ASSERT_THAT(names(import), ElementsAre("rate"));
  EXPECT_EQ(import.model.initial.at("rate").data[0], 0.5f);
  EXPECT_NEAR(gradients(import, {{{2}, {2, 3}}})["rate"][1], 3 * std::exp(-1.0f) + 1, 1e-5f);
}

TEST(OnnxReadings, AFunctionThatLosesDigitsIsNotComputedBack) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"gate"});
  file.floats("sigmoid", {2}, {0.5f, 0.9999999f});  // of 0 and of about 16
  file.folded("sigmoid", "['gate']");
  file.marked("Mul", {"sigmoid", "x"}, "y", "mul", "mul.Tensor", "%sigmoid, %x");
  const OnnxImport import = file.import();
  EXPECT_EQ(import.model.initial.begin()->second.data[0], 0.5f);
  ASSERT_EQ(import.doubts.size(), 1u);
  EXPECT_THAT(import.doubts[0].why, HasSubstr("trains in its place"));
}

TEST(OnnxReadings, EqualResultsOfDifferentParametersTrainApart) {
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
  EXPECT_THAT(names(import),
              testing::UnorderedElementsAre("a.weight", "a.bias", "b.weight", "b.bias"));
  EXPECT_THAT(import.doubts, IsEmpty());
  auto found = gradients(import, {{{1, 2}, {3, 4}}});
  EXPECT_THAT(found["b.bias"], ElementsAre(1, 1));
  EXPECT_THAT(found["a.bias"], ElementsAre(0, 0));
}

TEST(OnnxReadings, AProductWithZerosLeavesABias) {
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
  EXPECT_THAT(names(import), testing::UnorderedElementsAre("rnn.weight", "rnn.bias"));
  EXPECT_THAT(import.doubts, IsEmpty());
  // Through the first sum and the product, and directly.
  EXPECT_THAT(gradients(import, {{{1, 2}, {0, 0}}})["rnn.bias"], ElementsAre(3 + 1, 7 + 1));
}

TEST(OnnxReadings, AllReadWhatWasComputedFromSeveralParameters) {
  MarkedFile file;
  file.input("x", {2}).output("y");
  file.signature({"tokens.weight", "positions.weight"});
  file.floats("add", {2}, {0.5f, -0.25f});
  file.folded("add", "['positions.weight', 'tokens.weight']");
  file.marked("Mul", {"add", "x"}, "m", "mul", "mul.Tensor", "%add, %x", "first");
  file.marked("Add", {"add", "m"}, "y", "add_1", "add.Tensor", "%add, %mul", "second");
  const OnnxImport import = file.import();
  EXPECT_THAT(names(import), ElementsAre("first.add"));
  EXPECT_THAT(gradients(import, {{{2}, {3, 4}}})["first.add"], ElementsAre(4, 5));
  ASSERT_FALSE(import.doubts.empty());
  EXPECT_THAT(import.doubts[0].why, HasSubstr("computed it from"));
}

TEST(OnnxReadings, LookingUpPaddingDoesNotTrainIt) {
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

TEST(OnnxReadings, ARowOfZerosIsPadding) {
  FileBuilder file;
  file.file().set_producer_name("pytorch");
  file.input("tokens", {3}, 7).output("y");
  file.floats("table.weight", {3, 2}, {0, 0, 3, 4, 5, 6});
  file.node("Gather", {"table.weight", "tokens"}, {"y"}, "/table/Gather");
  const OnnxImport import = file.import();
  EXPECT_THAT(import.notes, testing::Contains(HasSubstr("row 0 of table.weight is padding")));
  const std::vector<Tensor> tokens{{{3}, {0, 1, 0}}};
  EXPECT_THAT(gradients(import, tokens)["table.weight"], ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_THAT(test::run(test::start(import.model, preset_plan("float32").value()), tokens)[0].data,
              ElementsAre(0, 0, 3, 4, 0, 0));
  const OnnxImport whole = file.import({.trainable = {"table.*"}});
  EXPECT_THAT(whole.notes, IsEmpty());
  EXPECT_THAT(gradients(whole, tokens)["table.weight"], ElementsAre(2, 2, 1, 1, 0, 0));
}

TEST(OnnxReadings, ACastBufferOfZerosIsDoubted) {
  FileBuilder file;
  file.file().set_producer_name("pytorch");
  file.input("x", {2, 3}).output("y");
  file.floats("model.final_shift", {1, 3}, {0, 0, 0});
  test::set_int(file.node("Cast", {"model.final_shift"}, {"c"}, "/model/Cast"), "to", 1);
  file.node("Add", {"x", "c"}, {"y"}, "/model/Add");
  const OnnxImport import = file.import();
  EXPECT_THAT(names(import), ElementsAre("model.final_shift"));
  ASSERT_EQ(import.doubts.size(), 1u);
  EXPECT_THAT(import.doubts[0].why, HasSubstr("--frozen model.final_shift"));
}

}  // namespace
}  // namespace halfscope
