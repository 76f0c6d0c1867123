// SPDX-License-Identifier: MIT
// Plans: presets, their JSON form (docs/reference/plans.md), what is refused and by which
// name, globs, and how rules are applied.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "core/error.h"
#include "core/graph/op_def.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// Both plans say the same of everything.
void expect_equal(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.defaults.read, b.defaults.read);
  EXPECT_EQ(a.defaults.write, b.defaults.write);
  EXPECT_EQ(a.defaults.accumulation, b.defaults.accumulation);
  EXPECT_EQ(a.defaults.stagewise, b.defaults.stagewise);
  EXPECT_EQ(a.defaults.follows, b.defaults.follows);
  EXPECT_EQ(a.defaults.rounding, b.defaults.rounding);
  EXPECT_EQ(a.defaults.scale, b.defaults.scale);
  EXPECT_EQ(a.defaults.grad_read, b.defaults.grad_read);
  EXPECT_EQ(a.defaults.grad_rounding, b.defaults.grad_rounding);
  EXPECT_EQ(a.storage, b.storage);
  EXPECT_EQ(a.storage_rounding, b.storage_rounding);
  EXPECT_EQ(a.rules, b.rules);
  EXPECT_EQ(a.why, b.why);
  EXPECT_EQ(a.change, b.change);
  EXPECT_EQ(a.initial, b.initial);
  EXPECT_EQ(a.double_precision, b.double_precision);
}

