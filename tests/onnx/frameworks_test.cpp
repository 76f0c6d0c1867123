// SPDX-License-Identifier: MIT
// Networks that Keras and Flax exported train as they do there: ten losses of SGD and of Adam, the
// trained weights and their names. Files that lack something say so.
// tests/oracle/onnx_frameworks.py --write-files wrote the files and the frameworks' losses in
// float64, and compares more of them where the frameworks are installed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/data/npy.h"
#include "core/error.h"
#include "core/models/loss.h"
#include "tests/onnx/network_support.h"
#include "tests/onnx/zip_members.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using Json = nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

struct Archive {
  std::map<std::string, std::vector<uint8_t>> members;
  Json cases;
};

const Archive& archive() {
  static const Archive all = [] {
    Archive result;
    const std::string file = HALFSCOPE_SOURCE_DIR "/tests/onnx/files/frameworks.zip";
    result.members = test::zip_members(file);
    result.cases = Json::parse(result.members.at("frameworks.json"));
    return result;
  }();
  return all;
}

std::string name_of(const Json& given) {
  return given.at("network").get<std::string>() + "." + given.at("variant").get<std::string>();
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const Json& each : archive().cases) result.push_back(name_of(each));
  return result;
}

const Json& case_of(const std::string& name) {
  for (const Json& each : archive().cases) {
    if (name_of(each) == name) return each;
  }
  throw Error("no case " + name);
}

OnnxImport imported(const Json& given, int64_t batch) {
  const std::string file = name_of(given) + ".onnx";
  return parse_onnx(archive().members.at(file), file, ".", {.batch = batch});
}

Dataset data_of(const Json& given) {
  Dataset data{.name = "samples", .sample_shape = {}, .train = {}, .test = {}};
  const std::string folder = given.at("network").get<std::string>() + "/";
  const std::string input = imported(given, 1).model.graph.inputs().front().name;
  for (const auto& [name, bytes] : archive().members) {
    if (!name.starts_with(folder)) continue;
    MemorySource source(bytes);
    const std::string key = name.substr(folder.size(), name.size() - folder.size() - 4);
    data.train.arrays.push_back(
        sample_array(key == "x" ? input : key, read_npy_double_array(source, name), name));
  }
  return data;
}

