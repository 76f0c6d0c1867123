// SPDX-License-Identifier: MIT
// Gates on runs whose faults are known by construction. Expected numbers come from the run's own
// counters, or are set by the test.
#include "analysis/gate/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/rules/rules.h"
#include "core/error.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using GateTestJson = nlohmann::ordered_json;
using State = GateCheck::State;

Gate gate_of(const std::string& rules, const std::string& more = "") {
  return parse_gate(R"({"schema": "halfscope.gate/1", )" + more + R"("rules": [)" + rules + "]}",
                    "ci/gate.json");
}

GateResult check(const RunView& run, const Gate& gate) {
  GateResult result = check_gate(gate, run, run_rules(run));
  result.run = "run.hscope";
  return result;
}

GateResult against(const RunView& run, const RunView& old, const Gate& gate) {
  GateResult result = check(run, gate);
  result.baseline = "old.hscope";
  compare_with_baseline(result, old, run_rules(old));
  return result;
}

std::vector<std::string> sites_in(const GateResult& result, State state) {
  std::vector<std::string> sites;
  for (const GateCheck& each : result.checks) {
    if (each.state == state) sites.push_back(each.site);
  }
  return sites;
}

/// Returns the error of a gate as "WHAT | HINT"; "" if it is valid.
std::string error_of(const std::string& rules, const std::string& more = "") {
  try {
    gate_of(rules, more);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return std::string(error.what()) + " | " + error.hint();
  }
  return "";
}

std::string mismatch_of(const RunView& run, const std::string& rule) {
  try {
    check(run, gate_of(rule));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return std::string(error.what()) + " | " + error.hint();
  }
  return "";
}

TEST(Gate, NamesTheTensorThatOverflows) {
  const RunView run = make_run(hot_spec());
  const GateResult result =
      check(run, gate_of(R"({"name": "forward", "role": "activation", "overflow": 0.001})"));
  // conv2 was made to overflow; count it here without the gate.
  const int site = run.find_site(1, "conv2.activation").value();
  const TensorStats& total = run.total(1, site);
  const double share = static_cast<double>(total.overflow) / static_cast<double>(total.n);
  ASSERT_GT(share, 0.01);
  EXPECT_FALSE(result.passed());
  EXPECT_EQ(sites_in(result, State::failed).front(), "conv2.activation");
  const GateCheck& first = *std::find_if(result.checks.begin(), result.checks.end(),
                                         [](const GateCheck& each) { return !each.text.empty(); });
  EXPECT_EQ(first.layer, "conv2");
  EXPECT_DOUBLE_EQ(first.value, share);
  EXPECT_EQ(first.limit, 0.001);
  EXPECT_THAT(gate_text(result), HasSubstr("fail: forward: mixed_float16: conv2.activation: "));
  for (const GateCheck& each : result.checks) EXPECT_EQ(result.lane_of(each), "mixed_float16");
}

TEST(Gate, PassesAtTheLimitAndFailsBeyondIt) {
  const RunView run = make_run(hot_spec());
  const TensorStats& total = run.total(1, run.find_site(1, "conv2.activation").value());
  const double share = static_cast<double>(total.overflow) / static_cast<double>(total.n);
  const auto failures = [&](double limit) {
    const GateTestJson rule{{"path", "conv2"}, {"role", "activation"}, {"overflow", limit}};
    return sites_in(check(run, gate_of(rule.dump())), State::failed).size();
  };
  EXPECT_EQ(failures(share), 0u);
  EXPECT_EQ(failures(std::nextafter(share, 0.0)), 1u);
}

TEST(Gate, SkippedStepsAreAShareOfTheLanesSteps) {
  RunInfo info;
  info.lanes.emplace_back().name = "half";
  RunView run(info, RunStatus::complete);
  for (int64_t step = 0; step < 8; ++step) run.add_step(0, {.step = step, .skipped = step < 2});
  const auto passes = [&](const char* limit) {
    return check(run, gate_of(R"({"lane": "h*", "skipped_steps": )" + std::string(limit) + "}"))
        .passed();
  };
  EXPECT_TRUE(passes("0.25"));
  EXPECT_FALSE(passes("0.2499"));
}

