// SPDX-License-Identifier: MIT
// The rules and the advice on runs whose fault is known by construction.
#include "analysis/rules/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "analysis/report/report.h"
#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/recommend.h"
#include "core/observe/mask.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<Finding> of_rule(const std::vector<Finding>& findings, const std::string& rule) {
  std::vector<Finding> found;
  std::copy_if(findings.begin(), findings.end(), std::back_inserter(found),
               [&](const Finding& finding) { return finding.rule == rule; });
  return found;
}

std::string all_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings) {
    text += f.rule + " " + f.site + " " + f.text + " " + f.action.text + "\n";
  }
  return text;
}

TEST(Rules, HealthyRunHasNoWarning) {
  const RunView run = make_run(healthy_spec());
  const std::vector<Finding> findings = run_rules(run);
  EXPECT_LT(worst_severity(findings).value_or(Severity::info), Severity::warning)
      << all_text(findings);
  EXPECT_FALSE(recommend(run, findings, 0));
  EXPECT_FALSE(recommend(run, findings, 1));
  EXPECT_EQ(make_report(run).verdict.state, Verdict::State::healthy);
  EXPECT_EQ(default_lane(run, findings), 1);
  // The only finding is the window. The recommended scale is inside it, and so is the current one.
  const auto window = of_rule(findings, "loss_scale_window");
  ASSERT_EQ(window.size(), 1u);
  EXPECT_EQ(window[0].severity, Severity::info);
  for (const char* scale : {"advised_scale", "last_scale_used"}) {
    EXPECT_GT(std::get<double>(window[0].evidence.at(scale)),
              std::get<double>(window[0].evidence.at("window_low")));
    EXPECT_LT(std::get<double>(window[0].evidence.at(scale)),
              std::get<double>(window[0].evidence.at("window_high")));
  }
  EXPECT_STREQ(action_name(window[0].action.edit), "none");
  EXPECT_THAT(window[0].action.text, HasSubstr("Nothing to change"));
}

TEST(Rules, HotLayerIsNamedAndNothingElse) {
  const RunView run = make_run(hot_spec());
  const std::vector<Finding> findings = run_rules(run);
  const auto overflow = of_rule(findings, "forward_overflow");
  ASSERT_EQ(overflow.size(), 1u) << all_text(findings);
  EXPECT_EQ(overflow[0].site, "conv2.activation");
  EXPECT_EQ(overflow[0].severity, Severity::error);
  EXPECT_EQ(overflow[0].step, 0);
  EXPECT_EQ(overflow[0].id(run), "forward_overflow:mixed_float16:conv2.activation");
  EXPECT_STREQ(action_name(overflow[0].action.edit), "keep_fp32");
  EXPECT_THAT(overflow[0].action.layers, ElementsAre("conv2"));
  EXPECT_THAT(overflow[0].text, HasSubstr("Lowering the loss scale alone does not help"));

  const auto first = of_rule(findings, "first_non_finite");
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].severity, Severity::error);
  EXPECT_EQ(first[0].site, "conv2.activation");
  EXPECT_THAT(std::get<std::string>(first[0].evidence.at("chain")),
              HasSubstr("conv2.activation -> rescale2.activation"));
  EXPECT_THAT(std::get<std::string>(first[0].evidence.at("chain")), HasSubstr("loss"));

  const auto advice = recommend(run, findings, 1);
  ASSERT_TRUE(advice);
  EXPECT_THAT(advice->edit.fp32_layers(), ElementsAre("conv2"));
  const auto plan = nlohmann::json::parse(advice->plan_json);
  EXPECT_EQ(plan["name"], "mixed_float16+fp32");
  EXPECT_EQ(plan["rules"].back(), (nlohmann::json{{"path", "conv2"}, {"format", "fp32"}}));
  EXPECT_EQ(make_report(run).verdict.state, Verdict::State::broken);
}

TEST(Rules, AdviceAppliedMakesTheRunHealthy) {
  RunSpec spec = hot_spec();
  const RunView broken = make_run(spec);
  spec.lanes[1].keep_fp32 = recommend(broken, run_rules(broken), 1)->edit.fp32_layers();
  spec.lanes[1].loss_scale = 16384.0;
  const std::vector<Finding> findings = run_rules(make_run(spec));
  EXPECT_LT(worst_severity(findings).value_or(Severity::info), Severity::warning)
      << all_text(findings);
}

