// SPDX-License-Identifier: MIT
// Reports of inference: output errors instead of a training table, quantized layers that are as
// they should be, masks that are meant to be infinite, and findings that say the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "analysis/report/report.h"
#include "analysis/report/report_parts.h"
#include "tests/report/harm_run.h"
#include "tests/report/html_fault.h"

namespace halfscope {
namespace {

using test::harm_inference;
using test::kFp16Lane;
using test::kReferenceLane;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Deviation output(const std::string& name, double error) {
  Deviation output;
  output.of = Deviation::Of::output;
  output.name = name;
  output.n = 1000;
  output.error = error;
  output.ratio = 1.0;
  output.spread = 1e-3;
  return output;
}

LaneReport lane(const std::string& name) {
  LaneReport lane;
  lane.name = name;
  return lane;
}

LayerReport layer(int lane, const std::string& path, const FloatFormat& read,
                  const FloatFormat& write, std::vector<SiteReport> sites) {
  LayerReport layer;
  layer.lane = lane;
  layer.path = path;
  layer.op = "Gemm";
  layer.read = read;
  layer.write = write;
  layer.sites = std::move(sites);
  return layer;
}

/// A tensor of 1000 values.
SiteReport tensor(const std::string& name, const FloatFormat& format, const std::string& scale) {
  SiteReport site;
  site.name = name;
  site.tensor = "activation";
  site.format = format;
  site.scale = scale;
  site.n = 1000;
  site.max_abs = 100.0;
  site.exponents = {{-3, 400}, {6, 600}};
  return site;
}

/// A run of float32 and a healthy lane, whose layer a reads int8 codes and b masks scores.
Report of_codes_and_a_mask() {
  Report report;
  report.run.inference = true;
  report.reference = 0;
  report.focus = 1;
  report.lanes = {lane("float32"), lane("int8-mse")};
  report.lanes[0].reference = true;
  SiteReport codes = tensor("a.operand", kInt8Format, "divide:0.1");
  codes.underflow = 63;
  codes.overflow = 1;
  codes.headroom_bits = -0.04;
  SiteReport result = tensor("a.activation", kFp32, "");
  result.headroom_bits = 120.0;
  SiteReport mask = tensor("b.activation", kFp16, "");
  mask.neg_inf = 484;
  report.layers = {layer(0, "b", kFp32, kFp32, {mask}),
                   layer(1, "a", kInt8Format, kFp32, {codes, result}),
                   layer(1, "b", kFp16, kFp16, {mask})};
  return report;
}

TEST(InferenceReport, LayersOfAHealthyLaneRaiseNoAlarm) {
  const Report report = of_codes_and_a_mask();
  const std::string html = report_html(report);
  EXPECT_EQ(test::html_fault(html), "");
  EXPECT_THAT(html, HasSubstr("ok in int8")) << "not in fp32, which it only writes";
  EXPECT_THAT(html, HasSubstr("120.0")) << "the room of its result, not of codes scaled to the end";
  EXPECT_THAT(html, Not(HasSubstr("class=\"n bad\""))) << "nothing in it does harm";
  EXPECT_THAT(html, HasSubstr("ok in fp16")) << "float32 has the mask's infinities, too";
  EXPECT_THAT(html, Not(HasSubstr("inherits NaN/Inf")));
  EXPECT_THAT(html, Not(HasSubstr("Nothing overflowed"))) << "a code was clipped";
  EXPECT_THAT(report_markdown(report), HasSubstr("| `int8-mse` | `a` | int8 | 0.10% |"))
      << "the format of the tensor that loses";
  Report harmed = report;
  harmed.lanes[1].state = Verdict::State::broken;
  EXPECT_THAT(report_html(harmed), HasSubstr("class=\"n bad\""));
  Report no_reference = report;
  no_reference.layers.erase(no_reference.layers.begin());
  EXPECT_THAT(report_html(no_reference), HasSubstr("inherits NaN/Inf"));
}

TEST(InferenceReport, ShowsTheErrorOfEachLanesOutputs) {
  RunView run = harm_inference({kReferenceLane, kFp16Lane});
  run.add_deviation(1, output("logits", 0.0042));
  run.add_deviation(1, output("boxes", 0.0021));
  const Report report = make_report(run);
  EXPECT_FALSE(report.lanes[0].output_error);
  ASSERT_TRUE(report.lanes[1].output_error);
  EXPECT_EQ(*report.lanes[1].output_error, 0.0042) << "the worst output";
  const std::string html = report_html(report), md = report_markdown(report);
  EXPECT_EQ(test::html_fault(html), "");
  EXPECT_THAT(html, HasSubstr("<dt>output error</dt><dd>0.42%</dd>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">Output error</th>"));
  for (const char* of_training : {"Loss gap", "First loss", "Skipped", "Last loss scale"}) {
    EXPECT_THAT(html, Not(HasSubstr(of_training)));
  }
  EXPECT_THAT(md, HasSubstr("| lane | verdict | batches | output error |"));
  EXPECT_THAT(md, HasSubstr("| `fp16` | healthy | 3 | 0.42% |"));
  EXPECT_THAT(report_markdown_summary(report), HasSubstr("output error 0.42%"));
  const nlohmann::json json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json.at("lanes").at(1).at("output_error"), 0.0042);
  EXPECT_TRUE(json.at("lanes").at(0).at("output_error").is_null());
}

TEST(InferenceReport, OutputsThatAreNotFiniteHaveNoSize) {
  RunView run = harm_inference({kReferenceLane, kFp16Lane});
  Deviation broken = output("logits", 0.1);
  broken.broken = 5;
  run.add_deviation(1, broken);
  const Report report = make_report(run);
  EXPECT_TRUE(std::isinf(report.lanes[1].output_error.value()));
  EXPECT_THAT(report_html(report), HasSubstr("<dt>output error</dt><dd>not finite</dd>"));
}

// Findings of one rule that differ in the tensor alone are one entry; others stay alone.
TEST(InferenceReport, AlikeFindingsAreShownOnce) {
  Report report;
  report.lanes.push_back(lane("fp8"));
  report.focus = 0;
  const auto add = [&](const std::string& rule, const std::string& site, Mechanism cause) {
    Finding finding;
    finding.rule = rule;
    finding.severity = Severity::warning;
    finding.site = finding.layer = site;
    finding.cause = cause;
    finding.text = site + " outgrows its scale.";
    report.findings.push_back(finding);
    report.finding_ids.push_back(rule + ":fp8:" + site);
  };
  for (const char* site : {"a.operand", "b.operand", "c.operand", "d.operand"}) {
    add("scaled_operands", site, Mechanism::clipped_blocks);
  }
  add("scaled_operands", "e.operand", Mechanism::rounding);
  add("forward_overflow", "f.activation", Mechanism::unknown);
  const std::vector<report::FindingGroup> groups = report::finding_groups(report);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_THAT(groups[0].lanes, ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(groups[1].lanes, ElementsAre(ElementsAre(4)));
  EXPECT_THAT(groups[2].lanes, ElementsAre(ElementsAre(5)));
  const std::string html = report_html(report), md = report_markdown(report);
  EXPECT_EQ(test::html_fault(html), "");
  EXPECT_THAT(html, HasSubstr("The same for 3 more tensors"));
  for (int i = 1; i <= 6; ++i) {  // links to each still lead somewhere
    EXPECT_THAT(html, HasSubstr("id=\"finding-" + std::to_string(i) + "\""));
  }
  EXPECT_THAT(md, HasSubstr("The same for b.operand, c.operand and d.operand."));
}

}  // namespace
}  // namespace halfscope
