// SPDX-License-Identifier: MIT
// Lint: every finding on a plan that has the fault, and none of them on healthy set-ups.
#include "analysis/plans/lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/models/loss.h"
#include "core/models/models.h"
#include "core/policy/keras.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kBatch = 8;
const std::filesystem::path kExamplePlans = HALFSCOPE_SOURCE_DIR "/examples/plans";

Model network(const std::string& name) {
  return build_model(name, kBatch, name == "resnet20" ? Shape{3, 32, 32} : Shape{1, 28, 28}, 10);
}

LintedTraining training_of(const std::string& model, const Plan& plan) {
  LintedTraining training;
  training.config.model = model;
  training.scaler = needs_loss_scaling(plan) ? parse_loss_scale("dynamic") : LossScalerConfig{};
  return training;
}

std::vector<Finding> lint(const std::string& model, const Plan& plan) {
  return lint_plan(network(model), plan, training_of(model, plan));
}

const Finding* named(const std::vector<Finding>& findings, const std::string& name) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& each) { return each.rule == name; });
  return found == findings.end() ? nullptr : &*found;
}

std::string texts(const std::vector<Finding>& findings) {
  std::string all;
  for (const Finding& each : findings) all += each.rule + ": " + each.text + "\n";
  return all;
}

TEST(PlanLint, StorageOfLayersInFp32HasNoEffect) {
  Plan plan = preset_plan("float32").value();
  plan.storage = kBf16;
  const std::vector<Finding> findings = lint("mlp:784-32-10", plan);
  ASSERT_NE(named(findings, "storage_without_effect"), nullptr) << texts(findings);
  EXPECT_EQ(named(findings, "storage_without_effect")->severity, Severity::warning);
  EXPECT_EQ(named(lint("mlp:784-32-10", preset_plan("bfloat16").value()), "storage_without_effect"),
            nullptr);
}

TEST(PlanLint, PresetsInHealthySettingsHaveNoErrors) {
  for (const PresetInfo& info : presets()) {
    const std::string& preset = info.name;
    for (const char* model : {"lenet", "resnet20", "mlp:784-32-10"}) {
      for (const Finding& each : lint(model, preset_plan(preset, network(model)).value()))
        EXPECT_NE(each.severity, Severity::error) << preset << " " << model << " " << each.text;
    }
  }
}

TEST(PlanLint, MixedPrecisionInHealthySettingsHasNoWarnings) {
  for (const char* preset : {"float32", "mixed_float16", "mixed_bfloat16", "keras3-mixed_float16",
                             "keras3-mixed_bfloat16"}) {
    for (const char* model : {"lenet", "resnet20"}) {
      for (const Finding& each : lint(model, preset_plan(preset, network(model)).value()))
        EXPECT_EQ(each.severity, Severity::info) << preset << " " << model << " " << each.text;
    }
  }
}

TEST(PlanLint, Fp16WithoutALossScale) {
  const Plan plan = preset_plan("mixed_float16").value();
  LintedTraining training = training_of("lenet", plan);
  EXPECT_EQ(named(lint_plan(network("lenet"), plan, training), "fp16_without_loss_scale"), nullptr);
  training.scaler = {};
  const std::vector<Finding> findings = lint_plan(network("lenet"), plan, training);
  const Finding* finding = named(findings, "fp16_without_loss_scale");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::warning);
  EXPECT_EQ(finding->layer, "conv1");
  EXPECT_THAT(finding->text, HasSubstr("conv1, "));
  EXPECT_THAT(finding->text, HasSubstr(" more compute in fp16"));
}

TEST(PlanLint, ALossScaleWithBf16) {
  const Plan plan = preset_plan("mixed_bfloat16").value();
  LintedTraining training = training_of("lenet", plan);
  EXPECT_EQ(named(lint_plan(network("lenet"), plan, training), "loss_scale_without_fp16"), nullptr);
  training.scaler = parse_loss_scale("dynamic");
  EXPECT_NE(named(lint_plan(network("lenet"), plan, training), "loss_scale_without_fp16"), nullptr);
}