std::string file_text(const std::string& name) {
  std::ifstream file(std::string(HALFSCOPE_SOURCE_DIR) + "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Plan, PresetsSurviveJson) {
  ASSERT_GE(preset_names().size(), 13u);
  for (const std::string& name : preset_names()) {
    const Plan plan = preset_plan(name).value();
    EXPECT_EQ(plan.name, name);
    const std::string text = plan_to_json(plan);
    const Plan back = plan_from_json(text);
    expect_equal(back, plan);
    EXPECT_EQ(plan_to_json(back), text);
  }
  EXPECT_FALSE(preset_plan("fp16"));
}

TEST(Plan, EveryPartSurvivesJson) {
  Plan plan;
  plan.name = "all \"parts\"";
  plan.defaults = {
      .read = kFp16, .write = kBf16, .accumulation = Accumulation::format, .stagewise = true};
  plan.storage = parse_format("e6m9").value();
  plan.rules = {{.path = "a*", .op = ""},
                {.path = "", .op = "Gemm", .read = kE4m3fn, .write = kE5m2},
                {.path = "b", .op = "Conv", .read = kTf32},
                {.path = "c", .op = "", .write = kFp16, .accumulation = Accumulation::fp64},
                {.path = "d", .op = "", .read = kFp32, .write = kFp32, .stagewise = false},
                {.path = "e/?", .op = "", .follow = true, .stagewise = true},
                {.path = "f", .op = "", .rounding = RoundingChoice{RoundingMode::stochastic, 8}},
                {.path = "g", .op = "", .rounding = RoundingChoice{RoundingMode::up}},
                {.path = "h", .op = "", .scale = parse_scale("delayed:margin=2").value()},
                {.path = "i", .op = "", .scale = TensorScale{}}};
  plan.rules[1].grad_read = kE5m2;
  plan.rules[2].why = "someone's \"list\"";
  plan.rules[3].change = "another list";
  plan.why = "no list";
  plan.change = "a list";
  plan.initial = kFp16;
  plan.rules[6].grad_rounding = RoundingChoice{RoundingMode::odd};
  plan.defaults.scale = parse_scale("mx:up,weights=square").value();
  plan.defaults.grad_read = kE4m3fn;
  plan.defaults.grad_rounding = RoundingChoice{RoundingMode::stochastic};
  plan.defaults.rounding = {RoundingMode::toward_zero};
  plan.storage_rounding = {RoundingMode::stochastic};
  expect_equal(plan_from_json(plan_to_json(plan)), plan);
}

TEST(Plan, TheExampleOfTheContractsIsMixedFloat16WithAConvolutionKept) {
  const std::string text = file_text("docs/reference/plans.md");
  const size_t begin = text.find("```json\n{\n  \"schema\": \"halfscope.plan/1\"");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = text.find("```", begin + 3);
  const Plan plan = plan_from_json(text.substr(begin + 8, end - begin - 8));
  EXPECT_EQ(plan.name, "mixed_float16");
  EXPECT_EQ(plan.storage, kFp32);
  ASSERT_EQ(plan.rules.size(), 3u);
  const Plan preset = preset_plan("mixed_float16").value();
  for (const auto& [path, op] :
       {std::pair{"fc1", "Gemm"}, {"relu1", "Relu"}, {"loss", "SoftmaxCrossEntropyLoss"}}) {
    const NodePlan ours = resolve(plan, path, op), theirs = resolve(preset, path, op);
    EXPECT_EQ(ours.follows, theirs.follows) << op;
    if (!ours.follows) {
      EXPECT_EQ(ours.read, theirs.read) << op;
    }
    EXPECT_EQ(ours.accumulation, theirs.accumulation) << op;
  }
  EXPECT_EQ(resolve(plan, "conv2", "Conv").read, kFp32);
  EXPECT_EQ(resolve(plan, "conv2", "Conv").write, kFp32);
  EXPECT_EQ(resolve(plan, "conv1", "Conv").read, kFp16);
}

TEST(Plan, ErrorsNameWhatIsWrong) {
  const struct {
    const char* json;
    const char* message;
  } table[] = {
      {R"({"schema": "halfscope.plan/1", "name": "x", "rulez": []})",
       "unknown key \"rulez\" in the plan"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "default": {"reed": "fp16"}})",
       "unknown key \"reed\" in default"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "variables": {"master": true}})",
       "unknown key \"master\" in variables"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "rules": [{"op": "Relu", "formt": "fp16"}]})",
       "unknown key \"formt\" in rules[0]"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "rules": [{"path": "a"}, {"op": "ReLU"}]})",
       "rules[1].op: unknown operator \"ReLU\""},
      {R"({"schema": "halfscope.plan/1", "name": "x", "rules": [{"path": "a", "write": "fp17"}]})",
       "rules[0].write: unknown format \"fp17\""},
      {R"({"schema": "halfscope.plan/1", "name": "x", "default": {"read": "follow"}})",
       "default.read: unknown format \"follow\""},
      {R"({"schema": "halfscope.plan/1", "name": "x", "default": {"mode": "slow"}})",
       "default.mode: unknown value \"slow\""},
      {R"({"schema": "halfscope.plan/1", "name": "x", "default": {"accumulate": "fp16"}})",
       "default.accumulate: unknown value \"fp16\""},
      {R"({"schema": "halfscope.plan/1", "name": "x", "default": {"accumulate": 64}})",
       "default.accumulate must be a string, not a number"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "variables": {"storage": "e9m1"}})",
       "variables.storage: unknown format \"e9m1\""},
      {R"({"schema": "halfscope.plan/1", "name": "x", "rules": [{"format": "fp16"}]})",
       "rules[0] selects nothing"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "rules": {}})",
       "rules must be an array, not an object"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "rules": ["a"]})",
       "rules[0] must be an object, not a string"},
      {R"({"schema": "halfscope.plan/1", "name": null})", "name must be a string, not null"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "default": {"read": true}})",
       "default.read must be a string, not true or false"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "precision": "double", "rules": []})",
       "precision cannot be combined with rules"},
      {"  \n", "the text is empty"},
      {R"({"schema": "halfscope.plan/1", "name": 1e999})", "a number is too large"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "precision": "single"})",
       "precision must be \"double\""},
      {R"({"schema": "halfscope.plan/1", "name": "a,b"})",
       "must not be empty, longer than 200 bytes or contain a comma"},
      {"{\"schema\": \"halfscope.plan/1\", \"name\": \"a\\u001bb\"}",
       "or contain a comma or control"},
      {R"({"schema": "halfscope.plan/2", "name": "x"})",
       "schema \"halfscope.plan/2\" is not halfscope.plan/1"},
      {R"({"schema": "halfscope.plan/1"})", "key \"name\" is missing"},
      {R"({"name": "x"})", "key \"schema\" is missing"},
      {R"({"schema": "halfscope.plan/1", "name": "x", "default": {"scale": "currant"}})",
       "default.scale: unknown value \"currant\""},
      {R"({"schema": "halfscope.plan/1", "name": "x", "rules": [{"op": "Gemm", "scale": "mx:3"}]})",
       "rules[0].scale: unknown value \"mx:3\""},
      {R"({"schema": "halfscope.plan/1", "name": "x", "default": {"grad_rounding": "even"}})",
       "default.grad_rounding: unknown value \"even\""},
      {R"({"schema": "halfscope.plan/1", "name": "x", "default": {"grad_read": "e9"}})",
       "default.grad_read: unknown format \"e9\""},
      {R"({"schema": "halfscope.plan/1", "name": "x", "rules": [{"op": "Gemm"}, {"op": "Conv",
           "read": "fp16", "read": "fp32"}]})",
       "key \"read\" is given twice in one object"},
      {R"([])", "the plan must be an object"},
      {R"({"schema": )", "not JSON"},
  };
  for (const auto& each : table) {
    try {
      plan_from_json(each.json);
      ADD_FAILURE() << "accepted: " << each.json;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << each.json;
      EXPECT_NE(error.hint(), "") << each.json;
      const std::string what = error.what();
      EXPECT_NE(what.find(each.message), std::string::npos) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    }
  }
}

