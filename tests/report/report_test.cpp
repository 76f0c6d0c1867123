// SPDX-License-Identifier: MIT
// Texts of the reports: verdicts, actions with their costs, commands, Markdown. With
// HALFSCOPE_REPORT_DIR set, the pages of a few synthetic runs are written there for viewing.
#include "analysis/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/report/report_fixtures.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

size_t lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

const LaneReport& lane_named(const Report& report, const std::string& name) {
  for (const LaneReport& lane : report.lanes) {
    if (lane.name == name) return lane;
  }
  throw std::out_of_range(name);
}

TEST(ReportVerdict, AnUnfinishedRunIsJudgedForTheStepsItHas) {
  const RunView run = make_run(healthy_spec());
  const std::map<RunStatus, std::string> words{
      {RunStatus::interrupted, "The run was stopped early. The verdict covers 20 of 400 steps."},
      {RunStatus::early_stop, "Early stopping ended the run. The verdict covers 20 of 400 steps."},
      {RunStatus::died, "The training process died. The verdict covers 20 of 400 steps."},
      {RunStatus::running, "Still training. This covers 20 of 400 steps."}};
  for (const auto& [status, word] : words) {
    const Verdict verdict = make_report(with_status(run, status, 400)).verdict;
    EXPECT_THAT(verdict.text, HasSubstr(word));
    EXPECT_THAT(verdict.text, Not(HasSubstr("final loss")));
    EXPECT_EQ(verdict.state, Verdict::State::healthy);
  }
  EXPECT_THAT(make_report(run).verdict.text, HasSubstr("final loss"));
}

TEST(ReportVerdict, ACureInTheRunIsTold) {
  const Report report = make_report(full_run());
  EXPECT_EQ(report.verdict.state, Verdict::State::cured);
  EXPECT_EQ(report.cure, 2);
  EXPECT_EQ(lane_named(report, "mixed_float16").state, Verdict::State::broken);
  EXPECT_EQ(lane_named(report, "mixed_float16+fp32").state, Verdict::State::healthy);
  EXPECT_THAT(report.verdict.text, HasSubstr("conv2 overflows fp16"));
}

TEST(ReportVerdict, AnotherFormatIsNoCure) {
  RunSpec spec = hot_spec();  // bf16 is fine, but narrower in its mantissa
  spec.lanes.push_back({.name = "bfloat16", .format = kBf16, .loss_scale = 1.0, .dynamic = false});
  const Report report = make_report(make_run(spec));
  EXPECT_EQ(report.verdict.state, Verdict::State::broken);
  EXPECT_FALSE(report.cure);
  EXPECT_THAT(report.verdict.text, HasSubstr("bfloat16 matches float32"));
}

TEST(ReportVerdict, AWiderLaneHasNotTriedTheAdvice) {
  RunSpec spec = hot_spec();  // tf32 can represent all of fp16, but keeps no layer in fp32
  spec.lanes.push_back({.name = "wide", .format = kTf32, .loss_scale = 1.0, .dynamic = false});
  const Report report = make_report(make_run(spec));
  EXPECT_EQ(report.verdict.state, Verdict::State::cured);
  ASSERT_TRUE(report.recommendation);
  ASSERT_GE(report.actions.size(), 2u);
  // The run has tested the plan of the other lane, so that comes first, everywhere.
  EXPECT_TRUE(report.actions.front().of_cure);
  EXPECT_EQ(report.actions.front().text, "Use the plan of wide.");
  EXPECT_EQ(answer_of(report).todo, "Use the plan of wide.");
  EXPECT_EQ(answer_of(report).confidence, report.actions.front().confidence);
  EXPECT_THAT(tested_advice(report, report.sick), StartsWith("Use the plan of wide. Confidence "));
  EXPECT_EQ(tested_advice(report, 0), "");
  const nlohmann::json actions = nlohmann::json::parse(report_json(report)).at("actions");
  EXPECT_EQ(actions.at(0).at("plan_of"), "wide");
  EXPECT_EQ(actions.at(1).at("plan_of"), nullptr);
  EXPECT_THAT(diagnosis_lines(*report.diagnosis, true),
              HasSubstr("or instead, not tried yet: Keep"));
  for (size_t i = 1; i < report.actions.size(); ++i) {
    const ActionReport& action = report.actions[i];
    EXPECT_THAT(action.text, StartsWith("Or, not tested: "));
    EXPECT_THAT(action.effect, testing::Not(HasSubstr("Tested"))) << action.text;
    EXPECT_THAT(action.basis, HasSubstr("not tested yet")) << action.text;
  }
  EXPECT_THAT(report_json(report), HasSubstr("\"cured_by\": null"));
}

