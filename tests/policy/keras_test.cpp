// SPDX-License-Identifier: MIT
// Keras policies against the dtypes that Keras itself gave the operations of some networks
// (keras_dtypes.py records them). Operations are found by their TensorFlow names, which the ONNX
// files keep.
#include "core/policy/keras.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/graph/op_def.h"
#include "core/graph/unrounded.h"
#include "core/lower/lower.h"
#include "core/models/loss.h"
#include "core/onnx/import.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

/// HALFSCOPE_KERAS_FILES names another folder that keras_dtypes.py wrote.
fs::path folder() {
  const char* other = std::getenv("HALFSCOPE_KERAS_FILES");
  return other != nullptr ? fs::path(other)
                          : fs::path(HALFSCOPE_SOURCE_DIR) / "tests/policy/files/keras";
}

const Json& recorded() {
  static const Json json = [] {
    std::ifstream file(folder() / "keras_dtypes.json");
    return Json::parse(file);
  }();
  return json;
}

/// Layers of the networks that have a dtype of their own (keras_networks.py).
const std::map<std::string, std::vector<std::string>>& float32_layers() {
  static const std::map<std::string, std::vector<std::string>> layers{
      {"output_rule", {"probabilities"}},
      {"residual", {"conv_b", "norm_b", "logits"}},
      {"unet", {"probability"}},
      {"gate", {"gate_fp32"}},
  };
  return layers;
}

struct Network {
  std::string file, name;
  bool keras3 = true;
  Json expected;
  FloatFormat format = kFp16;
  Model model;
  Executable exe;
};

/// A tensor's format in a layer's rule, as users write it: `{"path": "*/NAME/*", "format":
/// "fp32"}`.
void keep_layers(Plan& plan, const Network& network) {
  const auto found = float32_layers().find(network.name);
  if (found == float32_layers().end()) return;
  for (const std::string& layer : found->second) {
    const std::string scope = layer + (network.keras3 ? "_1" : "");
    keep_fp32(plan, network.name + (network.keras3 ? "_1" : "") + "/" + scope + "/*");
  }
}

/// Gives nodes the names of the file, which are those of TensorFlow's operations.
void use_file_names(Network& network) {
  std::map<std::string, std::string> names;
  for (NodeId id = 0; id < static_cast<NodeId>(network.model.graph.nodes().size()); ++id) {
    Node& node = network.model.graph.node(id);
    names.emplace(node.path, node.alias.empty() ? node.path : node.alias);
    node.path = names.at(node.path);
  }
  for (NodeId id = 0; id < static_cast<NodeId>(network.exe.graph.nodes().size()); ++id) {
    std::string& path = network.exe.graph.node(id).path;
    for (size_t end = path.size(); end != std::string::npos; end = path.rfind('/', end - 1)) {
      const auto found = names.find(path.substr(0, end));  // the node itself, or its composite
      if (found != names.end()) {
        path = found->second + path.substr(end);
        break;
      }
      if (end == 0) break;
    }
  }
}

std::optional<Network> open(const std::string& file, const std::string& format) {
  Network network{.file = file, .name = "", .expected = {}, .model = {}, .exe = {}};
  network.keras3 = file.starts_with("keras3_");
  network.name = file.substr(network.keras3 ? 7 : 9);
  network.name.resize(network.name.size() - 5);
  const Json& all = recorded().at(file);
  network.format = parse_format(format).value();
  if (all.contains(format)) {
    network.expected = all.at(format);
  } else {
    std::string text = all.at("fp16").dump();
    for (size_t at = 0; (at = text.find("fp16", at)) != std::string::npos;)
      text.replace(at, 4, format);
    network.expected = Json::parse(text);
  }
  ImportOptions options;
  network.model = read_onnx(folder() / file, options).model;
  add_loss(network.model, parse_loss("mse"));
  Plan plan = keras_plan({network.keras3, network.format}, network.model);
  keep_layers(plan, network);
  network.exe = lower(network.model, plan, TrainingSpec{});
  use_file_names(network);
  return network;
}