TEST(Rules, LayersHiddenBehindTheRootAreFoundInTheReference) {
  RunSpec spec = hot_spec();
  // Nothing reduces the values again: fc1 would read them in fp16.
  layer_of(spec, "rescale2").activation = 17.0;
  layer_of(spec, "relu2").activation = 17.0;
  const RunView run = make_run(spec);
  const auto overflow = of_rule(run_rules(run), "forward_overflow");
  ASSERT_EQ(overflow.size(), 1u);
  EXPECT_EQ(overflow[0].site, "conv2.activation");
  EXPECT_THAT(overflow[0].action.layers, ElementsAre("conv2", "fc1"));
}

TEST(Rules, ReadingAWideTensorInANarrowFormatIsARoot) {
  RunSpec spec = hot_spec();
  layer_of(spec, "rescale2").activation = 17.0;
  spec.lanes[1].keep_fp32 = {"conv2", "rescale2"};
  RunView run = make_run(spec);
  // relu2 writes fp16 here, so it is the place; its input is finite in fp32.
  const auto overflow = of_rule(run_rules(run), "forward_overflow");
  EXPECT_TRUE(overflow.empty() || overflow[0].layer == "relu2");

  // Same from the inside: NaN from finite inputs, because the read overflowed.
  RunInfo info = run.info();
  RunView made(std::move(info), RunStatus::complete);
  made.add_step(1, {.step = 0, .loss = NAN, .loss_scale = 1.0, .skipped = true});
  TensorStats wide{.n = 4}, broken{.n = 4, .nan = 4};
  wide.max_abs = 1e6f;
  made.add_window(1, *made.find_site(1, "rescale2.activation"), {.step = 0, .stats = wide});
  made.add_window(1, *made.find_site(1, "relu2.activation"), {.step = 0, .stats = broken});
  const auto read = of_rule(run_rules(made), "forward_overflow");
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].layer, "relu2");
  EXPECT_THAT(read[0].mechanism, HasSubstr("reads rescale2.activation in fp16"));
}

TEST(Rules, OverflowingDataNamesTheLayersThatReadThem) {
  RunView made(make_run(healthy_spec()).info(), RunStatus::complete);
  made.add_step(1, {.step = 0, .loss = INFINITY, .loss_scale = 1.0});
  made.add_window(1, 0, {.step = 0, .stats = {.n = 4, .overflow = 1, .max_abs = 1e5f}});
  const auto overflow = of_rule(run_rules(made), "forward_overflow");
  ASSERT_EQ(overflow.size(), 1u);
  EXPECT_EQ(overflow[0].site, "input.input");
  EXPECT_THAT(overflow[0].action.layers, ElementsAre("conv1"));
}

TEST(Rules, EmptyWindowNamesTheSmallestSet) {
  const RunView run = make_run(no_scale_spec());
  const std::vector<Finding> findings = run_rules(run);
  const auto window = of_rule(findings, "loss_scale_window");
  ASSERT_EQ(window.size(), 1u) << all_text(findings);
  EXPECT_EQ(window[0].severity, Severity::error) << all_text(findings);
  // One of the two has to change; the other layers are between them.
  ASSERT_EQ(window[0].action.layers.size(), 1u) << all_text(findings);
  EXPECT_TRUE(window[0].action.layers[0] == "conv1" || window[0].action.layers[0] == "fc2");
  ASSERT_TRUE(window[0].action.edit.loss_scale());

  RunSpec mended = no_scale_spec();
  mended.lanes[1].keep_fp32 = window[0].action.layers;
  mended.lanes[1].loss_scale = *window[0].action.edit.loss_scale();
  const std::vector<Finding> after = run_rules(make_run(mended));
  EXPECT_LT(worst_severity(after).value_or(Severity::info), Severity::warning) << all_text(after);
}

TEST(Rules, GradientUnderflowAtASmallStaticScale) {
  RunSpec spec = healthy_spec();
  for (LayerSpec& layer : spec.layers) layer.gradient = -26.0;
  spec.lanes[1].loss_scale = 1.0;
  spec.lanes[1].dynamic = false;
  const RunView run = make_run(spec);
  const std::vector<Finding> findings = run_rules(run);
  const auto underflow = of_rule(findings, "gradient_underflow");
  ASSERT_FALSE(underflow.empty()) << all_text(findings);
  for (const Finding& finding : underflow) {
    EXPECT_EQ(finding.severity, Severity::warning);
    EXPECT_STREQ(action_name(finding.action.edit), "loss_scale");
    EXPECT_GT(std::get<double>(finding.evidence.at("flushed_share")), 0.3);
  }
  const auto advice = recommend(run, findings, 1);
  ASSERT_TRUE(advice && advice->edit.loss_scale());
  EXPECT_TRUE(advice->edit.fp32_layers().empty());
  EXPECT_EQ(make_report(run).verdict.state, Verdict::State::attention);

  spec.lanes[1].loss_scale = *advice->edit.loss_scale();
  EXPECT_TRUE(of_rule(run_rules(make_run(spec)), "gradient_underflow").empty());
}

