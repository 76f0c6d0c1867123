// SPDX-License-Identifier: MIT
// Decisions read from a run file against those of the network itself.
#include "analysis/plans/recorded_decisions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/models/loss.h"
#include "core/models/models.h"
#include "core/models/zoo/zoo.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// Returns a lane as the recorder gets it.
LaneInfo lane_of(const Executable& executable, const Plan& plan) {
  LaneInfo lane{.name = plan.name,
                .backend = "emulated",
                .plan_json = plan_to_json(plan),
                .loss_scale = "none",
                .layers = executable.layers,
                .sites = {}};
  for (const Tap& tap : executable.taps) lane.sites.push_back(tap.site);
  return lane;
}

/// Returns "fc1 (fp16)" for "fc1.weight (fp16)" and "input (fp32)" for "input x (fp32)": a run file
/// has one name for all inputs, and names a variable without a layer by its site.
std::string plain_name(std::string item) {
  const size_t format = item.rfind(" (");
  std::string name = item.substr(0, format);
  if (name.starts_with("input ")) name = "input";
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  return name + item.substr(format);
}

std::set<std::string> words(const std::string& list) {
  std::set<std::string> words;
  for (size_t from = 0; from < list.size();) {
    const size_t comma = std::min(list.find(", ", from), list.size());
    words.insert(plain_name(list.substr(from, comma - from)));
    from = comma + 2;
  }
  return words;
}

/// Compares with explain_plan(); returns the number of layers whose rule stays open.
int compare(const Model& model, const Plan& plan, const std::string& what) {
  SCOPED_TRACE(what + ", " + plan.name);
  const ExplainedPlan explained = explain_plan(model, plan);
  const std::vector<NodeDecision> recorded =
      recorded_decisions(lane_of(explained.executable, plan));
  EXPECT_EQ(recorded.size(), explained.nodes.size());
  if (recorded.size() != explained.nodes.size()) return 0;
  int open = 0;
  for (size_t i = 0; i < recorded.size(); ++i) {
    const NodeDecision &a = recorded[i], &b = explained.nodes[i];
    SCOPED_TRACE(b.path);
    EXPECT_EQ(a.path, b.path);
    EXPECT_EQ(a.op, b.op);
    EXPECT_EQ(a.read, b.read);
    EXPECT_EQ(a.write, b.write);
    EXPECT_EQ(a.follows, b.follows);
    if (b.weights && a.weights) {
      EXPECT_EQ(*a.weights, *b.weights);
    }
    if (a.why.find("the run does not record whether") != std::string::npos) {
      ++open;
      continue;
    }
    EXPECT_EQ(a.rule < 0, b.rule < 0);
    if (a.rule >= 0 && b.rule >= 0) {
      // explain_plan() counts in the plan with extra rules for other names.
      const PlanRule& theirs = explained.plan.rules[static_cast<size_t>(b.rule)];
      const PlanRule& ours = plan.rules.at(static_cast<size_t>(a.rule));
      EXPECT_EQ(ours.op, theirs.op);
      EXPECT_EQ(ours.read, theirs.read);
      EXPECT_EQ(ours.why, theirs.why);
    }
    if (plan.rules.size() == explained.plan.rules.size()) {
      EXPECT_EQ(a.rule, b.rule);
      EXPECT_EQ(a.why, b.why);
      EXPECT_EQ(a.change, b.change);
    }
    EXPECT_EQ(words(a.inputs), words(b.inputs));
  }
  return open;
}

std::vector<Plan> plans() {
  std::vector<Plan> list;
  for (const char* name :
       {"float32", "float64", "mixed_float16", "float16", "bfloat16_stagewise", "fp8_delayed"}) {
    list.push_back(preset_plan(name).value());
  }
  Plan texts = preset_plan("mixed_float16").value();
  texts.name = "texts";
  texts.why = "the default";
  for (PlanRule& rule : texts.rules) rule.why = "the list of " + rule.op;
  texts.rules.push_back({.path = "*1*", .op = "", .read = kFp32, .write = kFp32, .why = "by hand"});
  texts.rules.push_back(
      {.path = "*2*", .op = "Relu", .read = kFp16, .write = kFp16, .prescale = -2});
  list.push_back(texts);
  return list;
}