/// Returns a run of float32 and a lane `half` in fp16, without steps.
RunView two_lanes() {
  RunInfo info;
  info.lanes.resize(2);
  info.lanes[0].name = "float32";
  info.lanes[0].backend = info.lanes[1].backend = "emulated";
  info.lanes[1].name = "half";
  LayerInfo& layer = info.lanes[1].layers.emplace_back();
  layer.path = "fc";
  layer.op = "Gemm";
  layer.read = layer.write = kFp16;
  return RunView(info, RunStatus::complete);
}

TEST(Gate, OtherScoresHaveLimitsToo) {
  RunView run = two_lanes();
  const auto result = [&](const char* limit) {
    return check(run, gate_of(R"({"lane": "half", )" + std::string(limit) + "}")).checks.at(0);
  };
  run.add_eval(0, {.step = 9, .loss = 0.3, .accuracy = 0.75, .auc = 0.875});
  run.add_eval(1, {.step = 9, .loss = 0.3, .accuracy = 0.75, .auc = 0.75});
  EXPECT_EQ(result(R"("auc_drop": 0.125)").state, State::passed);
  EXPECT_EQ(result(R"("auc_drop": 0.12)").state, State::failed);
  EXPECT_EQ(result(R"("auc_drop": 0.1)").text,
            "AUC 0.7500 instead of 0.8750 in float32: 0.125 less (limit 0.1)");
  EXPECT_EQ(result(R"("mean_iou_drop": 0.1)").text,
            "mean_iou_drop is not measured: float32 has no mIoU");
  run.add_eval(0, {.step = 9, .loss = 0.3, .accuracy = 0.75, .auc = 0.95002});
  run.add_eval(1, {.step = 9, .loss = 0.3, .accuracy = 0.75, .auc = 0.95001});
  EXPECT_EQ(result(R"("auc_drop": 0)").text,
            "AUC 0.950010 instead of 0.950020 in float32: 1e-5 less (limit 0)");
  // A lane whose scores are NaN fails, whatever a gate does about numbers that are missing.
  run.add_eval(1, {.step = 9, .loss = 0.3, .accuracy = 0.75});
  EXPECT_EQ(result(R"("auc_drop": 1)").state, State::failed);
  EXPECT_EQ(result(R"("auc_drop": 1)").text,
            "no AUC, because results are NaN or infinite; float32 has 0.9500");
  run.add_eval(0, {.step = 10, .loss = 0.3, .accuracy = 0.75, .mean_iou = 0.5});
  run.add_eval(1, {.step = 10, .loss = 0.3, .accuracy = 0.75, .mean_iou = 0.25});
  EXPECT_EQ(result(R"("mean_iou_drop": 0.2)").text,
            "mIoU 25% instead of 50% in float32: 25 points less (limit 20)");
  EXPECT_EQ(result(R"("mean_iou_drop": 0.25)").state, State::passed);
}