TEST(Rules, HarmlessTailsAreNoUnderflow) {
  RunSpec spec = healthy_spec();
  spec.spread = 7.0;  // many tiny values, next to no energy in them
  layer_of(spec, "fc2").gradient = -24.0;
  for (LayerSpec& layer : spec.layers) layer.activation = -12.0;
  const std::vector<Finding> findings = run_rules(make_run(spec));
  EXPECT_TRUE(of_rule(findings, "gradient_underflow").empty()) << all_text(findings);
  for (const Finding& finding : of_rule(findings, "loss_scale_window")) {
    EXPECT_EQ(finding.severity, Severity::info) << all_text(findings);
  }
}

/// Returns the run with another description, and statistics that `change` was called for.
RunView with_statistics(const RunView& run, const RunInfo& info,
                        const std::function<void(const SiteInfo&, TensorStats&)>& change) {
  RunView made(info, RunStatus::complete);
  for (int lane = 0; lane < static_cast<int>(info.lanes.size()); ++lane) {
    for (const SiteInfo& site : info.lanes[static_cast<size_t>(lane)].sites) {
      for (const PackedWindow& window : run.windows(lane, site.order)) {
        TensorStats stats = window.stats();
        change(site, stats);
        made.add_window(lane, site.order, {.step = window.step, .stats = stats});
      }
    }
  }
  return made;
}

TEST(Rules, LostUpdatesWithNarrowStorage) {
  RunSpec spec = healthy_spec();
  spec.lanes[1] = {
      .name = "bfloat16", .format = kBf16, .storage = kBf16, .loss_scale = 1.0, .dynamic = false};
  const RunView run = make_run(spec);
  const std::vector<Finding> findings = run_rules(run);
  const auto lost = of_rule(findings, "lost_updates");
  ASSERT_EQ(lost.size(), 1u) << all_text(findings);
  EXPECT_EQ(lost[0].severity, Severity::warning);
  EXPECT_STREQ(action_name(lost[0].action.edit), "format");
  EXPECT_THAT(lost[0].action.layers, ElementsAre("conv1", "conv2", "fc1", "fc2"));
  EXPECT_THAT(lost[0].text, HasSubstr("Master weights in fp32 keep them."));
  EXPECT_THAT(lost[0].text, Not(HasSubstr("loss scale"))) << "the lane has none";
  // bf16 gradients have fp32's exponents, so there is no window to mention.
  EXPECT_TRUE(of_rule(findings, "loss_scale_window").empty());
  const auto advice = recommend(run, findings, 1);
  ASSERT_TRUE(advice);
  EXPECT_TRUE(advice->edit.fp32_layers().empty());
  EXPECT_EQ(nlohmann::json::parse(advice->plan_json)["variables"]["storage"], "fp32");

  // Rounded at random, small updates count on average.
  RunInfo stochastic = run.info();
  auto plan = nlohmann::ordered_json::parse(stochastic.lanes[1].plan_json);
  plan["variables"]["rounding"] = "stochastic:16";
  stochastic.lanes[1].plan_json = plan.dump();
  const RunView random = with_statistics(run, stochastic, [](const SiteInfo&, TensorStats&) {});
  const auto made_up_for = of_rule(run_rules(random), "lost_updates");
  ASSERT_EQ(made_up_for.size(), 1u);
  EXPECT_EQ(made_up_for[0].severity, Severity::info);
  EXPECT_STREQ(action_name(made_up_for[0].action.edit), "none");
  EXPECT_THAT(made_up_for[0].text, HasSubstr("on average, no update is lost"));

  spec.lanes[1].storage = kFp32;  // master weights take the same updates
  EXPECT_TRUE(of_rule(run_rules(make_run(spec)), "lost_updates").empty());
}