TEST(ReportVerdict, NormalSkipsAreCalledNormal) {
  RunSpec spec = healthy_spec();
  layer_of(spec, "fc2").gradient = -2.0;
  spec.lanes[1].loss_scale = 65536.0;
  spec.steps = 40;
  const Report report = make_report(make_run(spec));
  const LaneReport& lane = report.lanes[1];
  ASSERT_GT(lane.skipped, 0);
  EXPECT_EQ(report.verdict.state, Verdict::State::healthy);
  EXPECT_THAT(report.verdict.text, HasSubstr("first "));
  EXPECT_THAT(report.verdict.text,
              HasSubstr("skipped: that is the normal start of dynamic scaling."));
}

// Samples with a NaN are wrong, as in `run` and in gates.
TEST(Report, ALaneWithoutAFiniteLossHasTheAccuracyThatWasMeasured) {
  RunView run = make_run(hot_spec());
  run.add_eval(1, {.step = 30, .loss = std::numeric_limits<double>::quiet_NaN(), .accuracy = 0.0});
  const Report report = make_report(run);
  EXPECT_EQ(report.lanes[1].test_accuracy, 0.0);
  EXPECT_THAT(report_markdown(report), HasSubstr("| 0.125 | 0% |\n"));
}

// A reader must know when other weights than the trained ones were evaluated.
TEST(Report, SaysWhatWasEvaluated) {
  for (const bool averages : {false, true}) {
    SCOPED_TRACE(averages);
    const RunView run = make_run(healthy_spec());
    RunInfo info = run.info();
    info.evaluates_averages = averages;
    RunView other(info, RunStatus::complete);
    for (int lane = 0; lane < 2; ++lane) {
      for (const StepRow& row : run.steps(lane)) other.add_step(lane, row);
      for (const EvalRow& row : run.evals(lane)) other.add_eval(lane, row);
    }
    const Report report = make_report(other);
    ASSERT_TRUE(report.lanes[1].test_accuracy);
    const std::string end = averages ? " (averages)" : "";
    EXPECT_THAT(report_markdown(report), HasSubstr("| test accuracy" + end + " |\n"));
    const std::string html = report_html(report);
    EXPECT_THAT(html, HasSubstr("<th scope=\"row\">Test loss" + end + "</th>"));
    EXPECT_THAT(html, HasSubstr("<th scope=\"row\">Test accuracy" + end + "</th>"));
    EXPECT_THAT(html, HasSubstr("<dt>test accuracy" + end + "</dt>"));
    const auto json = nlohmann::json::parse(report_json(report));
    EXPECT_EQ(json["run"]["evaluated"], averages ? "averages" : "weights");
  }
}

TEST(Report, LossGapIsTheMedianOverTheLastFifth) {
  RunView run(make_run(healthy_spec()).info(), RunStatus::complete);
  for (int step = 0; step < 50; ++step) {
    run.add_step(0, {.step = step, .loss = 2.0});
    // Far off before the last ten steps, then 5%, with one wild step.
    run.add_step(1, {.step = step, .loss = step < 40 ? 9.0 : step == 44 ? 100.0 : 2.1});
  }
  EXPECT_NEAR(make_report(run).lanes[1].loss_gap.value(), 0.05, 1e-12);
  EXPECT_FALSE(make_report(run).lanes[0].loss_gap);
}