TEST(Plan, LoadingNamesTheFileAndThePresets) {
  try {
    load_plan("/nonexistent/plan.json");
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(std::string(error.what()),
              "no plan named '/nonexistent/plan.json', and no file with this name");
    EXPECT_EQ(error.hint(), "list them with: halfscope plan list") << error.hint();
  }
  expect_equal(load_plan("bfloat16"), preset_plan("bfloat16").value());
}

TEST(Plan, ARuleThatReadsAnewReadsGradientsLikewise) {
  Plan plan = preset_plan("fp8_current").value();
  EXPECT_EQ(resolve(plan, "fc1", "Gemm").grad_read, kE5m2);
  plan.rules.push_back({.path = "fc1", .op = "", .read = kE4m3fn});
  EXPECT_EQ(resolve(plan, "fc1", "Gemm").grad_read, std::nullopt);
  EXPECT_EQ(resolve(plan, "fc2", "Gemm").grad_read, kE5m2);
  Plan rounded = preset_plan("nvfp4").value();
  EXPECT_EQ(resolve(rounded, "fc1", "Gemm").grad_rounding->mode, RoundingMode::stochastic);
  rounded.rules.push_back({.path = "fc1", .op = "", .rounding = RoundingChoice{}});
  EXPECT_EQ(resolve(rounded, "fc1", "Gemm").grad_rounding, std::nullopt);
}

TEST(Plan, PureFormatsKeepNoOperatorInFp32) {
  for (const char* name : {"float16", "bfloat16", "float16_stagewise", "bfloat16_stagewise"}) {
    const std::string text = name;
    const FloatFormat format = text.starts_with("float16") ? kFp16 : kBf16;
    const Plan plan = preset_plan(name).value();
    EXPECT_EQ(plan.storage, format);
    for (const OpDef& def : op_table()) {
      const NodePlan node = resolve(plan, "any", def.name);
      EXPECT_EQ(node.read, format) << name << " " << def.name;
      EXPECT_EQ(node.write, format) << name << " " << def.name;
      EXPECT_FALSE(node.follows) << name << " " << def.name;
      EXPECT_EQ(node.stagewise, text.ends_with("_stagewise")) << name << " " << def.name;
      EXPECT_EQ(node.accumulation, Accumulation::fp32) << name << " " << def.name;
    }
  }
}

TEST(Plan, ScaledOperandsNeedNoLossScaling) {
  for (const char* name : {"fp8_delayed", "fp8_current", "fp8_block", "mxfp8", "nvfp4"}) {
    Plan plan = preset_plan(name).value();
    EXPECT_FALSE(needs_loss_scaling(plan)) << name;
    for (PlanRule& rule : plan.rules) rule.scale.reset();
    EXPECT_TRUE(needs_loss_scaling(plan)) << name;
  }
}

