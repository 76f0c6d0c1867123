// SPDX-License-Identifier: MIT
// Decisions of a plan about the nodes of a network, and the casts that follow from them. Expected
// values are counted by hand from the network's definition.
#include "analysis/plans/decisions.h"

#include <gtest/gtest.h>

#include "analysis/plans/casts.h"
#include "core/error.h"
#include "core/models/loss.h"
#include "core/models/models.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// x [4, 8] -> fc1 -> relu1 -> fc2 -> softmax, labels.
Model small_network() {
  Model model;
  model.name = "small";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("input", {4, 8});
  model.input = x;
  const auto dense = [&](const char* path, ValueId in, int64_t from, int64_t to) {
    const std::string name = path;
    const ValueId weight = graph.add_variable(name + ".weight", {to, from}, {0.1});
    const ValueId bias = graph.add_variable(name + ".bias", {to}, {0.1});
    return graph.add1("Gemm", name, {in, weight, bias}, {{"transB", int64_t{1}}});
  };
  const ValueId hidden = graph.add1("Relu", "relu1", {dense("fc1", x, 8, 16)});
  const ValueId scores = dense("fc2", hidden, 16, 3);
  const ValueId shares = graph.add1("Softmax", "softmax", {scores}, {{"axis", int64_t{1}}});
  model.outputs = {{"scores", scores}, {"shares", shares}};
  model.logits = scores;
  return model;
}

Model trained_network() {
  Model model = small_network();
  add_loss(model, parse_loss("cross-entropy:scores"));
  return model;
}

const NodeDecision& decision(const ExplainedPlan& plan, const std::string& path) {
  for (const NodeDecision& node : plan.nodes) {
    if (node.path == path) return node;
  }
  throw Error("no node " + path);
}

TEST(Decisions, SayFormatsAndTheRuleThatDecided) {
  Plan plan = preset_plan("float16").value();
  plan.why = "half everywhere";
  plan.rules = {{.path = "", .op = "Relu", .follow = true},
                {.path = "fc*", .op = "", .accumulation = Accumulation::fp64},
                {.path = "fc2", .op = "", .read = kFp32, .write = kFp32}};
  plan.rules[2].why = "someone asked for it";
  plan.rules[2].change = "do not ask";
  const ExplainedPlan explained = explain_plan(small_network(), plan);
  ASSERT_EQ(explained.nodes.size(), 4u);
  const NodeDecision& fc1 = decision(explained, "fc1");
  EXPECT_EQ(fc1.rule, -1);  // rule 1 sets no format
  EXPECT_EQ(fc1.read, kFp16);
  EXPECT_EQ(fc1.weights, kFp16);
  EXPECT_EQ(fc1.why, "half everywhere");
  EXPECT_NE(fc1.change.find("\"path\": \"fc1\""), std::string::npos);
  const NodeDecision& relu = decision(explained, "relu1");
  EXPECT_TRUE(relu.follows);
  EXPECT_EQ(relu.rule, 0);
  EXPECT_EQ(relu.inputs, "fc1 (fp16)");
  EXPECT_EQ(relu.weights, std::nullopt);
  const NodeDecision& fc2 = decision(explained, "fc2");
  EXPECT_EQ(fc2.rule, 2);
  EXPECT_EQ(fc2.write, kFp32);
  EXPECT_EQ(fc2.weights, kFp32);
  EXPECT_EQ(fc2.why, "someone asked for it");
  EXPECT_EQ(fc2.change, "do not ask");
}

TEST(Decisions, OfTheLossSayWhoAddedIt) {
  const ExplainedPlan explained = explain_plan(trained_network(), preset_plan("float16").value());
  const NodeDecision& loss = decision(explained, "loss");
  EXPECT_EQ(loss.read, kFp32);
  EXPECT_NE(loss.why.find("HalfScope adds this loss"), std::string::npos);
  Plan named = preset_plan("float16").value();
  named.rules.push_back({.path = "loss", .op = "", .read = kFp16, .write = kFp16});
  EXPECT_EQ(decision(explain_plan(trained_network(), named), "loss").rule, 0);
}