TEST(Report, NothingFiniteInCommonIsNoAgreement) {
  RunView run = make_run(hot_spec());
  SiteError error{.step = 0, .site = *run.find_site(1, "fc1.activation"), .other_lane = 0};
  error.n = error.differing = error.ulps.back() = 512;
  error.total = error.local_fp64 = error.inherited = 0.0;
  run.add_error(1, error);
  const Report report = make_report(run);
  const SiteErrorReport& site = report.errors.at(0).sites.at(0);
  EXPECT_FALSE(site.total);
  EXPECT_FALSE(site.local());
  EXPECT_EQ(site.differing, 512);
  EXPECT_EQ(report.errors[0].first_site, "fc1.activation");
}

/// Two lanes that differ in the format of conv2 and the layers that follow it: the cost in the
/// advice must be the difference of the layers that they keep.
TEST(ReportActions, CostIsWhatTheAdvisedLaneReallyKeeps) {
  const RunView run = full_run();
  const Report report = make_report(run);
  ASSERT_FALSE(report.actions.empty());
  const ActionReport& action = report.actions.front();
  EXPECT_STREQ(action_name(action.edit), "keep_fp32");
  EXPECT_THAT(action.edit.fp32_layers(), ElementsAre("conv2", "fc1")) << "as was proved";
  ASSERT_TRUE(action.cost);
  EXPECT_THAT(action.cost->followers, ElementsAre("rescale2", "relu2", "relu3"));
  // 512 elements each: the weights of conv2 and fc1; conv2, rescale2, relu2, fc1 and relu3 kept in
  // 4 bytes instead of 2.
  EXPECT_EQ(action.cost->weight_bytes, 2 * 512 * 2);
  EXPECT_EQ(action.cost->activation_bytes, 5 * 512 * 2);
  EXPECT_EQ(action.cost->weight_share, 0.5);
  EXPECT_EQ(action.confidence, "high");
  EXPECT_THAT(action.effect, HasSubstr("the loss differs from fp32's by 0.41%"));
  EXPECT_THAT(action.change_my_mind, HasSubstr("a seed other than 1"));
}

TEST(ReportActions, ConfidenceFollowsWhatIsKnown) {
  RunSpec few = hot_spec(), many = hot_spec();
  few.steps = 49;
  many.steps = 50;
  EXPECT_EQ(make_report(make_run(few)).actions.front().confidence, "low");
  EXPECT_EQ(make_report(make_run(many)).actions.front().confidence, "medium");
  RunView failed = make_run(many);
  std::string proof = proof_json();
  proof.replace(proof.find("\"holds\":true"), 12, "\"holds\":false");
  failed.set_proof(1, proof);
  EXPECT_EQ(make_report(failed).actions.front().confidence, "low");
  EXPECT_THAT(make_report(make_run(healthy_spec())).actions, IsEmpty());
}

TEST(ReportActions, AShortProofIsWeaker) {
  RunView run = make_run(hot_spec());
  std::string proof = proof_json();
  const size_t steps = proof.find("\"steps\":");
  ASSERT_NE(steps, std::string::npos);
  proof.replace(steps, proof.find(',', steps) - steps, "\"steps\":49");
  run.set_proof(1, proof);
  EXPECT_EQ(make_report(run).actions.front().confidence, "medium");
}

TEST(ReportVerdict, AFewStepsAreHealthySoFar) {
  RunSpec few = healthy_spec(), many = healthy_spec();
  few.steps = 49;
  many.steps = 50;
  const Verdict early = make_report(make_run(few)).verdict;
  EXPECT_THAT(early.text, HasSubstr(" so far: final loss "));
  EXPECT_THAT(early.text, HasSubstr("Only 49 steps so far. Train at least 50 before"));
  const Verdict late = make_report(make_run(many)).verdict;
  EXPECT_THAT(late.text, HasSubstr(": final loss "));
  EXPECT_THAT(late.text, Not(HasSubstr("so far")));
}