TEST(PlanLint, BatchNormalizationInHalf) {
  const std::vector<Finding> stagewise = lint("resnet20", preset_plan("float16_stagewise").value());
  EXPECT_NE(named(stagewise, "batch_norm_in_half"), nullptr) << texts(stagewise);
  const std::vector<Finding> pure = lint("resnet20", preset_plan("float16").value());
  EXPECT_EQ(named(pure, "batch_norm_in_half"), nullptr);
  const Finding* statistics = named(pure, "batch_norm_statistics_in_half");
  ASSERT_NE(statistics, nullptr) << texts(pure);
  // A mean and a variance each.
  const Model resnet = network("resnet20");
  const auto count = std::count_if(resnet.graph.nodes().begin(), resnet.graph.nodes().end(),
                                   [](const Node& n) { return n.op == "BatchNormalization"; });
  EXPECT_THAT(statistics->text, HasSubstr(" and " + std::to_string(count - 3) +
                                          " more store their running statistics"));
  EXPECT_EQ(statistics->layer, "bn1");
  Plan kept = preset_plan("float16").value();
  kept.rules.push_back({.path = "", .op = "BatchNormalization", .read = kFp32, .write = kFp32});
  const std::vector<Finding> fixed = lint("resnet20", kept);
  EXPECT_EQ(named(fixed, "batch_norm_statistics_in_half"), nullptr) << texts(fixed);
}

TEST(PlanLint, OnlyKerasAsksForOutputsInFp32) {
  EXPECT_EQ(named(lint("lenet", preset_plan("torch-autocast-fp16").value()), "output_not_fp32"),
            nullptr);
}

TEST(PlanLint, SquaresOfGradientsInFp16) {
  Plan plan = preset_plan("float16").value();
  const auto findings = [&](const char* optimizer) {
    LintedTraining training{.config = {}, .scaler = parse_loss_scale("dynamic")};
    training.config.optimizer = parse_optimizer(optimizer);
    return lint_plan(build_model("lenet", 4, {1, 28, 28}, 10), plan, training);
  };
  EXPECT_NE(named(findings("adam"), "optimizer_state_in_half"), nullptr);
  EXPECT_EQ(named(findings("sgd"), "optimizer_state_in_half"), nullptr);
  plan.state = kFp32;
  EXPECT_EQ(named(findings("adam"), "optimizer_state_in_half"), nullptr);
  plan = preset_plan("bfloat16").value();
  EXPECT_EQ(named(findings("adam"), "optimizer_state_in_half"), nullptr);
}

TEST(PlanLint, TheLossOfTfKerasIsInHalf) {
  Plan plan = keras_plan({false, kFp16});
  plan.name = "mine";
  const std::vector<Finding> half = lint("lenet", plan);
  const Finding* finding = named(half, "loss_not_fp32");
  ASSERT_NE(finding, nullptr) << texts(half);
  EXPECT_EQ(finding->layer, "loss");
  ASSERT_NE(named(half, "output_not_fp32"), nullptr);
  EXPECT_EQ(named(half, "output_not_fp32")->layer, "fc2");
  // The output rule of Keras.
  keep_fp32(plan, "fc2");
  const std::vector<Finding> fixed = lint("lenet", plan);
  EXPECT_EQ(named(fixed, "loss_not_fp32"), nullptr) << texts(fixed);
  EXPECT_EQ(named(fixed, "output_not_fp32"), nullptr) << texts(fixed);
  EXPECT_EQ(named(lint("lenet", keras_plan({true, kFp16})), "loss_not_fp32"), nullptr);
}

TEST(PlanLint, AnEpsilonThatBecomesZero) {
  Plan plan = preset_plan("float16").value();
  plan.update_compute = kFp16;
  LintedTraining training = training_of("lenet", plan);
  training.config.optimizer.kind = Optimizer::Kind::adam;
  training.config.optimizer.eps = 1e-8;
  const std::vector<Finding> findings = lint_plan(network("lenet"), plan, training);
  const Finding* finding = named(findings, "constant_rounds");
  ASSERT_NE(finding, nullptr) << texts(findings);
  EXPECT_EQ(finding->severity, Severity::error);
}

TEST(PlanLint, ARuleThatSelectsNothing) {
  Plan plan = preset_plan("mixed_float16").value();
  keep_fp32(plan, "conv9");
  plan.rules.push_back({.path = "conv1", .op = "Gemm", .read = kFp32, .write = kFp32});
  const std::vector<Finding> findings = lint("lenet", plan);
  ASSERT_EQ(std::count_if(findings.begin(), findings.end(),
                          [](const Finding& f) { return f.rule == "rule_selects_nothing"; }),
            2)
      << texts(findings);
  EXPECT_THAT(findings[0].text, HasSubstr("conv9"));
  EXPECT_THAT(findings[1].text, HasSubstr("not Gemm"));
}

TEST(PlanLint, APathOfAPrimitiveSelectsSomething) {
  Plan plan = preset_plan("float16_stagewise").value();
  keep_fp32(plan, "bn1/var");
  const Model resnet = network("resnet20");
  const auto bn = std::find_if(resnet.graph.nodes().begin(), resnet.graph.nodes().end(),
                               [](const Node& node) { return node.op == "BatchNormalization"; });
  plan.rules.back().path = bn->path + "/var";
  EXPECT_EQ(named(lint("resnet20", plan), "rule_selects_nothing"), nullptr);
}