TEST(Rules, TheLargestOfWeightsThatLoseTheSameShareIsNamed) {
  RunSpec spec = healthy_spec();
  spec.lanes[1] = {.name = "bfloat16",
                   .format = kBf16,
                   .storage = kBf16,
                   .loss_scale = 1.0,
                   .dynamic = false,
                   .update = -30.0,
                   .late_update = -30.0};
  const RunView run = make_run(spec);
  for (const std::string large : {"conv1", "fc1", "fc2"}) {
    const RunView view =
        with_statistics(run, run.info(), [&](const SiteInfo& site, TensorStats& stats) {
          if (site.path == large) stats.merge(TensorStats(stats));
        });
    const auto lost = of_rule(run_rules(view), "lost_updates");
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(std::get<double>(lost[0].evidence.at("worst_lost_share")), 1.0);
    EXPECT_EQ(lost[0].layer, large);
  }
}

TEST(Rules, CalibrationIsNoFault) {
  RunSpec spec = healthy_spec();
  layer_of(spec, "fc2").gradient = -2.0;  // 65536 is too high by a few powers of two
  spec.lanes[1].loss_scale = 65536.0;
  spec.steps = 40;
  const RunView run = make_run(spec);
  const std::vector<Finding> findings = run_rules(run);
  const auto first = of_rule(findings, "first_non_finite");
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].severity, Severity::info) << all_text(findings);
  EXPECT_THAT(first[0].text, HasSubstr("a normal start of dynamic loss scaling"));
  EXPECT_EQ(worst_severity(findings), Severity::info) << all_text(findings);
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, Verdict::State::healthy);
  EXPECT_THAT(report.verdict.text, HasSubstr("normal start of dynamic scaling"));
}

TEST(Rules, StaticScaleTooHighIsAdvisedDown) {
  RunView made(make_run(healthy_spec()).info(), RunStatus::complete);
  for (int step = 0; step < 40; ++step) {
    made.add_step(1, {.step = step, .loss = 1.0, .loss_scale = 65536.0, .skipped = true});
    made.add_window(1, *made.find_site(1, "fc2.activation_grad"),
                    {.step = step, .stats = {.n = 4, .overflow = 1, .max_abs = 131072.0f}});
  }
  const std::vector<Finding> findings = run_rules(made);
  const auto first = of_rule(findings, "first_non_finite");
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].severity, Severity::warning);
  EXPECT_EQ(first[0].action.edit.loss_scale(),
            8192.0);  // 65520 / 131072 * 65536, one power to spare
  ASSERT_TRUE(recommend(made, findings, 1));
}

// Operators that return numbers when rerun, but not in the lane: on a device, the kernel is to
// blame and not the format, which only seems to overflow.
TEST(Rules, AKernelThatFailsIsBlamedAndNotTheFormat) {
  for (const char* backend : {"cuda", "emulated"}) {
    SCOPED_TRACE(backend);
    RunSpec spec = hot_spec();
    spec.lanes[1].name = std::string(backend) + ":mixed_float16";
    spec.lanes[1].backend = backend;
    RunView run = make_run(spec);
    for (const auto& [step, path] :
         {std::pair(6, "relu2.activation"), std::pair(6, "conv2.activation"),
          std::pair(9, "conv1.activation")}) {
      SiteError error{.step = step, .site = run.find_site(1, path).value()};
      error.local_fp32 = error.local_fp64 = INFINITY;
      run.add_error(1, error);
    }
    SiteError fine{.step = 3, .site = run.find_site(1, "conv1.activation").value()};
    fine.local_fp32 = fine.local_fp64 = 0.5;
    run.add_error(1, fine);
    // A tensor that should be all zeros but is not does not count as a fault.
    fine.local_fp32 = fine.local_fp64 = INFINITY;
    fine.inherited = 0.0;
    run.add_error(1, fine);
    const auto findings = run_rules(run);
    const auto faults = of_rule(findings, "kernel_fault");
    if (std::string(backend) == "emulated") {
      EXPECT_TRUE(faults.empty());
      continue;
    }
    ASSERT_EQ(faults.size(), 1u) << all_text(findings);
    EXPECT_EQ(findings.front().rule, "kernel_fault");
    EXPECT_EQ(faults[0].severity, Severity::error);
    EXPECT_EQ(faults[0].site, "conv2.activation");
    EXPECT_EQ(faults[0].step, 6);
    EXPECT_EQ(std::get<double>(faults[0].evidence.at("tensors")), 3.0);
    EXPECT_THAT(faults[0].text, HasSubstr("The cuda kernel is wrong here, not the format"));
    EXPECT_THAT(faults[0].action.text, HasSubstr("as cuda-own:mixed_float16"));
    // The hot layer overflows from the first step on, before the kernel is seen to fail.
    const auto overflow = of_rule(findings, "forward_overflow");
    ASSERT_EQ(overflow.size(), 1u);
    EXPECT_EQ(overflow[0].severity, Severity::error);
    for (const Finding& each : findings) {
      const bool later = each.step < 0 || each.step >= 6;
      if (later && each.rule != "kernel_fault" && each.lane == 1) {
        EXPECT_EQ(each.severity, Severity::info) << each.rule;
      }
    }
  }
}

