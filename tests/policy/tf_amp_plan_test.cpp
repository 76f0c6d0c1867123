// SPDX-License-Identifier: MIT
// Networks of ours as TensorFlow's training graphs, and the plans that come of it. The expectations
// are TensorFlow's own paintings of the same networks (tests/policy/files/tf_amp).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/lower/lower.h"
#include "core/models/models.h"
#include "core/policy/grappler/tf_graph_def.h"
#include "core/policy/grappler/training_graph.h"
#include "core/policy/policy.h"

namespace halfscope::grappler {
namespace {

/// Two convolutions with batch normalization, a shortcut, a pool and a layer: as resnet_block() in
/// tests/oracle/tf_amp.py.
Model resnet_block() {
  Model model;
  model.name = "resnet_block";
  Graph& g = model.graph;
  model.input = g.add_input("input", {2, 4, 8, 8});
  model.labels = g.add_input("labels", {2}, ElementType::index);
  const auto conv = [&](const std::string& path, ValueId x) {
    const ValueId w = g.add_variable(path + ".weight", {4, 4, 3, 3}, {.bound = 0.1});
    return g.add1("Conv", path, {x, w}, {{"pads", std::vector<int64_t>(4, 1)}});
  };
  const auto norm = [&](const std::string& path, ValueId x) {
    std::vector<ValueId> inputs{x};
    for (const char* name : {".weight", ".bias"})
      inputs.push_back(g.add_variable(path + name, {4}, {}));
    for (const char* name : {".mean", ".var"}) inputs.push_back(g.add_buffer(path + name, {4}, {}));
    return g.add("BatchNormalization", path, inputs, {{"training_mode", int64_t{1}}}).front();
  };
  ValueId y = g.add1("Relu", "relu1", {norm("n1", conv("c1", model.input))});
  y = g.add1("Add", "add", {norm("n2", conv("c2", y)), model.input});
  y = g.add1("Relu", "relu2", {y});
  y = g.add1("Flatten", "flatten", {g.add1("GlobalAveragePool", "pool", {y})});
  const ValueId w = g.add_variable("fc.weight", {4, 4}, {}), b = g.add_variable("fc.bias", {4}, {});
  model.logits = g.add1("Gemm", "fc", {y, w, b}, {{"transB", int64_t{1}}});
  model.first_loss_node = static_cast<NodeId>(g.nodes().size());
  model.loss = g.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  return model;
}

/// Three layers with Relu and Tanh: as mlp_training() there, but for the penalty on weights.
Model mlp() {
  Model model;
  model.name = "mlp";
  Graph& g = model.graph;
  model.input = g.add_input("input", {4, 8});
  model.labels = g.add_input("labels", {4}, ElementType::index);
  const auto dense = [&](const std::string& path, ValueId x, int64_t out) {
    const ValueId w = g.add_variable(path + ".weight", {out, 8}, {});
    const ValueId b = g.add_variable(path + ".bias", {out}, {});
    return g.add1("Gemm", path, {x, w, b}, {{"transB", int64_t{1}}});
  };
  ValueId y = g.add1("Relu", "relu", {dense("a", model.input, 8)});
  y = g.add1("Tanh", "tanh", {dense("b", y, 8)});
  model.logits = dense("c", y, 4);
  model.first_loss_node = static_cast<NodeId>(g.nodes().size());
  model.loss = g.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  return model;
}

/// How many nodes of an operator there are, and how many of them change.
using Counts = std::map<std::string, std::pair<int, int>>;

const std::set<std::string> kCompared{"BiasAdd",
                                      "BiasAddGrad",
                                      "Conv2D",
                                      "Conv2DBackpropFilter",
                                      "Conv2DBackpropInput",
                                      "MatMul",
                                      "FusedBatchNormGradV3",
                                      "FusedBatchNormV3",
                                      "Relu",
                                      "ReluGrad",
                                      "Tanh",
                                      "TanhGrad"};

Counts count(const TfGraph& graph, const std::set<std::string>& changed) {
  Counts counts;
  for (const TfNode& node : graph.nodes) {
    if (!kCompared.contains(node.op)) continue;
    ++counts[node.op].first;
    counts[node.op].second += changed.contains(node.name) ? 1 : 0;
  }
  return counts;
}

TEST(TfAmpPlan, TrainingGraphHasTensorFlowsColours) {
  const std::filesystem::path folder =
      std::filesystem::path(HALFSCOPE_SOURCE_DIR) / "tests/policy/files/tf_amp";
  std::ifstream in(folder / "cases.json");
  for (const nlohmann::json& item : nlohmann::json::parse(in)) {
    const std::string name = item.at("graph");
    if ((name != "resnet_block" && name != "mlp_training") || !item.at("env").empty()) continue;
    SCOPED_TRACE(item.at("name").get<std::string>());
    AmpOptions options;
    if (item.at("mode") == "cpu_bfloat16") {
      options.mode = AmpMode::cpu_bfloat16;
      options.compute_capability = 0;
    }
    std::set<std::string> theirs, ours;
    for (const std::string one : item.at("changed")) theirs.insert(one.substr(0, one.find(':')));
    const TfTraining training = tf_training_graph(name == "mlp_training" ? mlp() : resnet_block());
    options.preserve.insert(training.fetched.begin(), training.fetched.end());
    const AmpPainting painting = paint(training.graph, options);
    for (size_t node = 0; node < training.graph.nodes.size(); ++node) {
      if (painting.node_changed(node)) ours.insert(training.graph.nodes[node].name);
    }
    EXPECT_EQ(count(training.graph, ours), count(read_tf_graph(folder / (name + ".pb")), theirs));
  }
}

NodePlan of(const Plan& plan, const std::string& path, const std::string& op) {
  return resolve(plan, path, op);
}

TEST(TfAmpPlan, EveryLayerGetsItsFormatAndAReason) {
  TfPlanCounts counts;
  const Plan plan = tf_amp_plan(resnet_block(), {}, &counts);
  EXPECT_EQ(plan.name, "tf-amp");
  for (const char* path : {"c1", "n1", "relu1", "c2", "n2", "add", "fc"}) {
    EXPECT_EQ(of(plan, path, "").read, kFp16) << path;
    EXPECT_EQ(of(plan, path, "").write, kFp16) << path;
  }
  for (const char* path : {"pool", "loss"}) EXPECT_EQ(of(plan, path, "").read, kFp32) << path;
  EXPECT_EQ(plan.storage, kFp32);
  EXPECT_EQ(counts.layers, 11u);
  for (const PlanRule& rule : plan.rules) {
    EXPECT_FALSE(rule.why.empty()) << rule.path;
    EXPECT_FALSE(rule.change.empty()) << rule.path;
  }
  const auto pool = std::find_if(plan.rules.begin(), plan.rules.end(),
                                 [](const PlanRule& rule) { return rule.path == "\\pool"; });
  EXPECT_EQ(pool->why.substr(0, 25), "Mean is on the deny list.");
}

TEST(TfAmpPlan, ListEditsAndModesChangeThePlan) {
  AmpOptions options;
  options.edits = {{AmpList::clear, false, "Relu"}, {AmpList::deny, true, "Relu"}};
  EXPECT_EQ(of(tf_amp_plan(resnet_block(), options), "relu1", "").write, kFp32);
  AmpOptions cpu{.mode = AmpMode::cpu_bfloat16, .compute_capability = 0};
  const Plan plan = tf_amp_plan(resnet_block(), cpu);
  EXPECT_EQ(plan.name, "tf-amp-bf16");
  EXPECT_EQ(of(plan, "c1", "").read, kBf16);
  EXPECT_EQ(of(plan, "pool", "").read, kBf16);  // Mean is on the infer list there
}

TEST(TfAmpPlan, PlansAreValidForBuiltInNetworks) {
  for (const char* name : {"lenet", "resnet20", "mlp:64-32-10"}) {
    const Shape shape = std::string(name).starts_with("mlp") ? Shape{64} : Shape{3, 32, 32};
    const Model model = build_model(name, 4, shape, 10);
    const Plan plan = tf_amp_plan(model, {});
    const Executable lowered = lower(model, plan, {});
    size_t low = 0;
    for (const LayerInfo& layer : lowered.layers) low += layer.read == kFp16 ? 1 : 0;
    EXPECT_GT(low, 1u) << name;
    EXPECT_TRUE(needs_loss_scaling(plan)) << name;
  }
}

TEST(TfAmpPlan, NamesLikeOutputsAreNoProblem) {
  Model model;
  Graph& g = model.graph;
  model.input = g.add_input("x:0", {4, 8});
  const ValueId w = g.add_variable("^w:1", {8, 8}, {});
  const ValueId y = g.add1("Gemm", "fc:0", {model.input, w});
  model.logits = g.add1("Relu", "fc", {y});
  const Plan plan = tf_amp_plan(model, {});
  EXPECT_EQ(of(plan, "fc:0", "Gemm").read, kFp16);
  EXPECT_EQ(of(plan, "fc", "Relu").read, kFp16);
}

/// A layer normalization is several operators in TensorFlow; those after its Mean stay float32.
TEST(TfAmpPlan, CompositesAreExpandedAsInTensorFlow) {
  Model model;
  Graph& g = model.graph;
  model.input = g.add_input("input", {4, 8});
  model.labels = g.add_input("labels", {4}, ElementType::index);
  const ValueId w = g.add_variable("fc1.weight", {8, 8}, {.bound = 0.1});
  ValueId x = g.add1("Gemm", "fc1", {model.input, w});
  const ValueId scale = g.add_variable("ln.weight", {8}, {}),
                bias = g.add_variable("ln.bias", {8}, {});
  x = g.add("LayerNormalization", "ln", {x, scale, bias}).front();
  x = g.add1("Gelu", "gelu", {x});
  x = g.add1("Attention", "attention", {x, g.add1("Transpose", "keys", {x}), x});
  const ValueId v = g.add_variable("fc2.weight", {8, 8}, {.bound = 0.1});
  model.logits = g.add1("Gemm", "fc2", {x, v});
  model.first_loss_node = static_cast<NodeId>(g.nodes().size());
  model.loss = g.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  const Plan plan = tf_amp_plan(model, {});
  const Executable lowered = lower(model, plan, {});
  std::map<std::string, FloatFormat> read;
  for (const LayerInfo& layer : lowered.layers) read.emplace(layer.path, layer.read);
  ASSERT_TRUE(read.contains("ln/mean"));
  ASSERT_TRUE(read.contains("attention/softmax"));
  EXPECT_EQ(read.at("fc1"), kFp16);
  EXPECT_EQ(read.at("ln/mean"), kFp32);
  EXPECT_EQ(read.at("ln/shift"), kFp32);
  EXPECT_EQ(read.at("fc2"), kFp16);
}

}  // namespace
}  // namespace halfscope::grappler