TEST(Gate, AccuracyIsComparedWithTheReferences) {
  RunView run = two_lanes();
  const auto state = [&](const char* limit) {
    const std::string rule = R"({"lane": "half", "accuracy_drop": )" + std::string(limit) + "}";
    return check(run, gate_of(rule)).checks.at(0);
  };
  run.add_eval(0, {.step = 9, .loss = 0.3, .accuracy = 0.75});
  EXPECT_EQ(state("1").state, State::failed) << "the lane has no evaluation";
  run.add_eval(1, {.step = 8, .loss = 0.3, .accuracy = 0.75});
  EXPECT_EQ(state("1").state, State::failed) << "of another step";
  run.add_eval(1, {.step = 9, .loss = 0.4, .accuracy = 0.625});
  EXPECT_EQ(state("0.125").state, State::passed);
  EXPECT_EQ(state("0.1249").state, State::failed);
  EXPECT_EQ(state("0.1").text,
            "accuracy 62.5% instead of 75% in float32: 12.5 points less (limit 10)");
  EXPECT_DOUBLE_EQ(state("0.1").value, 0.125);
  run.add_eval(0, {.step = 9, .loss = 0.3, .accuracy = 0.675});
  run.add_eval(1, {.step = 9, .loss = 0.4, .accuracy = 0.6725});
  EXPECT_EQ(state("0.0025").state, State::passed) << "a limit may be reached";
  run.add_eval(0, {.step = 10, .loss = 0.3, .accuracy = 0.5});
  run.add_eval(1, {.step = 10, .loss = 0.3, .accuracy = 0.625});
  EXPECT_EQ(state("0").state, State::passed) << "better than the reference";
}

TEST(Gate, TheDropOfTheBaselineIsWrittenLikeADrop) {
  const auto run_with = [](double accuracy, double auc) {
    RunView run = two_lanes();
    run.add_eval(0, {.step = 9, .loss = 0.3, .accuracy = 0.75, .auc = 0.75});
    run.add_eval(1, {.step = 9, .loss = 0.3, .accuracy = accuracy, .auc = auc});
    return run;
  };
  const Gate gate = gate_of(R"({"lane": "half", "accuracy_drop": 0.01, "auc_drop": 0.01})");
  const std::string text = gate_text(against(run_with(0.5, 0.5), run_with(0.75, 0.625), gate));
  EXPECT_THAT(text, HasSubstr("25 points less (limit 1); 0 points less in the baseline\n"));
  EXPECT_THAT(text, HasSubstr("0.25 less (limit 0.01); 0.125 less in the baseline\n"));
}

TEST(Gate, DistancesAreThoseFromTheReference) {
  RunView run = make_run(healthy_spec());
  add_errors(run);
  double ulps = 0.0, error = 0.0;
  for (const SiteError& each : run.errors(1)) {
    if (run.lane(1).sites[static_cast<size_t>(each.site)].name() != "conv2.activation") continue;
    ulps = std::fmax(ulps, each.max_ulps);
    error = std::fmax(error, each.total);
  }
  ASSERT_GT(error, 0.0);
  const auto failed = [&](const char* measure, double limit) {
    const GateTestJson rule{{"path", "conv2"}, {"role", "activation"}, {measure, limit}};
    return !check(run, gate_of(rule.dump())).passed();
  };
  EXPECT_FALSE(failed("error", error));
  EXPECT_TRUE(failed("error", std::nextafter(error, 0.0)));
  EXPECT_FALSE(failed("ulps", ulps));
  if (ulps > 0.0) {
    EXPECT_TRUE(failed("ulps", std::nextafter(ulps, 0.0)));
  }
}

TEST(Gate, AnElementThatIsNotFiniteIsInfinitelyFar) {
  RunView run = make_run(healthy_spec());
  const int site = run.find_site(1, "conv1.activation").value();
  SiteError error{.step = 4, .site = site, .other_lane = 0, .other_site = site, .n = 8};
  error.ulps[0] = 7;
  error.ulps.back() = 1;
  run.add_error(1, error);
  const GateResult result =
      check(run, gate_of(R"({"path": "conv1", "role": "activation", "ulps": 1e9, "error": 1e9})"));
  EXPECT_THAT(sites_in(result, State::failed), ElementsAre("conv1.activation", "conv1.activation"));
}