TEST(ReportProof, ReadsWhatProveWritesAndNothingElse) {
  const std::optional<Proof> proof = read_proof(proof_json());
  ASSERT_TRUE(proof);
  EXPECT_TRUE(proof->holds);
  EXPECT_FALSE(proof->edit.loss_scale());
  ASSERT_EQ(proof->trials.size(), 4u);
  EXPECT_TRUE(std::isinf(proof->trials[0].gap));
  EXPECT_TRUE(std::isnan(proof->trials[2].gap));
  EXPECT_EQ(proof->trials[3].without, "fc1");
  EXPECT_THAT(proof->dropped, ElementsAre("fc2"));
  for (const char* other : {"", "null", "[]", "{}", "{\"trials\": 3}", "{\"trials\""}) {
    EXPECT_FALSE(read_proof(other)) << other;
  }
  EXPECT_TRUE(read_proof(R"({"trials": [7, {"gap": "x", "skipped": "y"}]})"));
}

TEST(ReportCommands, HaveNoFoldersAndNoFlagsOfThisMachine) {
  RunInfo info = make_run(healthy_spec()).info();
  info.command = "halfscope train --force --out /data/me/x.hscope --data mnist:/data/me/mnist";
  info.settings = {"--model", "lenet",      "--data", "mnist:/data/me/mnist",
                   "--init",  "/tmp/w.npz", "--seed", "7"};
  info.lanes[1].loss_scale = "static:128";
  const RunView run(info, RunStatus::complete);
  const Report report = make_report(run);
  ASSERT_EQ(report.reproduce.size(), 2u);
  EXPECT_EQ(report.reproduce.front(),
            "halfscope train --model lenet --data mnist:mnist --init w.npz --seed 7 --loss-scale "
            "static:128 --lanes float32,mixed_float16.json --out run.hscope");
  for (const std::string& text : {report_html(report), report_markdown(report)}) {
    EXPECT_THAT(text, Not(HasSubstr("--force")));
    EXPECT_THAT(text, Not(HasSubstr("/data/me")));
  }
}

TEST(ReportCommands, LanesAreAskedForAsTheyWere) {
  RunInfo info = make_run(healthy_spec()).info();
  info.settings = {"--model", "lenet"};
  info.lane_settings = {"--lanes",      "float32,/data/me/x.json,mixed_float16",
                        "--fp32",       "conv*",
                        "--accumulate", "fp64"};
  RunView run(info, RunStatus::complete);
  run.add_step(0, {.step = 6, .loss = 1.0});
  const Report report = make_report(run);
  ASSERT_EQ(report.reproduce.size(), 3u);
  EXPECT_EQ(report.reproduce[0],
            "halfscope train --model lenet --lanes float32,x.json,mixed_float16 --fp32 'conv*' "
            "--accumulate fp64 --out run.hscope");
  EXPECT_THAT(report.reproduce[2], HasSubstr("# resumed from a checkpoint after step 6"));
}

// Only files lose their folders: names of outputs, dimensions and plans that are spelled out stay.
TEST(ReportCommands, NamesWithSlashesAreNoFiles) {
  RunInfo info = make_run(healthy_spec()).info();
  const std::string plan = R"({"name":"p","rules":[{"path":"/a/b","format":"fp16"},{"op":"Add"}]})";
  info.settings = {"--model",     "/w/net.onnx", "--loss",
                   "mse:/fc/out", "--data",      "/w/tr.npz,test=/w/te.npz",
                   "--dimension", "/x=4"};
  info.lane_settings = {"--lanes", "float32,cuda:/w/p.json," + plan};
  const Report report = make_report(RunView(info, RunStatus::complete));
  EXPECT_EQ(report.reproduce.at(0),
            "halfscope train --model net.onnx --loss mse:/fc/out --data tr.npz,test=te.npz "
            "--dimension /x=4 --lanes 'float32,cuda:p.json," +
                plan + "' --out run.hscope");
  info.inference = true;
  info.settings = {"/w/net.onnx", "--input", "ids=/w/x.npy"};
  EXPECT_THAT(make_report(RunView(info, RunStatus::complete)).reproduce.at(0),
              testing::StartsWith("halfscope run net.onnx --input ids=x.npy "));
}

