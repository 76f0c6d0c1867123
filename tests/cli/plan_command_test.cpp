// SPDX-License-Identifier: MIT
// `halfscope plan`: list, show, explain, diff.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/policy/policy.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::Outcome;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

json json_of(const Words& words) {
  const Outcome outcome = Bench().run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

void expect_usage_error(const Words& words, const std::string& what, const std::string& hint) {
  const Outcome outcome = Bench().run(words);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(what), HasSubstr("hint: " + hint)));
}

TEST(CliPlan, ListNamesEveryPresetOnce) {
  std::set<std::string> names;
  const json list = json_of({"plan", "list", "--json"});
  for (const json& each : list.at("plans")) {
    EXPECT_TRUE(names.insert(each.at("name")).second);
    EXPECT_NE(each.at("summary"), "");
    EXPECT_NE(each.at("group"), "");
  }
  std::set<std::string> expected;
  for (const PresetInfo& preset : presets()) expected.insert(preset.name);
  EXPECT_EQ(names, expected);
  EXPECT_THAT(Bench().run({"plan", "list"}).out, HasSubstr("mixed_float16"));
}

TEST(CliPlan, ShowListsNodesWithFormatsAndReasons) {
  const json shown = json_of({"plan", "show", "mixed_float16", "--model", "lenet", "--json"});
  EXPECT_EQ(shown.at("schema"), "halfscope.plan-nodes/1");
  EXPECT_EQ(shown.at("trains"), true);
  EXPECT_EQ(shown.at("needs_loss_scale"), true);
  std::map<std::string, json> nodes;
  for (const json& node : shown.at("nodes")) nodes[node.at("path")] = node;
  EXPECT_EQ(nodes.at("conv1").at("read"), "fp16");
  EXPECT_EQ(nodes.at("conv1").at("weights"), "fp32");
  EXPECT_EQ(nodes.at("relu1").at("follows"), true);
  EXPECT_EQ(nodes.at("relu1").at("inputs"), "conv1 (fp16)");
  EXPECT_EQ(nodes.at("loss").at("read"), "fp32");
  // 4 layers with weight and bias, forward and gradient; the images; the scores and their gradient.
  EXPECT_EQ(shown.at("casts").at("casts"), 8 + 8 + 1 + 2);
  const Outcome text = Bench().run({"plan", "show", "mixed_float16", "--model", "lenet"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("10 nodes in fp16, 1 node in fp32."),
                              HasSubstr("19 casts (10 to fewer bits, 9 to more;")));
}

TEST(CliPlan, BatchChangesOnlyTheBytes) {
  const auto casts = [](const char* batch) {
    return json_of(
               {"plan", "show", "mixed_float16", "--model", "lenet", "--batch", batch, "--json"})
        .at("casts");
  };
  const json one = casts("1"), many = casts("64");
  EXPECT_EQ(one.at("casts"), many.at("casts"));
  EXPECT_LT(one.at("bytes"), many.at("bytes"));
}

TEST(CliPlan, ShowWithoutANetworkPrintsThePlan) {
  const json plan = json_of({"plan", "show", "bfloat16", "--json"});
  EXPECT_EQ(plan.at("schema"), "halfscope.plan/1");
  EXPECT_EQ(plan.at("default").at("read"), "bf16");
  EXPECT_THAT(Bench().run({"plan", "show", "float64"}).out, HasSubstr("double precision"));
}

TEST(CliPlan, AForwardPassNeedsNoLossScaleUnderAnyPlan) {
  for (const char* plan : {"float16", "bfloat16", "mixed_float16"}) {
    EXPECT_THAT(Bench().run({"plan", "show", plan, "--model", "zoo:F11"}).out,
                HasSubstr("loss scale: none, because a forward pass has no gradients\n"))
        << plan;
  }
  EXPECT_THAT(Bench().run({"plan", "show", "float16", "--model", "lenet"}).out,
              HasSubstr("loss scale: needed: "));
}

TEST(CliPlan, Fp32KeepsLayersAndSaysSo) {
  const Words words{"plan", "explain", "float16", "conv2", "--model", "lenet", "--fp32", "conv2"};
  EXPECT_THAT(
      Bench().run(words).out,
      AllOf(HasSubstr("conv2 (Conv) reads fp32 and writes fp32"),
            HasSubstr("Why: --fp32 conv2 selects it."),
            HasSubstr("Leave out --fp32 conv2, or choose a path that does not select conv2"),
            HasSubstr("weights are stored in fp32")));
  // The flags that are named are those of the command, whatever else the plan says.
  const Outcome two = Bench().run({"plan", "explain", "fp8_delayed", "conv*", "--model", "lenet",
                                   "--fp32", "conv*", "--fp32", "conv2"});
  EXPECT_THAT(two.out, AllOf(HasSubstr("Why: --fp32 'conv*' selects it."),
                             HasSubstr("Why: --fp32 conv2 selects it."),
                             Not(ContainsRegex("[Rr]ule [0-9]"))));
  const Outcome recipe =
      Bench().run({"plan", "explain", "fp8_delayed", "conv1", "--model", "lenet"});
  EXPECT_THAT(recipe.out, HasSubstr("Why: The plan's rule for operator Conv selects it."));
}

