// SPDX-License-Identifier: MIT
// swamped_additions, and what reports say of the inside of sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/report/report.h"
#include "analysis/rules/rules.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<Finding> swamped_of(const RunView& run) {
  std::vector<Finding> found;
  for (const Finding& finding : run_rules(run)) {
    if (finding.rule == "swamped_additions") found.push_back(finding);
  }
  return found;
}

/// Adds sums of `terms` products in the mixed lane; `share` of them are swamped.
void add(RunView& run, const std::string& site, int64_t terms, double share, int64_t step = 3,
         const std::string& accumulation = "format") {
  SiteSums row{.step = step, .site = run.find_site(1, site).value()};
  row.layer = site.substr(0, site.find('.'));
  row.accumulation = parse_accumulation(accumulation).value();
  row.counts = {.sums = 100, .products = 100 * terms, .largest = 300.0};
  row.counts.swamped = static_cast<int64_t>(share * static_cast<double>(row.counts.products));
  run.add_sums(1, row);
}

TEST(SwampedAdditions, WarnsOfLongSumsThatLoseTheirTerms) {
  RunView run = make_run(healthy_spec());
  add(run, "fc1.activation", 500, 0.3);
  add(run, "conv1.weight_grad", 3000, 0.05, 3);
  add(run, "conv1.weight_grad", 3000, 0.55, 9);
  add(run, "conv2.activation", 5000, 0.09);
  add(run, "fc2.activation", 20, 0.9);
  const std::vector<Finding> found = swamped_of(run);
  ASSERT_EQ(found.size(), 1u);
  const Finding& finding = found[0];
  EXPECT_EQ(finding.lane, 1);
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_EQ(finding.site, "fc1.activation") << "the two samples of conv1 make 30%, and a bit less";
  EXPECT_EQ(finding.step, 3);
  EXPECT_NEAR(std::get<double>(finding.evidence.at("worst_swamped_share")), 0.3, 1e-9);
  EXPECT_EQ(std::get<double>(finding.evidence.at("layers")), 2.0);
  EXPECT_EQ(std::get<std::string>(finding.evidence.at("accumulation")), "format");
  EXPECT_THAT(finding.mechanism, HasSubstr("fc1 accumulates in too few bits: 30% of the non-zero"));
  EXPECT_THAT(finding.text, HasSubstr("conv1 and fc1 accumulate in too few bits: 30% of the "
                                      "non-zero products are too small"));
  EXPECT_THAT(finding.action.text, HasSubstr("format:promote=64"));
  EXPECT_THAT(finding.action.text, HasSubstr("format:rounding=stochastic"));
}

TEST(SwampedAdditions, IsSilentBelowTheThresholdAndWithoutDiagnostics) {
  EXPECT_TRUE(swamped_of(make_run(healthy_spec())).empty());
  RunView run = make_run(healthy_spec());
  add(run, "fc1.activation", 500, 0.099);
  add(run, "conv1.weight_grad", 63, 0.5);
  EXPECT_TRUE(swamped_of(run).empty());
}

TEST(SwampedAdditions, AdviceKeepsTheOptionsThatThereAre) {
  RunView run = make_run(healthy_spec());
  add(run, "fc1.activation", 500, 0.3, 3, "format:split-k=2");
  const std::vector<Finding> found = swamped_of(run);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].action.text, HasSubstr("\"format:promote=64,split-k=2\""));
  RunView promoted = make_run(healthy_spec());
  add(promoted, "fc1.activation", 500, 0.3, 3, "format:promote=512");
  EXPECT_THAT(swamped_of(promoted).at(0).action.text, HasSubstr("\"format:promote=64\""));
  RunView short_chains = make_run(healthy_spec());
  add(short_chains, "fc1.activation", 500, 0.3, 3, "format:promote=64");
  EXPECT_THAT(swamped_of(short_chains).at(0).action.text, Not(HasSubstr("promote")));
}

TEST(SwampedAdditions, NameTheLayerThatSums) {
  RunView run = make_run(healthy_spec());
  SiteSums row{.step = 3, .site = run.find_site(1, "pool1.activation_grad").value()};
  row.layer = "conv2";  // the layer whose input gradient this is
  row.accumulation = Accumulation::format;
  row.counts = {.sums = 100, .products = 50000, .swamped = 20000, .largest = 1.0};
  run.add_sums(1, row);
  const std::vector<Finding> found = swamped_of(run);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].layer, "conv2");
  EXPECT_EQ(found[0].site, "pool1.activation_grad");
  EXPECT_THAT(found[0].action.text, HasSubstr("Let conv2 "));
}

TEST(SumsInReports, ShowTheWorstInEveryForm) {
  RunView run = make_run(healthy_spec());
  for (const char* site : {"conv1.activation", "conv2.activation", "fc1.activation"}) {
    add(run, site, 500, 0.02);
  }
  add(run, "fc2.activation", 500, 0.005);
  add(run, "conv1.weight_grad", 3000, 0.25);
  const Report report = make_report(run);
  ASSERT_EQ(report.sums.size(), 5u);

  const nlohmann::json json = nlohmann::json::parse(report_json(report));
  ASSERT_EQ(json["sums"].size(), 5u);
  const auto worst =
      std::find_if(json["sums"].begin(), json["sums"].end(),
                   [](const nlohmann::json& sums) { return sums["site"] == "conv1.weight_grad"; });
  ASSERT_NE(worst, json["sums"].end());
  EXPECT_EQ((*worst)["swamped"], 75000);
  EXPECT_EQ((*worst)["products"], 300000);
  EXPECT_TRUE((*worst)["first_overflow"].is_null());

  const std::string markdown = report_markdown(report);
  EXPECT_THAT(markdown, HasSubstr("| `conv1.weight_grad` | format to fp16 | 25% | 0% |"));
  EXPECT_THAT(markdown, Not(HasSubstr("`fc2.activation` | format")));
  EXPECT_LE(std::count(markdown.begin(), markdown.end(), '\n'), 60);

  const std::string html = report_html(report);
  EXPECT_THAT(html, HasSubstr("id=\"sums\""));
  EXPECT_THAT(report_html(make_report(make_run(healthy_spec()))), Not(HasSubstr("id=\"sums\"")));
}

TEST(SumsInReports, OverflowComesFirst) {
  RunView run = make_run(healthy_spec());
  add(run, "conv1.weight_grad", 3000, 0.25);
  SiteSums row{.step = 1, .site = run.find_site(1, "fc1.activation").value()};
  row.accumulation = Accumulation::format;
  row.counts = {
      .sums = 10, .products = 500, .largest = 65504.0, .overflowed = 1, .first_overflow = 40};
  run.add_sums(1, row);
  const std::string markdown = report_markdown(make_report(run));
  const size_t overflow = markdown.find("| `fc1.activation` | format to fp16 | 0% | 10% |");
  EXPECT_NE(overflow, std::string::npos) << markdown;
  EXPECT_LT(overflow, markdown.find("| `conv1.weight_grad` | format"));
  EXPECT_THAT(report_html(make_report(run)), HasSubstr("first at term 40"));
}

}  // namespace
}  // namespace halfscope::test