TEST(Decisions, OfPartsComeFromTheirComposite) {
  Plan plan;
  plan.rules = {{.path = "", .op = "Softmax", .read = kBf16, .write = kBf16, .stagewise = true},
                {.path = "softmax/Exp", .op = "", .read = kFp32, .write = kFp32}};
  plan.rules[0].why = "all of it";
  plan.rules[1].why = "a part of it";
  const ExplainedPlan explained = explain_plan(small_network(), plan);
  int parts = 0, exps = 0;
  for (const NodeDecision& node : explained.nodes) {
    if (!node.path.starts_with("softmax/")) continue;
    ++parts;
    const bool is_exp = node.path == "softmax/Exp";
    exps += is_exp ? 1 : 0;
    EXPECT_EQ(node.rule, is_exp ? 1 : 0) << node.path;
    EXPECT_EQ(node.read, is_exp ? kFp32 : kBf16) << node.path;
    EXPECT_EQ(node.why, is_exp ? "a part of it" : "all of it") << node.path;
  }
  EXPECT_GE(parts, 4);
  EXPECT_EQ(exps, 1);
}

TEST(Decisions, AreFoundByPathModuleAndOperator) {
  const ExplainedPlan explained = explain_plan(small_network(), Plan{});
  EXPECT_EQ(decisions_about(explained, "fc1").size(), 1u);
  EXPECT_EQ(decisions_about(explained, "fc*").size(), 2u);
  EXPECT_EQ(decisions_about(explained, "Gemm").size(), 2u);
  EXPECT_TRUE(decisions_about(explained, "fc").empty());
}

TEST(Decisions, DifferWhereFormatsDo) {
  const Model model = small_network();
  const ExplainedPlan a = explain_plan(model, preset_plan("mixed_float16").value());
  const ExplainedPlan b = explain_plan(model, preset_plan("mixed_bfloat16").value());
  // Softmax is fp32 in both.
  EXPECT_EQ(differing_nodes(a, b).size(), 3u);
  EXPECT_TRUE(differing_nodes(a, a).empty());
  EXPECT_TRUE(differing_settings(a.plan, b.plan).empty());
  const ExplainedPlan pure = explain_plan(model, preset_plan("float16").value());
  const std::vector<SettingDifference> settings = differing_settings(a.plan, pure.plan);
  ASSERT_EQ(settings.size(), 1u);
  EXPECT_EQ(settings[0].b, "fp16");
  const ExplainedPlan parts = explain_plan(model, preset_plan("float16_stagewise").value());
  bool only_one_has_it = false;
  for (const DecisionDifference& each : differing_nodes(pure, parts))
    only_one_has_it |= each.a == nullptr || each.b == nullptr;
  EXPECT_TRUE(only_one_has_it);
}

CastTotals casts_of(const Model& model, const char* plan) {
  return total(value_casts(explain_plan(model, preset_plan(plan).value()).executable));
}

TEST(Casts, OfAForwardPass) {
  // x and four variables become fp16; the scores become fp32 for the softmax.
  const CastTotals mixed = casts_of(small_network(), "mixed_float16");
  EXPECT_EQ(mixed.casts, 6);
  EXPECT_EQ(mixed.to_fewer_bits, 5);
  EXPECT_EQ(mixed.to_more_bits, 1);
  EXPECT_EQ(mixed.of_weights, 4);
  EXPECT_EQ(mixed.bytes, (4 * 8 + 8 * 16 + 16 + 16 * 3 + 3 + 4 * 3) * 6);
  const CastTotals pure = casts_of(small_network(), "float16");
  EXPECT_EQ(pure.casts, 1);  // x
  EXPECT_EQ(casts_of(small_network(), "float32").casts, 0);
}

TEST(Casts, OfATrainingStepAreThoseOfPyTorch) {
  // PyTorch 2.15 does 11 aten::_to_copy for this network under bf16 autocast on the CPU: x, 4
  // variables and their gradients, the scores to fp32 and their gradient back.
  const CastTotals mixed = casts_of(trained_network(), "mixed_float16");
  EXPECT_EQ(mixed.casts, 1 + 4 + 4 + 1 + 1);
  EXPECT_EQ(mixed.of_weights, 8);
  EXPECT_EQ(mixed.to_fewer_bits, 1 + 4 + 1);
}

TEST(Casts, OneForSeveralReaders) {
  Model model = small_network();
  const ValueId again =
      model.graph.add1("Softmax", "again", {model.logits}, {{"axis", int64_t{0}}});
  model.outputs.push_back({"again", again});
  const CastTotals mixed = casts_of(model, "mixed_float16");
  EXPECT_EQ(mixed.casts, 6);
  EXPECT_EQ(mixed.kernels_by_reader, 7);
}

}  // namespace
}  // namespace halfscope