TEST(Gate, WhatWasNotMeasuredFailsUnlessTheGateSaysOtherwise) {
  const RunView run = make_run(healthy_spec());  // without comparisons
  const std::string rule = R"({"path": "conv2", "role": "activation", "error": 0.5})";
  const GateResult strict = check(run, gate_of(rule));
  EXPECT_FALSE(strict.passed());
  EXPECT_THAT(gate_text(strict), HasSubstr("error is not measured: the tensor was never compared"));
  const GateResult lenient = check(run, gate_of(rule, R"("missing": "pass", )"));
  EXPECT_TRUE(lenient.passed());
  EXPECT_THAT(gate_text(lenient), HasSubstr("1 not measured"));

  RunView died = make_run(healthy_spec());
  died.set_status(RunStatus::died);
  EXPECT_FALSE(check(died, gate_of(R"({"overflow": 1})")).passed());
  RunView lost = make_run(healthy_spec());
  lost.set_lost(1, {.step = 3, .why = "out of memory"});
  const GateResult result = check(lost, gate_of(R"({"overflow": 1})"));
  EXPECT_THAT(gate_text(result), HasSubstr("the lane failed at step 3: out of memory"));
}

TEST(Gate, FindingsFailBySeverityAndByRule) {
  const RunView run = make_run(hot_spec());
  const std::vector<Finding> findings = run_rules(run);
  size_t errors = 0, overflows = 0;
  for (const Finding& finding : findings) {
    errors += finding.lane == 1 && finding.severity == Severity::error;
    overflows += finding.rule == "forward_overflow" && finding.severity >= Severity::warning;
  }
  ASSERT_GT(overflows, 0u);
  const auto failed = [&](const char* rule) {
    return sites_in(check(run, gate_of(rule)), State::failed).size();
  };
  EXPECT_EQ(failed(R"({"fail_on": "error"})"), errors);
  EXPECT_EQ(failed(R"({"findings": ["forward_overflow"]})"), overflows);
  EXPECT_EQ(failed(R"({"findings": ["forward_overflow"], "path": "fc2"})"), 0u);
  EXPECT_EQ(failed(R"({"findings": ["forward_overflow"], "role": "weight_grad"})"), 0u);
  EXPECT_TRUE(check(make_run(healthy_spec()), gate_of(R"({"fail_on": "warning"})")).passed());
}

TEST(Gate, OnlyNewAndWorseViolationsFailAgainstABaseline) {
  const Gate gate = gate_of(R"({"role": "activation", "overflow": 0.001})");
  const RunView hot = make_run(hot_spec());
  const GateResult same = against(hot, hot, gate);
  EXPECT_TRUE(same.passed());
  EXPECT_EQ(sites_in(same, State::known), sites_in(check(hot, gate), State::failed));
  EXPECT_THAT(gate_text(same), HasSubstr("known: rule 1: mixed_float16: conv2.activation"));

  EXPECT_EQ(sites_in(against(hot, make_run(healthy_spec()), gate), State::failed),
            sites_in(check(hot, gate), State::failed));

  RunSpec hotter = hot_spec();
  layer_of(hotter, "conv2").activation += 0.5;
  const RunView worse = make_run(hotter);
  EXPECT_THAT(sites_in(against(worse, hot, gate), State::failed),
              testing::Contains("conv2.activation"));
  EXPECT_THAT(gate_text(against(worse, hot, gate)), HasSubstr(" in the baseline"));
  EXPECT_TRUE(against(hot, worse, gate).passed()) << "smaller than in the baseline";
  const Gate patient =
      gate_of(R"({"role": "activation", "overflow": 0.001})", R"("tolerance": 100, )");
  EXPECT_TRUE(against(worse, hot, patient).passed());
}

TEST(Gate, AFindingThatGetsWorseFails) {
  RunView run = make_run(healthy_spec());
  std::vector<Finding> findings{{.rule = "lost_updates",
                                 .lane = 1,
                                 .severity = Severity::warning,
                                 .site = "fc1.weight_update",
                                 .layer = "fc1"}};
  const Gate gate = gate_of(R"({"fail_on": "warning"})");
  const auto passes = [&](Severity before, Severity now) {
    findings[0].severity = now;
    GateResult result = check_gate(gate, run, findings);
    findings[0].severity = before;
    compare_with_baseline(result, run, findings);
    return result.passed();
  };
  EXPECT_TRUE(passes(Severity::warning, Severity::warning));
  EXPECT_TRUE(passes(Severity::error, Severity::warning));
  EXPECT_FALSE(passes(Severity::warning, Severity::error));
  EXPECT_FALSE(passes(Severity::info, Severity::warning));
}