TEST(CliPlan, LintNamesTheFlagThatSelectsNothingOrIsContradicted) {
  const Outcome none =
      Bench().run({"plan", "lint", "mixed_float16", "--model", "lenet", "--fp32", "conv9*"});
  EXPECT_THAT(none.out, HasSubstr("--fp32 'conv9*' selects nothing."));
  const Bench bench;
  std::ofstream(bench / "own.json")
      << R"({"schema": "halfscope.plan/1", "name": "own", "default": {"format": "fp16"},
             "variables": {"storage": "fp32"}, "rules": [{"path": "conv1", "format": "bf16"}]})";
  const Outcome both =
      bench.run({"plan", "lint", "own.json", "--model", "lenet", "--fp32", "conv*"});
  EXPECT_THAT(
      both.out,
      HasSubstr("conv1: the plan's rule for path 'conv1' has no effect. --fp32 'conv*' says "
                "otherwise for all of its layers"));
}

TEST(CliPlan, ExplainFindsNodesByOperator) {
  const json found = json_of({"plan", "explain", "Gemm", "--model", "lenet", "--json"});
  EXPECT_EQ(found.at("plan"), "mixed_float16");
  ASSERT_EQ(found.at("nodes").size(), 2u);
  for (const json& node : found.at("nodes")) {
    EXPECT_NE(node.at("why"), "");
    EXPECT_NE(node.at("change"), "");
  }
}

TEST(CliPlan, DiffNamesScalesAndFusedChains) {
  const Bench bench;
  const auto write = [&](const char* name, const std::string& more, const std::string& rule) {
    test::write_text(bench / name, R"({"schema": "halfscope.plan/1", "name": "x")" + more +
                                       R"(, "rules": [{"path": "fc2", "read": "int8", )" + rule +
                                       "}]}");
  };
  write("a.json", "", R"("scale": "divide:0.5")");
  write("b.json", R"(, "fuse": "elementwise")",
        R"("scale": "divide:0.5", "second_scale": "channel")");
  const json result = json::parse(
      bench.run({"plan", "diff", "a.json", "b.json", "--model", "lenet", "--json"}).out);
  ASSERT_EQ(result["settings"].size(), 1u) << result["settings"].dump();
  EXPECT_EQ(result["settings"][0]["what"], "chains of element-wise operators");
  ASSERT_EQ(result["nodes"].size(), 1u);
  EXPECT_EQ(result["nodes"][0]["a"]["scale"], "divide:0.5");
  EXPECT_EQ(result["nodes"][0]["b"]["scale"], "divide:0.5, second operand: channel");
  const Outcome shown = bench.run({"plan", "diff", "a.json", "b.json", "--model", "lenet"});
  EXPECT_THAT(shown.out, HasSubstr("reads int8 (divide:0.5, second operand: channel), writes "));
}

TEST(CliPlan, DiffListsWhatDiffers) {
  const json differing =
      json_of({"plan", "diff", "mixed_float16", "float16", "--model", "lenet", "--json"});
  EXPECT_EQ(differing.at("settings").at(0).at("b"), "fp16");
  EXPECT_EQ(differing.at("nodes").size(), 4u) << "the layers with weights";
  const Outcome same = Bench().run({"plan", "diff", "float16", "float16", "--model", "lenet"});
  EXPECT_THAT(same.out, HasSubstr("float16 and float16 give all 11 nodes of lenet the same"));
}

TEST(CliPlan, WrongArgumentsAreUsageErrors) {
  expect_usage_error({"plan", "shwo"}, "unknown action 'shwo'", "did you mean show?");
  expect_usage_error({"plan", "show"}, "an argument is missing", "use halfscope plan show PLAN");
  expect_usage_error({"plan", "list", "x"}, "'x' is one argument too many", "use halfscope plan");
  expect_usage_error({"plan", "explain", "conv1"}, "plan explain needs a network", "add --model");
  expect_usage_error({"plan", "explain", "conv9", "--model", "lenet"},
                     "no node of lenet matches 'conv9'", "did you mean conv1?");
  expect_usage_error({"plan", "explain", "Softmaks", "--model", "lenet"},
                     "no node of lenet matches 'Softmaks'", "nodes: conv1, relu1");
  expect_usage_error(
      {"plan", "explain", "tf-amp", "--model", "lenet"},
      "plan explain: 'tf-amp' is a plan, and NODE is missing",
      "add a layer, a module or an operator: halfscope plan explain tf-amp NODE --model");
  expect_usage_error({"plan", "explain", "float16", "my.json", "--model", "lenet"},
                     "'my.json' is a plan, and NODE is missing",
                     "add a layer, a module or an operator: halfscope plan explain my.json NODE");
  expect_usage_error({"plan", "show", "as_exported"},
                     "as_exported is the plan of an ONNX file and needs one",
                     "add --model FILE.onnx");
  expect_usage_error({"plan", "show", "mixed_flaot16"}, "no plan named 'mixed_flaot16'",
                     "did you mean mixed_float16?");
  expect_usage_error({"plan", "show", "cuda:float16"}, "names a backend", "write float16");
  expect_usage_error({"plan", "show", "float16", "--model", "lenet", "--fp32", "nothing"},
                     "no layer matches 'nothing'", "layers: conv1");
}