bool is_constant(const Graph& graph, ValueId value) {
  return std::any_of(graph.constants().begin(), graph.constants().end(),
                     [&](const Constant& constant) { return constant.value == value; });
}

/// The value's format, or that in which the node reads it if it has fewer bits.
std::string read_format(const Graph& graph, const Node& node, size_t i) {
  const FloatFormat& stored = graph.value(node.inputs[i]).format;
  if (i >= find_op(node.op).stored_inputs_from) return format_name(stored);
  return format_name(node.plan.read.contains(stored) ? stored : node.plan.read);
}

std::string described(const Graph& graph, const Node& node) {
  std::set<std::string> reads;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (input == kNone || graph.value(input).type != ElementType::real) continue;
    if (is_constant(graph, input)) continue;
    reads.insert(read_format(graph, node, i));
  }
  std::string text = format_name(graph.value(node.outputs[0]).format) + " from ";
  for (const std::string& each : reads) text += (each == *reads.begin() ? "" : ",") + each;
  return text;
}

bool moves(const Node& node) {
  static const std::set<std::string> ops{"Reshape", "Transpose", "Flatten",  "Expand",
                                         "Slice",   "Pad",       "Identity", "Concat"};
  return ops.contains(node.op);
}

/// The layer of a TensorFlow name: "norm_1" in "net_1/norm_1_1/add" of Keras 3.
std::string layer_of(const Network& network, const std::string& name) {
  const size_t first = name.find('/'), second = name.find('/', first + 1);
  if (first == std::string::npos || second == std::string::npos) return "";
  std::string layer = name.substr(first + 1, second - first - 1);
  if (network.keras3 && layer.ends_with("_1")) layer.resize(layer.size() - 2);
  return layer;
}

class KerasNetwork : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

/// Removes what tf2onnx appends to the name of an operation: "MatMul_Gemm__12", "SelectV2__283".
std::string operation_name(const std::string& node) {
  std::string name = node;
  const size_t number = name.rfind("__");
  if (number != std::string::npos &&
      name.find_first_not_of("0123456789", number + 2) == std::string::npos) {
    name.resize(number);
    if (name.ends_with("_Gemm")) name.resize(name.size() - 5);
  }
  return name;
}

std::string stored_part(const std::string& text) { return text.substr(0, text.find(' ')); }
std::string reads_part(const std::string& text) { return text.substr(text.rfind(' ') + 1); }

/// Returns whether all that reads the value, after movements, reads it in this format.
bool is_read_in(const Graph& graph, ValueId value, const std::string& format) {
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::forward) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != value) continue;
      if (moves(node) ? !is_read_in(graph, node.outputs[0], format)
                      : read_format(graph, node, i) != format && node.op != "Cast") {
        return false;
      }
    }
  }
  return true;
}

bool is_composite(const Network& network, const std::string& path) {
  const std::vector<Node>& nodes = network.model.graph.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    return node.path == path && find_op(node.op).expand != nullptr;
  });
}

/// The operator of the first forward node that reads the result.
std::string reader_of(const Graph& graph, const Node& node) {
  for (const Node& reader : graph.nodes()) {
    const auto found = std::find(reader.inputs.begin(), reader.inputs.end(), node.outputs[0]);
    if (reader.phase == Phase::forward && found != reader.inputs.end()) return reader.op;
  }
  return "";
}