TEST(Plan, LossScalingIsForWhatIsReadWithoutScales) {
  const auto needs = [](const std::string& rest) {
    return needs_loss_scaling(
        plan_from_json(R"({"schema": "halfscope.plan/1", "name": "x", )" + rest + "}"));
  };
  // A path of one node alone, and paths with escaped wildcards.
  for (const char* path : {"conv1", "\\\\conv1", "conv*", "a\\\\*b"}) {
    EXPECT_TRUE(needs(fmt::format(R"("rules": [{{"path": "{}", "format": "fp16"}}])", path)))
        << path;
  }
  // Other operators read in the default's format, and nothing scales that.
  EXPECT_TRUE(needs(R"("default": {"read": "e4m3fn", "write": "bf16", "scale": "current"})"));
  EXPECT_FALSE(needs(R"("default": {"scale": "current"},
      "rules": [{"op": "Gemm", "read": "e4m3fn"}, {"op": "Conv", "read": "e4m3fn"}])"));
  EXPECT_TRUE(needs(R"("default": {"scale": "current"},
      "rules": [{"op": "Gemm", "read": "e4m3fn"}, {"op": "Gemm", "scale": "none"}])"));
  EXPECT_FALSE(needs(R"("rules": [{"op": "Gemm", "read": "e4m3fn"},
      {"op": "Gemm", "scale": "current"}])"));
  EXPECT_FALSE(needs(R"("rules": [{"path": "fc1", "read": "e4m3fn", "scale": "mx"}])"));
  EXPECT_TRUE(needs(R"("rules": [{"path": "fc1", "read": "e4m3fn"}])"));
  EXPECT_TRUE(needs(R"("rules": [{"op": "Gemm", "write": "fp16", "scale": "mx"}])"));
  EXPECT_TRUE(needs(R"("variables": {"storage": "fp16"})"));
  EXPECT_FALSE(needs(R"("default": {"format": "bf16"})"));
}

TEST(Plan, GlobsMatchWholePaths) {
  const struct {
    const char *glob, *text;
    bool matches;
  } table[] = {
      {"fc1", "fc1", true},
      {"fc1", "fc10", false},
      {"fc1", "xfc1", false},
      {"fc?", "fc1", true},
      {"fc?", "fc", false},
      {"fc?", "fc12", false},
      {"*", "", true},
      {"*", "a/b/c", true},
      {"", "", true},
      {"", "a", false},
      {"?", "", false},
      {"fc*", "fc", true},
      {"*1", "block1/conv1", true},
      {"*1", "conv12", false},
      {"block*/conv?", "block2/a/conv1", true},
      {"a*b*c", "a1b2b3c", true},
      {"a*b*c", "a1c2b", false},
      {"**", "x", true},
      {"*a", "aaab", false},
      {"*ab", "aaab", true},
      {"a?c*", "abc", true},
      {"fc[12]", "fc1", false},
      {"FC1", "fc1", false},
      {"?*", "", false},
      {"*?", "x", true},
      {"*/Exp", "loss/Exp", true},
      {"a*", "ba", false},
      {"*aab", "aaab", true},
      {"*ab?", "abab1", true},
      {"a*ab*c", "aabac", true},
      {"a\\*", "a*", true},
      {"a\\*", "ab", false},
      {"a\\*", "a\\*", false},
      {"a\\?c", "a?c", true},
      {"a\\?c", "abc", false},
      {"*\\*b", "x*y*b", true},
      {"*\\*b", "xyb", false},
      {"\\a", "a", true},
      {"\\\\", "\\", true},
      {"\\\\*", "\\abc", true},
      {"a\\", "a\\", true},
      {"a\\", "a", false},
  };
  for (const auto& each : table) {
    EXPECT_EQ(glob_match(each.glob, each.text), each.matches) << each.glob << " on " << each.text;
  }
}

TEST(Plan, ExactGlobsMatchTheirPathOnly) {
  const std::vector<std::string> paths{"x*?", "x**", "xab", "\\*", "\\\\", "\\", "fc1", "a/b?", ""};
  for (const std::string& path : paths) {
    for (const std::string& text : paths) {
      EXPECT_EQ(glob_match(exact_glob(path), text), path == text) << path << " on " << text;
    }
  }
  EXPECT_EQ(exact_glob("block1/conv1"), "block1/conv1");
}

TEST(Plan, LaterRulesWinKeyByKey) {
  Plan plan;
  plan.defaults = {.read = kFp16, .write = kFp16};
  plan.rules = {{.path = "",
                 .op = "Gemm",
                 .read = kE4m3fn,
                 .write = kBf16,
                 .accumulation = Accumulation::fp64},
                {.path = "fc*", .op = "", .write = kFp32},
                {.path = "fc2", .op = "Conv", .read = kE5m2},
                {.path = "fc3", .op = "", .follow = true},
                {.path = "fc4", .op = "", .follow = true},
                {.path = "fc4", .op = "", .read = kFp16}};
  const NodePlan fc1 = resolve(plan, "fc1", "Gemm");
  EXPECT_EQ(fc1.read, kE4m3fn);
  EXPECT_EQ(fc1.write, kFp32);
  EXPECT_EQ(fc1.accumulation, Accumulation::fp64);
  EXPECT_EQ(resolve(plan, "fc2", "Gemm").read, kE4m3fn) << "a rule with path and op needs both";
  EXPECT_EQ(resolve(plan, "fc2", "Conv").read, kE5m2);
  EXPECT_TRUE(resolve(plan, "fc3", "Gemm").follows);
  EXPECT_FALSE(resolve(plan, "fc4", "Gemm").follows) << "a format after follow ends it";
  accumulate_in(plan, Accumulation::format);
  EXPECT_EQ(resolve(plan, "fc1", "Gemm").accumulation, Accumulation::format);
}

TEST(Plan, WhichPlansAreReferencesAndWhichNeedScaling) {
  const struct {
    const char* name;
    bool full, scaled;
  } table[] = {{"float32", true, false},           {"float64", true, false},
               {"mixed_float16", false, true},     {"mixed_bfloat16", false, false},
               {"float16", false, true},           {"bfloat16", false, false},
               {"float16_stagewise", false, true}, {"bfloat16_stagewise", false, false}};
  for (const auto& each : table) {
    const Plan plan = preset_plan(each.name).value();
    EXPECT_EQ(is_full_precision(plan), each.full) << each.name;
    EXPECT_EQ(needs_loss_scaling(plan), each.scaled) << each.name;
  }
  Plan plan;
  plan.rules.push_back({.path = "fc1", .op = "", .read = kE5m2});
  EXPECT_FALSE(is_full_precision(plan));
  EXPECT_TRUE(needs_loss_scaling(plan));
}

}  // namespace
}  // namespace halfscope