PlanRule in_format(const char* path, const char* op, const FloatFormat& format) {
  return {.path = path, .op = op, .read = format, .write = format};
}

std::vector<Finding> findings_about_rules(const std::string& model, std::vector<PlanRule> rules) {
  Plan plan;
  plan.rules = std::move(rules);
  std::vector<Finding> findings = lint(model, plan);
  std::erase_if(findings, [](const Finding& each) { return !each.rule.starts_with("rule"); });
  return findings;
}

TEST(PlanLint, RulesThatContradict) {
  Plan plan = preset_plan("mixed_float16").value();
  keep_fp32(plan, "conv1");
  plan.rules.push_back(in_format("conv*", "", kFp16));
  const std::vector<Finding> findings = lint("lenet", plan);
  const Finding* finding = named(findings, "rules_contradict");
  ASSERT_NE(finding, nullptr) << texts(findings);
  EXPECT_EQ(finding->layer, "conv1");
  std::swap(plan.rules[plan.rules.size() - 1], plan.rules[plan.rules.size() - 2]);
  EXPECT_EQ(named(lint("lenet", plan), "rules_contradict"), nullptr);
}

TEST(PlanLint, RulesForTheSameLayersContradict) {
  // The same operator; a path and an operator with the same layers; a later rule for more layers.
  const std::vector<std::vector<PlanRule>> plans{
      {in_format("", "Conv", kFp32), in_format("", "Conv", kFp16)},
      {in_format("conv?", "", kFp32), in_format("", "Conv", kFp16)},
      {in_format("", "Conv", kFp16), in_format("conv?", "", kFp32)},
      {in_format("conv1", "Conv", kFp16), in_format("", "Conv", kFp32)}};
  for (const std::vector<PlanRule>& rules : plans) {
    const std::vector<Finding> findings = findings_about_rules("lenet", rules);
    ASSERT_EQ(findings.size(), 1u) << texts(findings);
    EXPECT_EQ(findings[0].rule, "rules_contradict");
    EXPECT_EQ(findings[0].layer, "conv1");
    EXPECT_THAT(findings[0].text, HasSubstr("rule for "));
    EXPECT_THAT(findings[0].text, HasSubstr("has no effect. "));
  }
  EXPECT_EQ(findings_about_rules("lenet", plans[0])[0].text,
            "conv1 and conv2: the plan's first rule for operator Conv has no effect. A later rule "
            "for operator Conv says otherwise for all of its layers, and the last rule wins.");
  EXPECT_THAT(findings_about_rules("lenet", plans[1])[0].text,
              HasSubstr("the plan's rule for path 'conv?' has no effect. The plan's rule for "
                        "operator Conv says otherwise"));
}

TEST(PlanLint, OneSettingOfARuleIsContradicted) {
  PlanRule first = in_format("", "Conv", kFp32);
  first.accumulation = Accumulation::fp64;
  const std::vector<Finding> findings =
      findings_about_rules("lenet", {first, in_format("", "Conv", kFp16)});
  ASSERT_EQ(findings.size(), 1u) << texts(findings);
  EXPECT_THAT(findings[0].text,
              HasSubstr("the format of the plan's first rule for operator Conv has no effect"));
  // An exception for one layer between the two.
  EXPECT_EQ(
      findings_about_rules("lenet", {in_format("", "Conv", kFp32), in_format("conv1", "", kBf16),
                                     in_format("", "Conv", kFp16)})
          .size(),
      2u);
  EXPECT_EQ(
      findings_about_rules("lenet", {in_format("", "Conv", kFp32), in_format("", "Conv", kFp16),
                                     in_format("conv1", "", kBf16)})
          .size(),
      1u);
}

TEST(PlanLint, ExceptionsDoNotContradict) {
  PlanRule rounding = in_format("", "Conv", kFp16);
  rounding.read = rounding.write = std::nullopt;
  rounding.rounding = RoundingChoice{RoundingMode::toward_zero};
  PlanRule reads = in_format("", "Conv", kFp16), writes = reads;
  reads.write = writes.read = std::nullopt;
  writes.write = kBf16;
  const std::vector<std::vector<PlanRule>> plans{
      // One layer of an operator, a part of the network in the other direction.
      {in_format("", "Conv", kFp16), in_format("conv1", "", kFp32)},
      {in_format("*", "", kFp16), in_format("", "Gemm", kFp32)},
      // Both layers, one by one: the rule for the operator serves other networks.
      {in_format("", "Conv", kFp16), in_format("conv1", "", kFp32), in_format("conv2", "", kFp32)},
      // Different settings, and the same value.
      {in_format("", "Conv", kFp16), rounding},
      {reads, writes},
      {in_format("", "Conv", kFp16), in_format("", "Conv", kFp16)},
      // An operator that the network does not have.
      {in_format("", "LayerNormalization", kFp32), in_format("", "LayerNormalization", kFp16)}};
  for (const std::vector<PlanRule>& rules : plans) {
    const std::vector<Finding> findings = findings_about_rules("lenet", rules);
    EXPECT_EQ(named(findings, "rules_contradict"), nullptr) << texts(findings);
  }
  // Each of the two has layers of its own.
  EXPECT_THAT(findings_about_rules("resnet20",
                                   {in_format("layer1*", "", kFp16), in_format("", "Conv", kBf16)}),
              IsEmpty());
}