TEST(Gate, ARuleThatMatchesNothingIsAnError) {
  const RunView run = make_run(healthy_spec());
  EXPECT_THAT(mismatch_of(run, R"({"path": "conv9", "overflow": 0})"),
              HasSubstr("no layer is called \"conv9\" | did you mean conv1?"));
  EXPECT_THAT(mismatch_of(run, R"({"lane": "mixed_float61", "overflow": 0})"),
              HasSubstr("no lane \"mixed_float61\" | did you mean mixed_float16?"));
  EXPECT_THAT(mismatch_of(run, R"({"path": "relu1", "role": "weight", "overflow": 0})"),
              HasSubstr("its layers have no such tensor"));
  EXPECT_THAT(mismatch_of(run, R"({"path": "relu1", "lost_updates": 0})"),
              HasSubstr("its layers have no such tensor"));
  EXPECT_EQ(mismatch_of(run, R"({"fail_on": "error", "path": "relu1"})"), "");
}

TEST(Gate, MistakesInTheFileAreNamed) {
  EXPECT_THAT(error_of(R"({"overflw": 0})"),
              HasSubstr("unknown key \"overflw\" in rules[0] | did you mean overflow?"));
  EXPECT_THAT(error_of(R"({"overflow": 0})", R"("missng": "pass", )"),
              HasSubstr("unknown key \"missng\" in the gate | did you mean missing?"));
  EXPECT_THAT(error_of(R"({"role": "weight_grads", "overflow": 0})"),
              HasSubstr("did you mean weight_grad?"));
  EXPECT_THAT(error_of(R"({"findings": ["forward_overflows"]})"),
              HasSubstr("did you mean forward_overflow?"));
  EXPECT_THAT(error_of(R"({"fail_on": "eror"})"), HasSubstr("did you mean error?"));
  EXPECT_THAT(error_of(R"({"overflow": 2})"), HasSubstr("must be a share from 0 to 1"));
  EXPECT_THAT(error_of(R"({"ulps": -1})"), HasSubstr("must be a number, 0 or more"));
  EXPECT_THAT(error_of(R"({"ulps": "1"})"), HasSubstr("must be a number, 0 or more"));
  EXPECT_THAT(error_of(R"({"path": "conv1"})"), HasSubstr("sets no limit"));
  EXPECT_THAT(error_of(R"({"path": "conv1", "skipped_steps": 0})"), HasSubstr("whole lane"));
  EXPECT_THAT(error_of(R"({"role": "weight", "accuracy_drop": 0})"),
              HasSubstr("accuracy_drop is about a whole lane"));
  EXPECT_THAT(error_of(R"({"role": "weight", "lost_updates": 0})"), HasSubstr("only updates"));
  EXPECT_THAT(error_of(R"({"role": "update", "ulps": 0})"), HasSubstr("not compared"));
  EXPECT_THAT(error_of(R"({"overflow": 0, "overflow": 1})"), HasSubstr("given twice"));
  EXPECT_THAT(error_of(R"({"name": "a", "ulps": 0}, {"name": "a", "ulps": 1})"),
              HasSubstr("two rules have the name \"a\""));
  EXPECT_THAT(error_of(""), HasSubstr("the rules are missing"));
  EXPECT_THAT(error_of("{"), HasSubstr("'ci/gate.json' is not valid JSON: line 1, column "));
  EXPECT_THROW(parse_gate(R"({"schema": "halfscope.gate/2", "rules": [{"ulps": 1}]})", "g"), Error);
  EXPECT_THROW(parse_gate("[]", "g"), Error);
  EXPECT_THROW(load_gate("/no/such/gate.json"), Error);
}