TEST(Rules, InfinitiesOfMasksAreMeant) {
  SiteInfo where;
  where.role = Role::activation;
  where.op = "Where";
  TensorStats mask;
  mask.n = 8;
  mask.neg_inf = 3;
  EXPECT_TRUE(contains_mask(where, mask));
  TensorStats rounded = mask, positive = mask, nan = mask, none;
  rounded.overflow = 3;
  positive.pos_inf = 1;
  nan.nan = 1;
  for (const TensorStats& other : {rounded, positive, nan, none}) {
    EXPECT_FALSE(contains_mask(where, other));
  }
  SiteInfo gradient = where, product = where, given = where;
  given.role = Role::input;
  given.op = "Cast";
  EXPECT_TRUE(contains_mask(given, mask));
  gradient.phase = Phase::backward;
  product.op = "MatMul";
  EXPECT_FALSE(contains_mask(gradient, mask));
  EXPECT_FALSE(contains_mask(product, mask));
}

TEST(Rules, EdgesOfARun) {
  RunSpec spec = healthy_spec();
  spec.steps = 1;
  EXPECT_EQ(make_report(make_run(spec)).verdict.state, Verdict::State::inconclusive);

  spec.steps = 0;
  const Report empty = make_report(make_run(spec));
  EXPECT_TRUE(empty.findings.empty());
  EXPECT_EQ(empty.verdict.state, Verdict::State::inconclusive);

  const Report nothing = make_report(RunView(RunInfo{}, RunStatus::interrupted));
  EXPECT_EQ(nothing.verdict.state, Verdict::State::inconclusive);
  EXPECT_EQ(default_lane(RunView(RunInfo{}, RunStatus::running), {}), -1);

  spec = healthy_spec();
  spec.lanes.resize(1);
  const Report fp32 = make_report(make_run(spec));
  EXPECT_TRUE(fp32.findings.empty());
  EXPECT_EQ(fp32.verdict.state, Verdict::State::healthy);
  EXPECT_TRUE(fp32.lanes[0].reference);

  spec = healthy_spec();
  spec.nan_from_the_start = true;
  const Report nan = make_report(make_run(spec));
  EXPECT_EQ(nan.verdict.state, Verdict::State::broken);
  EXPECT_THAT(nan.verdict.text, HasSubstr("Not a precision problem"));
  EXPECT_FALSE(nan.recommendation);
}

TEST(Rules, NamesChangeNothingButNames) {
  const std::map<std::string, std::string> decoy{
      {"conv2", "softmax"}, {"fc1", "conv2"}, {"loss", "wo"}, {"conv1", "norm"}, {"fc2", "x*?"}};
  const auto renamed = [&](const std::string& name) {
    const auto place = decoy.find(name);
    return place == decoy.end() ? name : place->second;
  };
  for (RunSpec spec : {hot_spec(), no_scale_spec()}) {
    const auto plain = run_rules(make_run(spec));
    for (LayerSpec& layer : spec.layers) {
      layer.path = renamed(layer.path);
      for (std::string& input : layer.inputs) input = renamed(input);
    }
    spec.lanes[1].name = "healthy_float32";
    const auto other = run_rules(make_run(spec));
    ASSERT_EQ(plain.size(), other.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(plain[i].rule, other[i].rule);
      EXPECT_EQ(plain[i].severity, other[i].severity);
      EXPECT_EQ(renamed(plain[i].layer), other[i].layer);
      EXPECT_EQ(plain[i].action.edit.loss_scale(), other[i].action.edit.loss_scale());
      ASSERT_EQ(plain[i].action.layers.size(), other[i].action.layers.size());
      for (size_t k = 0; k < plain[i].action.layers.size(); ++k) {
        EXPECT_EQ(renamed(plain[i].action.layers[k]), other[i].action.layers[k]);
      }
    }
  }
}

TEST(Rules, SortedByLaneThenWeight) {
  RunSpec spec = hot_spec();
  spec.lanes.push_back({.name = "second"});
  const std::vector<Finding> findings = run_rules(make_run(spec));
  EXPECT_TRUE(
      std::is_sorted(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
        return a.lane != b.lane ? a.lane < b.lane : a.severity > b.severity;
      }));
}

}  // namespace
}  // namespace halfscope::test