TEST(ReportMarkdown, FitsAComment) {
  RunSpec spec = hot_spec();
  for (int i = 0; i < 20; ++i) spec.lanes.push_back({.name = "lane" + std::to_string(i)});
  spec.steps = 5;
  RunView many = make_run(spec);
  add_errors(many);
  many.set_proof(1, proof_json());
  const std::string md = report_markdown(make_report(many));
  EXPECT_LE(lines(md), 60u);
  EXPECT_THAT(md, HasSubstr("Keep conv2 and fc1 in fp32"));
  for (const RunView& run : {large_run(1000), full_run(), make_run(no_scale_spec()),
                             RunView(RunInfo{}, RunStatus::running)}) {
    EXPECT_LE(lines(report_markdown(make_report(run))), 60u);
    EXPECT_LE(lines(report_markdown_summary(make_report(run))), 12u);
  }
}

TEST(ReportMarkdown, HoldsVerdictCostProofAndErrors) {
  const std::string md = report_markdown(make_report(full_run()));
  EXPECT_THAT(md, HasSubstr("## HalfScope: cured"));
  EXPECT_THAT(md, HasSubstr("Cost: "));
  EXPECT_THAT(md, HasSubstr("Loss gap with the change: 0.41%. Tolerance: 1.2%"));
  EXPECT_THAT(md, HasSubstr("conv1.activation is the first tensor to differ from float32"));
  const std::string summary = report_markdown_summary(make_report(full_run()));
  EXPECT_THAT(summary, HasSubstr("conv2 overflows fp16"));
  EXPECT_THAT(summary, HasSubstr("\n- **What to do:** Keep conv2 and fc1 in fp32."));
  EXPECT_THAT(summary, HasSubstr("\n- **How sure:** high. With conv2 and fc1 in fp32"));
}

TEST(Report, IsTheSameEveryTime) {
  const RunView run = make_run(hot_spec());
  EXPECT_EQ(report_html(make_report(run)), report_html(make_report(run)));
  EXPECT_EQ(report_json(make_report(run)), report_json(make_report(run)));
}

TEST(Report, PagesToLookAt) {
  const char* directory = std::getenv("HALFSCOPE_REPORT_DIR");
  if (directory == nullptr) GTEST_SKIP() << "HALFSCOPE_REPORT_DIR is not set";
  RunSpec healthy = healthy_spec(), hot = hot_spec();
  layer_of(healthy, "fc2").gradient = -2.0;
  healthy.lanes[1].loss_scale = 65536.0;
  healthy.steps = hot.steps = 60;
  hot.lanes.push_back(
      {.name = "bfloat16", .format = kBf16, .storage = kBf16, .loss_scale = 1.0, .dynamic = false});
  std::map<std::string, RunView> pages{
      {"healthy", make_run(healthy)},
      {"hot", make_run(hot)},
      {"no_scale", make_run(no_scale_spec())},
      {"full", full_run()},
      {"large", large_run(1000)},
      {"stopped", with_status(full_run(), RunStatus::interrupted, 400)}};
  for (const auto& [name, run] : pages) {
    const Report report = make_report(run);
    const std::string base = std::string(directory) + "/" + name;
    std::ofstream(base + ".html") << report_html(report);
    std::ofstream(base + ".md") << report_markdown(report);
    std::ofstream(base + ".json") << report_json(report);
    std::ofstream(base + ".csv") << report_csv(report);
  }
}

}  // namespace
}  // namespace halfscope::test