TEST(Gate, SarifHasPlacesAndStableFingerprints) {
  const Gate gate = parse_gate(
      "{\"schema\": \"halfscope.gate/1\",\n \"rules\": [\n  {\"name\": \"{[\", \"role\": "
      "\"weight\", \"underflow\": 1},\n"
      "  {\"role\": \"activation\",\n   \"overflow\": 0.001}]}",
      "ci/my gate.json");
  const RunView run = make_run(hot_spec());
  const GateResult result = against(run, make_run(healthy_spec()), gate);
  const GateTestJson sarif = GateTestJson::parse(gate_sarif(result));
  const GateTestJson& results = sarif["runs"][0]["results"];
  ASSERT_EQ(results.size(), static_cast<size_t>(result.count(State::failed)));
  const GateTestJson& first = results[0];
  EXPECT_EQ(first["ruleId"], "limit/overflow");
  EXPECT_EQ(first["level"], "error");
  EXPECT_EQ(first["baselineState"], "new");
  const GateTestJson& place = first["locations"][0];
  EXPECT_EQ(place["physicalLocation"]["artifactLocation"]["uri"], "ci/my%20gate.json");
  EXPECT_EQ(place["physicalLocation"]["region"]["startLine"], 4);
  EXPECT_EQ(place["logicalLocations"][0]["fullyQualifiedName"], "mixed_float16/conv2");
  std::set<std::string> prints;
  for (const GateTestJson& each : results) {
    prints.insert(each["partialFingerprints"]["halfscopeSite/v1"]);
  }
  EXPECT_EQ(prints.size(), results.size()) << "one per site";
  // Another value at the same place is the same alert.
  RunSpec hotter = hot_spec();
  layer_of(hotter, "conv2").activation += 0.5;
  const GateTestJson later = GateTestJson::parse(gate_sarif(check(make_run(hotter), gate)));
  EXPECT_EQ(later["runs"][0]["results"][0]["partialFingerprints"], first["partialFingerprints"]);
  EXPECT_NE(later["runs"][0]["results"][0]["message"], first["message"]);
}

TEST(Gate, JUnitHasACasePerRuleAndLayer) {
  const RunView run = make_run(hot_spec());
  const GateResult result =
      check(run, gate_of(R"({"name": "a<b", "overflow": 0.001, "underflow": 1})"));
  std::set<std::string> layers, failed;
  for (const GateCheck& each : result.checks) {
    layers.insert(each.layer);
    if (each.state == State::failed) failed.insert(each.layer);
  }
  const std::string xml = gate_junit(result);
  EXPECT_THAT(
      xml, HasSubstr("<testsuite name=\"mixed_float16\" tests=\"" + std::to_string(layers.size()) +
                     "\" failures=\"" + std::to_string(failed.size()) + "\""));
  EXPECT_THAT(xml, HasSubstr(R"(name="a&lt;b: conv2" classname="halfscope.mixed_float16")"));
  EXPECT_THAT(xml, HasSubstr(">conv2.activation: "));
  EXPECT_THAT(xml, Not(HasSubstr("testsuite name=\"float32\"")));
}

TEST(Gate, TheReportsJsonHasTheResult) {
  const GateResult result =
      check(make_run(hot_spec()), gate_of(R"({"role": "activation", "overflow": 0.001})"));
  const GateTestJson json = GateTestJson::parse(with_gate(R"({"a": 1, "gate": null})", result));
  EXPECT_EQ(json["a"], 1);
  EXPECT_EQ(json["gate"]["passed"], false);
  EXPECT_EQ(json["gate"]["results"].size(), json["gate"]["violations"]);
  EXPECT_EQ(json["gate"]["results"][0]["site"], "conv2.activation");
}

}  // namespace
}  // namespace halfscope::test