/// Returns the worst relative difference from the framework's losses; infinite if one is missing.
double loss_difference(const Json& given, const std::string& how, const std::string& plan) {
  TrainConfig config = test::config("unused", plan, "none");
  config.build = [&given](int64_t batch) {
    Model model = imported(given, batch).model;
    add_loss(model, parse_loss(given.at("loss").get<std::string>()));
    return model;
  };
  config.optimizer = parse_optimizer(how == "sgd" ? "sgd:lr=" + given.at("lr").dump()
                                                  : "adam:lr=0.0009765625,beta1=0.875,"
                                                    "beta2=0.9990234375,eps=1e-12");
  config.batch = 4;
  config.steps = 10;
  config.shuffle = false;
  config.every = 0;
  const std::vector<double> expected = given.at(how);
  const std::vector<StepRow> rows = test::train(config, data_of(given)).seen.rows;
  if (rows.size() != expected.size()) return INFINITY;
  double worst = 0.0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double difference = std::fabs(rows[i].loss - expected[i]) / std::fabs(expected[i]);
    if (!(difference <= worst)) worst = std::isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

bool has_doubt(const OnnxImport& import, const std::string& text) {
  return std::any_of(import.doubts.begin(), import.doubts.end(),
                     [&](const ImportDoubt& each) { return each.why.find(text) != text.npos; });
}

/// Returns whether the file is known to lack weights, because the exporter left them out or
/// multiplied others by them.
bool lacks_weights(const OnnxImport& import) {
  return has_doubt(import, "folded batch normalizations") || has_doubt(import, "leaves out biases");
}

std::multiset<int64_t> sizes_of(const Model& model) {
  std::multiset<int64_t> sizes;
  for (const Variable& variable : model.graph.variables()) {
    if (!variable.buffer) sizes.insert(element_count(model.graph.value(variable.value).shape));
  }
  return sizes;
}

class OnnxFrameworks : public testing::TestWithParam<std::string> {};

TEST_P(OnnxFrameworks, TrainAsThereOrSayWhyNot) {
  const Json& given = case_of(GetParam());
  const OnnxImport import = imported(given, 4);
  std::multiset<int64_t> sizes;
  for (const Json& weight : given.at("weights"))
    sizes.insert(element_count(weight.at(1).get<Shape>()));
  if (lacks_weights(import)) {
    EXPECT_NE(given.at("variant"), "weights");
    EXPECT_NE(sizes_of(import.model), sizes);
    EXPECT_GT(loss_difference(given, "sgd", "float32"), 1e-3) << "the doubt is wrong";
    return;
  }
  EXPECT_EQ(sizes_of(import.model), sizes);
  for (const char* how : {"sgd", "adam"}) {
    // Files have numbers such as an epsilon of 1e-3 in float32; the framework has them in float64.
    EXPECT_LE(loss_difference(given, how, "float64"), 2e-6) << how;
    EXPECT_LE(loss_difference(given, how, "float32"), 1e-5) << how;
  }
}

TEST_P(OnnxFrameworks, WeightsHaveTheNamesOfTheirLayers) {
  const Json& given = case_of(GetParam());
  const OnnxImport import = imported(given, 4);
  std::set<std::string> parameters;
  for (const ImportParameter& each : import.parameters) parameters.insert(each.name);
  if (given.at("variant") == "weights") {
    EXPECT_THAT(import.doubts, IsEmpty());
    for (const Json& weight : given.at("weights"))
      EXPECT_THAT(parameters, Contains(weight.at(0).get<std::string>()));
    return;
  }
  if (lacks_weights(import)) return;
  for (const Json& weight : given.at("weights")) {
    // "sequential/dense/kernel" is a weight of layer "dense".
    std::string layer = weight.at(0);
    layer.resize(layer.rfind('/'));
    if (layer.starts_with("sequential/")) layer = layer.substr(layer.find('/') + 1);
    // The body of a loop has names of its own after the layer's.
    layer = layer.substr(0, layer.find("/gru_cell"));
    std::replace(layer.begin(), layer.end(), '/', '.');
    EXPECT_TRUE(std::any_of(parameters.begin(), parameters.end(), [&](const std::string& each) {
      return each.starts_with(layer + ".") || each.starts_with(layer + ":") ||
             each.starts_with(layer + "/");
    })) << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OnnxFrameworks, testing::ValuesIn(names()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name) c = c == '.' ? '_' : c;
  return name;
});

TEST(OnnxFrameworksFiles, AreOfTenNetworksAndMore) {
  std::set<std::string> networks;
  for (const Json& each : archive().cases) networks.insert(each.at("network"));
  EXPECT_GE(networks.size(), 14u);
}

TEST(OnnxFrameworks, MissingBiasesAreADoubt) {
  const OnnxImport import = imported(case_of("mlp.fresh"), 4);
  ASSERT_EQ(import.doubts.size(), 1u);
  EXPECT_EQ(import.doubts[0].name, "biases");
  EXPECT_THAT(import.doubts[0].why, HasSubstr("none for dense, dense_1, dense_2;"));
  EXPECT_THAT(imported(case_of("mlp.export"), 4).doubts, IsEmpty());
}

TEST(OnnxFrameworks, FoldedBatchNormalizationsAreADoubt) {
  EXPECT_TRUE(has_doubt(imported(case_of("cnn_batch_norm.export"), 4),
                        "folded batch normalizations into other layers (batch_normalization, "
                        "conv2d_1)"));
}

TEST(OnnxFrameworks, LayersHaveKerasNames) {
  const OnnxImport import = imported(case_of("transformer.export"), 4);
  std::set<std::string> paths;
  for (const Node& node : import.model.graph.nodes()) paths.insert(node.path);
  for (const char* layer :
       {"embedding", "places", "multi_head_attention.query", "layer_normalization_4", "dense",
        "dense:bias", "dense_1", "dense_1:gelu", "dense_2", "dense_3", "dense_4"}) {
    EXPECT_THAT(paths, Contains(layer));
  }
}

/// A layer with one output whose bias is added, and a number that is not one.
OnnxImport one_output(const std::string& producer, const std::string& bias) {
  test::FileBuilder file;
  file.file().set_producer_name(producer);
  file.input("x", {4, 3}).output("y").floats("w", {3, 1}, {1, 2, 3}).floats(bias, {1}, {0.5f});
  file.floats("two", {1}, {2.0f});
  file.node("MatMul", {"x", "w"}, {"product"}, "product");
  file.node("Add", {"product", bias}, {"sum"}, "sum");
  file.node("Mul", {"sum", "two"}, {"y"}, "twice");
  return file.import();
}

TEST(OnnxFrameworks, TheBiasOfOneOutputTrains) {
  const OnnxImport import = one_output("", "b");
  ASSERT_EQ(import.parameters.size(), 2u);
  EXPECT_EQ(import.parameters[1].file_name, "b");
  ASSERT_EQ(import.doubts.size(), 1u);
  EXPECT_THAT(import.doubts[0].why, HasSubstr("it is a single number"));
}

TEST(OnnxFrameworks, JaxDoesNotSayWhatItsConstantsAre) {
  test::FileBuilder file;
  file.file().set_producer_name("jax2onnx");
  file.input("x", {4, 3}).output("y");
  file.floats("const_0", {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}).floats("const_1", {3}, {1, 2, 4});
  file.node("MatMul", {"x", "const_0"}, {"product"}, "product");
  file.node("Mul", {"product", "const_1"}, {"y"}, "scaled");
  const OnnxImport import = file.import();
  EXPECT_EQ(import.parameters.size(), 2u);
  ASSERT_EQ(import.doubts.size(), 1u);
  EXPECT_EQ(import.doubts[0].name, "const_1");
  EXPECT_THAT(file.import({.frozen = {"const_1"}}).doubts, IsEmpty());
}

TEST(OnnxFrameworks, AVariableOfTensorFlowIsNotInDoubt) {
  const OnnxImport import = one_output("tf2onnx", "dense/Add/ReadVariableOp:0");
  EXPECT_EQ(import.parameters.size(), 2u);
  EXPECT_THAT(import.doubts, IsEmpty());
}

}  // namespace
}  // namespace halfscope