/// The actions that use each flag, from docs/reference/plan.md; every other action refuses it.
TEST(CliPlan, EachActionRefusesFlagsThatItWouldIgnore) {
  const std::map<std::string, Words> starts{
      {"list", {"plan", "list"}},
      {"show", {"plan", "show", "float16", "--model", "lenet"}},
      {"explain", {"plan", "explain", "conv1", "--model", "lenet"}},
      {"diff", {"plan", "diff", "float16", "float32", "--model", "lenet"}},
      {"lint", {"plan", "lint", "bfloat16", "--model", "lenet"}},
      {"scalers", {"plan", "scalers"}}};
  const std::set<std::string> nodes{"show", "explain", "diff", "lint"}, lint{"lint"},
      scalers{"scalers"};
  const struct {
    Words flag;
    std::set<std::string> actions;
  } flags[] = {{{"--loss", "cross-entropy"}, nodes},
               {{"--batch", "4"}, nodes},
               {{"--data", "digits"}, nodes},
               {{"--fp32", "conv1"}, nodes},
               {{"--optimizer", "adam"}, lint},
               {{"--lr", "0.01"}, lint},
               {{"--schedule", "cosine"}, lint},
               {{"--clip-norm", "1"}, lint},
               {{"--clip-before-unscale", "--clip-norm", "1"}, lint},
               {{"--ema", "0.9"}, lint},
               {{"--loss-scale", "torch"}, lint},
               {{"--pattern", "FO"}, scalers},
               {{"--shape", "steady"}, scalers},
               {{"--scaler", "torch"}, scalers},
               {{"--interval", "3"}, scalers},
               {{"--steps", "30"}, scalers},
               {{"--format", "bf16"}, scalers}};
  for (const auto& [flag, actions] : flags) {
    for (const auto& [action, start] : starts) {
      Words words = start;
      words.insert(words.end(), flag.begin(), flag.end());
      const Outcome outcome = Bench().run(words);
      if (actions.contains(action)) {
        EXPECT_LE(outcome.code, 1) << action << " " << flag[0] << ": " << outcome.err;
      } else {
        EXPECT_EQ(outcome.code, 2) << action << " " << flag[0];
        EXPECT_THAT(outcome.err, AllOf(HasSubstr("plan " + action + " has no flag " + flag[0]),
                                       HasSubstr("hint: " + flag[0] + " is a flag of plan ")));
      }
    }
  }
}

TEST(CliPlan, FlagsThatHaveNoEffectOnTheSubjectAreRefused) {
  const std::string graph =
      std::string(HALFSCOPE_SOURCE_DIR) + "/tests/policy/files/tf_amp/mlp_forward.pb";
  const struct {
    Words words;
    std::string what, hint;
  } mistakes[] = {{{"show", "float16", "--batch", "4"},
                   "--batch has no effect without a network",
                   "add --model"},
                  {{"show", "keras-float32", "--gpu", "A100:8.0"},
                   "--gpu has no effect without a network",
                   "add --model"},
                  {{"show", "keras-mixed_bfloat16", "--model", "lenet", "--gpu", "A100:8.0"},
                   "--gpu has no effect on keras-mixed_bfloat16",
                   "leave it out, or name keras-mixed_float16"},
                  {{"show", "float16", "--model", "lenet", "--frozen", "x"},
                   "--frozen has no effect on a built-in network",
                   "leave it out"},
                  {{"explain", "tf-amp", "MatMul", "--model", graph, "--fp32", "x"},
                   "--fp32 has no effect on a TensorFlow graph",
                   "leave it out"},
                  {{"show", "float16", "--model", "zoo:F11", "--batch", "4"},
                   "--batch has no effect on a network of the zoo",
                   "leave it out"},
                  {{"lint", "float16", "--model", "x.onnx", "--optimizer", "adam"},
                   "--optimizer has no effect on a network without a loss",
                   "add --loss to plan a training"},
                  {{"show", "float16", "--model", "x.onnx", "--data", "digits"},
                   "--data has no effect on a network without a loss",
                   "leave it out"},
                  {{"scalers", "--pattern", "F", "--format", "bf16"},
                   "--format has no effect with --pattern",
                   "leave it out; it has an effect with --trajectory or on a built-in trajectory"},
                  {{"scalers", "x.hscope", "--steps", "9"},
                   "--steps has no effect on a run file",
                   "leave it out; it has an effect with --pattern or on a built-in trajectory"}};
  for (const auto& [words, what, hint] : mistakes) {
    Words all{"plan"};
    all.insert(all.end(), words.begin(), words.end());
    expect_usage_error(all, "plan " + words[0] + ": " + what, hint);
  }
  const Outcome rules = Bench().run({"plan", "show", "float16", "--fp32", "conv*"});
  EXPECT_THAT(rules.out, HasSubstr("conv*")) << "rules need no network";
}

}  // namespace
}  // namespace halfscope
