// SPDX-License-Identifier: MIT
// Small models of every operator and of old forms of them, against what ONNX Runtime computes
// (tests/oracle/onnx_nodes.py, onnx_more_nodes.py and onnx_recurrent_nodes.py wrote them), and
// their gradients against PyTorch's.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/graph/autodiff.h"
#include "core/onnx/export.h"
#include "core/policy/policy.h"
#include "tests/onnx/case_files.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

using test::NodeCase;

const std::map<std::string, NodeCase>& cases() {
  static const auto all = [] {
    std::map<std::string, NodeCase> result = test::read_cases("nodes.zip");
    for (auto& [name, each] : result) each.comes_back = true;
    for (const char* archive : {"more_nodes.zip", "recurrent_nodes.zip"})
      result.merge(test::read_cases(archive));
    return result;
  }();
  return all;
}

std::vector<std::string> names(bool only_with_gradients = false) {
  std::vector<std::string> result;
  for (const auto& [name, each] : cases()) {
    if (!only_with_gradients || each.arrays.contains("dy")) result.push_back(name);
  }
  return result;
}

class OnnxNodes : public testing::TestWithParam<std::string> {
 protected:
  const NodeCase& given() const { return cases().at(GetParam()); }
  Model imported() const { return parse_onnx(given().model, GetParam() + ".onnx", ".").model; }
  void expect_outputs(const std::vector<Tensor>& outputs) const {
    const std::vector<Tensor> expected = given().list("out");
    ASSERT_EQ(outputs.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) test::expect_close(outputs[i], expected[i], 4e-6);
  }
};

TEST_P(OnnxNodes, ComputeWhatTheRuntimeDoes) {
  const Model model = imported();
  for (const char* plan : {"float32", "float64"}) {
    SCOPED_TRACE(plan);
    expect_outputs(test::run(test::start(model, preset_plan(plan).value()), given().list("in")));
  }
}

TEST_P(OnnxNodes, StagewiseToo) {
  Plan plan = preset_plan("float32").value();
  plan.defaults.stagewise = true;
  expect_outputs(test::run(test::start(imported(), plan), given().list("in")));
}

TEST_P(OnnxNodes, ComeBackFromAnExportAsTheyWere) {
  const Model model = imported();
  const std::string bytes = onnx_bytes(model, model.initial);
  const Model again =
      parse_onnx({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "again.onnx", ".")
          .model;
  std::set<std::string> before, after;
  for (const Node& node : model.graph.nodes()) before.insert(node.path + " " + node.op);
  for (const Node& node : again.graph.nodes()) after.insert(node.path + " " + node.op);
  // Operators that opset 21 lacks are exported as primitives, which are recognised on import.
  // Others turn booleans into numbers, or lose data that only gradients need. The rows to which
  // sums are scattered are exported as tuples of one index.
  const bool tuples =
      GetParam().starts_with("scatter_sums") && GetParam().find("_nd_") != std::string::npos;
  if (given().comes_back && !tuples) {
    EXPECT_EQ(after, before);
  }
  ASSERT_EQ(again.outputs.size(), model.outputs.size());
  for (size_t i = 0; i < model.outputs.size(); ++i)
    EXPECT_EQ(again.outputs[i].name, model.outputs[i].name);
  expect_outputs(test::run(test::start(again, preset_plan("float32").value()), given().list("in")));
}

INSTANTIATE_TEST_SUITE_P(All, OnnxNodes, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

class OnnxGradients : public OnnxNodes {};

/// Returns the variable of an initializer in a graph that was made from the model.
ValueId variable_of(const Model& model, const Graph& graph, const std::string& initializer) {
  for (const Variable& each : model.graph.variables()) {
    if (each.alias != initializer) continue;
    for (const Variable& lowered : graph.variables()) {
      if (lowered.path == each.path) return lowered.value;
    }
  }
  return kNone;
}

// Gradients of sum(y * dy), using variables of zeros that are added to the inputs.
TEST_P(OnnxGradients, AreThoseOfPyTorch) {
  for (const char* plan : {"float32", "float64"}) {
    SCOPED_TRACE(plan);
    const Model model = imported();
    const Plan precision = preset_plan(plan).value();
    Executable executable = lower_inference(model, precision);
    Graph& graph = executable.graph;
    const ValueId y = executable.outputs[0].value;
    const ValueId dy = graph.add_constant(given().arrays.at("dy"));
    const ValueId weighted = graph.add1("Mul", "weighted", {y, dy});
    const ValueId loss = graph.add1("ReduceSum", "loss", {weighted}, {{"keepdims", int64_t{0}}});
    const GradientMap gradients = differentiate(graph, loss, graph.add_constant(1.0f));
    auto& entry = executable.entries[static_cast<size_t>(Entry::grad)];
    entry.clear();
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) entry.push_back(id);
    const Backend& backend = precision.double_precision ? float64_backend() : emulation_backend();
    const std::unique_ptr<Program> program = backend.compile(executable);
    write_weights(*program, graph, starting_weights(model, 1, {}), {});
    const std::vector<Tensor> inputs = given().list("in");
    size_t compared = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Input& input = graph.inputs()[i];
      if (graph.value(input.value).type == ElementType::index) {
        const std::vector<int32_t> indices(inputs[i].data.begin(), inputs[i].data.end());
        program->write(input.value, std::span<const int32_t>(indices));
      } else {
        program->write(input.value, std::span<const float>(inputs[i].data));
      }
    }
    program->run(Entry::grad, {});
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto expected = given().arrays.find("grad" + std::to_string(i));
      if (expected == given().arrays.end()) continue;
      const ValueId variable = variable_of(model, graph, "d_" + graph.inputs()[i].name);
      ASSERT_NE(variable, kNone);
      SCOPED_TRACE("d_" + graph.inputs()[i].name);
      ++compared;
      const auto gradient = gradients.find(variable);
      if (gradient == gradients.end()) {  // nothing reaches it
        for (float each : expected->second.data) EXPECT_EQ(each, 0.0f);
        continue;
      }
      test::expect_close(program->read(gradient->second), expected->second, 2e-5);
    }
    EXPECT_GT(compared, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OnnxGradients, testing::ValuesIn(names(true)),
                         [](const auto& info) { return info.param; });

std::vector<std::string> operators(const std::string& name) {
  std::vector<std::string> result;
  const OnnxImport import = parse_onnx(cases().at(name).model, name + ".onnx", ".");
  for (const Node& node : import.model.graph.nodes()) result.push_back(node.op);
  return result;
}

TEST(OnnxComposites, WrittenInPrimitivesBecomeOneNode) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(operators("written_layer_norm"), Names{"LayerNormalization"});
  EXPECT_EQ(operators("written_rms_norm"), Names{"RMSNormalization"});
  EXPECT_EQ(operators("written_gelu"), Names{"Gelu"});
  EXPECT_EQ(operators("written_gelu_tanh"), Names{"Gelu"});
  EXPECT_EQ(operators("written_swish"), Names{"Swish"});
}