TEST(PlanLint, RulesAfterOneThatSelectsNothingAreStillNamed) {
  const std::vector<Finding> findings = findings_about_rules(
      "lenet",
      {in_format("conv9", "", kFp32), in_format("", "Conv", kFp32), in_format("", "Conv", kFp16)});
  const Finding* finding = named(findings, "rules_contradict");
  ASSERT_NE(finding, nullptr) << texts(findings);
  EXPECT_THAT(finding->text, HasSubstr("the plan's first rule for operator Conv"));
}

TEST(PlanLint, PresetsAndExamplesHaveNoFindingsAboutRules) {
  const auto check = [](const std::string& name, const std::string& model, const Plan& plan) {
    for (const Finding& each : lint(model, plan))
      EXPECT_FALSE(each.rule.starts_with("rule")) << name << " " << model << " " << each.text;
  };
  for (const char* model : {"lenet", "lenet-hot", "resnet20", "mlp:784-32-10"}) {
    for (const PresetInfo& info : presets())
      check(info.name, model, preset_plan(info.name, network(model)).value());
    int files = 0;
    for (const auto& file : std::filesystem::directory_iterator(kExamplePlans)) {
      ++files;
      check(file.path().string(), model, load_plan(file.path().string()));
    }
    EXPECT_GE(files, 1);
  }
}

/// -mean(y log p + (1 - y) log(1 - p)) with p = sigmoid(x w). `negated`: 1 - p is written 1 + -p.
Model binary_network(bool negated = false) {
  Model model;
  model.name = "binary";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {4, 3}), y = graph.add_input("y", {4, 1});
  const ValueId w = graph.add_variable("fc.weight", {3, 1}, {0.5});
  const ValueId p = graph.add1("Sigmoid", "sigmoid", {graph.add1("MatMul", "fc", {x, w})});
  const ValueId one = graph.add_constant(1.0f);
  const ValueId rest = negated ? graph.add1("Add", "rest", {graph.add1("Neg", "minus", {p}), one})
                               : graph.add1("Sub", "rest", {one, p});
  const ValueId other = graph.add1("Sub", "other", {one, y});
  const ValueId a = graph.add1("Mul", "a", {y, graph.add1("Log", "log_p", {p})});
  const ValueId b = graph.add1("Mul", "b", {other, graph.add1("Log", "log_rest", {rest})});
  const ValueId sum = graph.add1("Neg", "negative", {graph.add1("Add", "sum", {a, b})});
  model.input = x;
  model.loss = graph.add1("ReduceMean", "mean", {sum},
                          {{"axes", std::vector<int64_t>{0, 1}}, {"keepdims", int64_t{0}}});
  return model;
}

TEST(PlanLint, BinaryCrossEntropyOfRoundedProbabilities) {
  const Plan plan = preset_plan("mixed_float16").value();
  const LintedTraining training = training_of("lenet", plan);
  const std::vector<Finding> findings = lint_plan(binary_network(), plan, training);
  const Finding* finding = named(findings, "bce_in_half");
  ASSERT_NE(finding, nullptr) << texts(findings);
  EXPECT_EQ(finding->severity, Severity::error);
  EXPECT_THAT(finding->text, HasSubstr("sigmoid"));
  Plan kept = plan;
  keep_fp32(kept, "sigmoid");
  keep_fp32(kept, "fc");
  EXPECT_EQ(named(lint_plan(binary_network(), kept, training), "bce_in_half"), nullptr);
  EXPECT_EQ(named(lint_plan(binary_network(), Plan{}, training), "bce_in_half"), nullptr);
  EXPECT_NE(named(lint_plan(binary_network(true), plan, training), "bce_in_half"), nullptr);
  EXPECT_EQ(named(lint_plan(binary_network(true), kept, training), "bce_in_half"), nullptr);
}

}  // namespace
}  // namespace halfscope