TEST(RecordedDecisions, AreThoseOfBuiltInNetworks) {
  const Shape sample{1, 28, 28};
  const Model lenet = build_model("lenet", 4, sample, 10);
  const Model resnet = build_model("resnet20", 2, {3, 32, 32}, 10);
  const Model network = build_network("lenet", 4, sample, 10);
  for (const Plan& plan : plans()) {
    EXPECT_EQ(compare(lenet, plan, "lenet"), 0);
    EXPECT_EQ(compare(resnet, plan, "resnet20"), 0);
    EXPECT_EQ(compare(network, plan, "lenet, inference"), 0);
  }
}

TEST(RecordedDecisions, AreThoseOfEveryNetworkOfTheZoo) {
  int networks = 0, nodes = 0, open = 0;
  for (const zoo::Case& each : zoo::all_cases()) {
    const Model model = each.make().model;
    ++networks;
    for (Plan plan : plans()) {
      std::erase_if(plan.rules, [](const PlanRule& rule) { return !rule.path.empty(); });
      open += compare(model, plan, each.id);
      nodes += static_cast<int>(model.graph.nodes().size());
    }
  }
  EXPECT_GT(networks, 50);
  EXPECT_EQ(open, 0) << "of " << nodes;
}

/// Returns a lane of a network with an attention layer and a loss, as a run file has it.
LaneInfo written_lane(const std::string& plan) {
  LaneInfo lane;
  lane.name = "half";
  lane.backend = "emulated";
  lane.plan_json = plan;
  lane.loss_scale = "none";
  const auto add = [&](const char* path, const char* op, std::vector<std::string> inputs,
                       FloatFormat format, bool follows) {
    LayerInfo& layer = lane.layers.emplace_back();
    layer.path = path;
    layer.op = op;
    layer.inputs = std::move(inputs);
    layer.read = layer.write = format;
    layer.follows = follows;
  };
  add("q", "Gemm", {"input"}, kFp16, false);
  add("att/scores", "MatMul", {"q", "q"}, kBf16, false);
  add("att/softmax", "Softmax", {"att/scores"}, kFp32, false);
  add("act", "Relu", {"att/softmax", "q"}, kFp32, true);
  add("loss", "SoftmaxCrossEntropyLoss", {"act"}, kFp32, false);
  return lane;
}

TEST(RecordedDecisions, FindTheCompositeThatARuleSelected) {
  const std::string start = R"({"schema": "halfscope.plan/1", "name": "half",
    "default": {"format": "fp16", "why": "half everywhere"}, "rules": [)";
  // Only a rule for the attention explains bf16 of att/scores: MatMul has no rule.
  const std::vector<NodeDecision> found = recorded_decisions(
      written_lane(start + R"({"op": "Attention", "format": "bf16", "why": "attention"},
                 {"op": "Softmax", "format": "fp32", "why": "softmax"},
                 {"op": "Relu", "format": "follow"}]})"));
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[0].why, "half everywhere");
  EXPECT_EQ(found[0].rule, -1);
  EXPECT_EQ(found[1].why, "attention");
  EXPECT_EQ(found[2].why, "softmax");
  EXPECT_EQ(found[3].rule, 2);
  EXPECT_EQ(found[3].inputs, "att/softmax (fp32), q (fp16)");
  EXPECT_EQ(found[4].why,
            "HalfScope adds this loss and computes it in fp32, because no rule names its path.");
  // Both rules explain fp32 of att/softmax.
  const std::vector<NodeDecision> open = recorded_decisions(
      written_lane(start + R"({"op": "MatMul", "format": "bf16", "why": "products"},
                 {"path": "att", "format": "bf16", "why": "attention"},
                 {"op": "Softmax", "format": "fp32", "why": "softmax"},
                 {"op": "Relu", "format": "follow"}]})"));
  EXPECT_EQ(open[2].why, "softmax");
  EXPECT_EQ(open[1].why,
            "products. Or the plan's rule for path 'att' decided: the run does not record whether "
            "this layer is "
            "part of a composite.");
}

TEST(RecordedDecisions, SayWhenThePlanCannotBeRead) {
  const std::vector<NodeDecision> found = recorded_decisions(written_lane("{}"));
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[1].read, kBf16);
  EXPECT_NE(found[1].why.find("cannot read the plan"), std::string::npos);
}

}  // namespace
}  // namespace halfscope