TEST(OnnxComposites, StayAsTheyAreWhereAPartIsReadElsewhere) {
  EXPECT_EQ(operators("mean_read_elsewhere").size(), 7u);
}

TEST(OnnxComposites, GiveTheirScaleAndBiasTheirName) {
  const OnnxImport import = parse_onnx(cases().at("written_layer_norm").model, "net.onnx", ".");
  const std::vector<Variable>& variables = import.model.graph.variables();
  ASSERT_EQ(variables.size(), 2u);
  EXPECT_EQ(variables[0].path, "ln/add.weight");
  EXPECT_EQ(variables[1].path, "ln/add.bias");
  EXPECT_EQ(variables[0].alias, "gamma");
  EXPECT_TRUE(import.model.initial.contains("ln/add.weight"));
}

TEST(OnnxTransformer, SharesTheEmbeddingWithTheHead) {
  const OnnxImport import = parse_onnx(cases().at("transformer").model, "net.onnx", ".");
  int tables = 0;
  for (const Variable& variable : import.model.graph.variables()) tables += variable.alias == "wte";
  EXPECT_EQ(tables, 1);
}

TEST(OnnxTransformer, HasOneAttention) {
  const Model model = parse_onnx(cases().at("transformer").model, "net.onnx", ".").model;
  std::vector<std::string> found;
  for (const Node& node : model.graph.nodes()) {
    EXPECT_NE(node.op, "Softmax");
    if (node.op == "Attention") found.push_back(node.path);
  }
  EXPECT_EQ(found, std::vector<std::string>{"mix"}) << "the name of its last product";
  const Executable mixed = lower_inference(model, preset_plan("mixed_float16").value());
  std::map<std::string, std::string> formats;
  for (const LayerInfo& layer : mixed.layers) formats[layer.path] = format_name(layer.write);
  EXPECT_EQ(formats["mix/scores"], "fp16");
  EXPECT_EQ(formats["mix/scale"], "fp16");
  EXPECT_EQ(formats["mix/mask"], "fp16");
  EXPECT_EQ(formats["mix/softmax"], "fp32");
  EXPECT_EQ(formats["mix/mix"], "fp16");
}

}  // namespace
}  // namespace halfscope