/// Compares one node; returns "" if it agrees, what differs, or "?" for a node that Keras lacks.
std::string compare(const Network& network, const Node& node) {
  const Graph& graph = network.exe.graph;
  const Json& operations = network.expected.at("operations");
  const std::string ours = described(graph, node), layer = layer_of(network, node.path);
  const auto differs = [&](const std::string& theirs) {
    return node.op + " " + node.path + ": " + ours + ", in Keras " + theirs;
  };
  // Normalizations in one piece: their result, and the layer's operations must compute in fp32.
  if (find_op(node.op).expand != nullptr && node.op.ends_with("Normalization")) {
    const std::string theirs = network.expected.at("layers").at(layer).get<std::string>();
    if (stored_part(ours) != theirs) return differs(theirs);
    for (const auto& [name, text] : operations.items()) {
      const auto& operation = text.get_ref<const std::string&>();
      if (layer_of(network, name) != layer || operation == "integer") continue;
      const bool last = stored_part(operation) == theirs;  // its cast
      if (!last && stored_part(operation) != "fp32") return differs(operation);
    }
    return "";
  }
  // The layer normalization of tf.keras, which rounds after its fused kernel and after gamma.
  static const std::map<std::string, std::string> kParts{
      {"normalize", "FusedBatchNormV3"}, {"scale", "mul"}, {"shift", "add"}};
  static const std::set<std::string> kInside{"mean", "centre", "square", "var", "eps", "sqrt"};
  const size_t slash = node.path.rfind('/');
  const std::string part = node.path.substr(slash + 1), whole = node.path.substr(0, slash);
  const bool expanded = is_composite(network, whole);
  if (expanded && kInside.contains(part))
    return stored_part(ours) == "fp32" ? "" : differs("fp32 inside");
  if (expanded) {
    const std::string scope = whole.substr(0, whole.rfind('/') + 1);
    const auto theirs = operations.at(scope + kParts.at(part)).get<std::string>();
    const bool same =
        part == "normalize" ? stored_part(ours) == stored_part(theirs) : ours == theirs;
    return same ? "" : differs(theirs);
  }
  // DivNoNan is a Where of a Div in the file.
  if (node.op == "Where") {
    for (const ValueId input : node.inputs) {
      const NodeId from = input == kNone ? kNone : graph.value(input).producer;
      if (from == kNone || graph.node(from).op != "Div") continue;
      if (!operations.contains(graph.node(from).path)) continue;
      const auto theirs = operations.at(graph.node(from).path).get<std::string>();
      return stored_part(ours) == stored_part(theirs) ? "" : differs(theirs);
    }
  }
  if (node.op == "Div" && operations.contains(node.path) && reader_of(graph, node) == "Where") {
    const auto theirs = operations.at(node.path).get<std::string>();
    const std::string stored = stored_part(ours);
    return stored == "fp32" || stored == stored_part(theirs) ? "" : differs(theirs);
  }
  const bool product = find_op(node.op).sums_products();
  std::string name = operations.contains(node.path) ? node.path : node.alias;
  const bool exact = operations.contains(name);
  if (!exact) name = operation_name(node.path);
  if (!operations.contains(name)) {
    if (moves(node) || graph.value(node.outputs[0]).type != ElementType::real) return "";
    if (!product) return differs("no operation");
    // A product that tf2onnx made without a name: some product in Keras must be like it.
    for (const auto& [other, text] : operations.items()) {
      if (text == ours && other.find_first_of("/") != std::string::npos) return "";
    }
    return differs("no operation");
  }
  const auto theirs = operations.at(name).get<std::string>();
  if (theirs == "integer") return "";
  if (stored_part(ours) != stored_part(theirs)) {
    // tf2onnx adds movements.
    const bool same =
        moves(node) && (!exact || is_read_in(graph, node.outputs[0], stored_part(theirs)));
    return same ? "" : differs(theirs);
  }
  if (reads_part(ours) == reads_part(theirs) || !exact || ours.ends_with(' ')) return "";
  // Weights of ones were folded away, and with them a product that widens the operand exactly.
  if (node.op == "ReduceSum" && reads_part(theirs) == "fp32") return "";
  if (!product) return differs(theirs);
  // The file has a product and its bias in one node, with the name of one of the two.
  for (const auto& [other, text] : operations.items()) {
    if (layer_of(network, other) == layer && text != "integer" &&
        reads_part(text.get<std::string>()) == reads_part(ours)) {
      return "";
    }
  }
  return differs(theirs);
}

TEST_P(KerasNetwork, EveryOperationHasTheDtypesOfKeras) {
  const auto& [file, format] = GetParam();
  const std::optional<Network> network = open(file, format);
  ASSERT_TRUE(network);
  std::set<std::string> layers;
  for (const Node& node : network->exe.graph.nodes()) {
    const bool own = node.path.starts_with("metrics/") || node.path.starts_with("loss");
    if (node.phase != Phase::forward || own || node.op == "Cast") continue;
    EXPECT_EQ(compare(*network, node), "");
    layers.insert(layer_of(*network, node.path));
  }
  EXPECT_GE(layers.size(), 2u);
}

TEST_P(KerasNetwork, GradientsOfWeightsHaveTheDtypesOfKeras) {
  const auto& [file, format] = GetParam();
  const std::optional<Network> network = open(file, format);
  const Graph& graph = network->exe.graph;
  int compared = 0;
  for (const Tap& tap : network->exe.taps) {
    if (tap.site.role != Role::weight_grad) continue;
    for (const Variable& variable : network->model.graph.variables()) {
      if (variable.buffer || tap.site.name() != variable.path + "_grad") continue;
      std::string read = variable.alias.substr(0, variable.alias.find(':'));
      const Json& gradients = network->expected.at("gradients");
      // Under mixed policies the reading operation is inside a cast.
      for (const auto& [name, theirs] : gradients.items()) {
        std::string plain = name;
        if (const size_t cast = plain.find("/Cast/ReadVariableOp"); cast != std::string::npos)
          plain.erase(cast, 5);
        if (plain != read && name != read) continue;
        EXPECT_EQ(format_name(graph.value(tap.value).format), theirs.get<std::string>())
            << variable.path << " " << name;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 2) << "of " << network->expected.at("gradients").size();
}

TEST_P(KerasNetwork, TheLossHasTheDtypeOfKeras) {
  const auto& [file, format] = GetParam();
  const std::optional<Network> network = open(file, format);
  EXPECT_EQ(format_name(network->exe.graph.value(network->exe.loss).format),
            network->expected.at("loss").get<std::string>());
}

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto& [file, unused] : recorded().items()) names.push_back(file);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Keras, KerasNetwork,
                         testing::Combine(testing::ValuesIn(files()),
                                          testing::Values("fp16", "bf16")),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           name.resize(name.size() - 5);
                           return name + "_" + std::get<1>(info.param);
                         });

Model one_layer() {
  Model model;
  const ValueId x = model.graph.add_input("x", {2, 3});
  const ValueId w = model.graph.add_variable("fc.weight", {3, 4}, {0.5});
  model.input = x;
  model.outputs = {{"y", model.graph.add1("MatMul", "fc", {x, w})}};
  return model;
}

TEST(KerasPolicy, EveryRuleSaysWhyAndWhatWouldChangeIt) {
  for (const char* name : {"keras-mixed_float16", "keras3-mixed_float16", "keras-mixed_bfloat16",
                           "keras3-mixed_bfloat16", "keras-float32", "keras3-float32"}) {
    const std::optional<Plan> plan = preset_plan(name, one_layer());
    ASSERT_TRUE(plan) << name;
    EXPECT_EQ(plan->name, name);
    EXPECT_FALSE(plan->why.empty());
    for (const PlanRule& rule : plan->rules) {
      EXPECT_FALSE(rule.why.empty()) << name << " " << rule.op;
      EXPECT_FALSE(rule.change.empty()) << name << " " << rule.op;
    }
  }
}

TEST(KerasPolicy, EveryOperatorHasARule) {
  const Plan plan = keras_plan({true, kFp16});
  for (const OpDef& def : op_table()) {
    if (def.autocast == Autocast::internal) continue;
    EXPECT_TRUE(std::any_of(plan.rules.begin(), plan.rules.end(), [&](const PlanRule& rule) {
      return rule.op == def.name;
    })) << def.name;
  }
}

}  // namespace
}  // namespace halfscope
