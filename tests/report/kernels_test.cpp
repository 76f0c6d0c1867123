// SPDX-License-Identifier: MIT
// Reports and findings about kernels that were compared with the emulator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "analysis/report/report.h"
#include "analysis/rules/rules.h"
#include "tests/report/synthetic.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: runs of these tests
using testing::HasSubstr;
using testing::Not;

constexpr const char* kLibrary = "a library 1.2";

/// A healthy run whose second lane has different kernels: 16 of 1000 elements of conv1 are summed
/// in another order, and `explained` of 500 sampled ones are explained.
RunView checked_run(int64_t explained = 500, int64_t beyond = 0) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].name = "cuda:mixed_float16";
  spec.lanes[1].backend = "cuda";
  RunView run = make_run(spec);
  for (const int64_t step : {0, 4}) {
    for (const SiteInfo& site : run.lane(1).sites) {
      KernelCheck check{.step = step, .site = site.order, .n = 1000};
      if (site.name() == "conv1.activation") {
        check.kernel = kLibrary;
        check.beyond = step == 4 ? beyond : 0;
        check.differing = 16;
        check.max_ulps = step == 4 ? 3.0 : 1.0;
        check.worst = step == 4 ? 7 : 5;
        check.order = "tensor-core:h100";
        check.sampled = 500;
        check.explained = explained;
        check.unexplained = explained < 500 ? "results change" : "";
      }
      run.add_kernel(1, check);
    }
  }
  return run;
}

KernelCheck& check_of(std::vector<KernelCheck>& checks, const RunView& run,
                      const std::string& site) {
  checks.push_back({.step = 4, .site = run.find_site(1, site).value(), .n = 1000});
  return checks.back();
}

TEST(KernelReport, CountsOverTheSampledSteps) {
  const RunView run = checked_run();
  const Report report = make_report(run);
  ASSERT_EQ(report.kernels.size(), 1u) << "the other lane was not checked";
  const KernelReport& kernels = report.kernels[0];
  EXPECT_EQ(kernels.lane, 1);
  EXPECT_EQ(kernels.steps, (std::vector<int64_t>{0, 4}));
  ASSERT_EQ(kernels.sites.size(), run.lane(1).sites.size());
  const auto conv = std::find_if(kernels.sites.begin(), kernels.sites.end(),
                                 [](const auto& each) { return each.name == "conv1.activation"; });
  ASSERT_NE(conv, kernels.sites.end());
  EXPECT_EQ(conv->samples, 2);
  EXPECT_EQ(conv->n, 2000);
  EXPECT_EQ(conv->differing, 32);
  EXPECT_EQ(conv->max_ulps, 3.0);
  EXPECT_THAT(conv->worst, HasSubstr("7] at step 4"));
  EXPECT_EQ(conv->beyond, 0);
  EXPECT_EQ(conv->sampled, 1000);
  EXPECT_EQ(conv->explained, 1000);
  EXPECT_EQ(kernels.sites[0].beyond, std::nullopt);
}

TEST(KernelReport, SaysWhatItComesTo) {
  const std::string all = std::to_string(checked_run().lane(1).sites.size());
  const std::string explained = make_report(checked_run()).kernels[0].text;
  EXPECT_THAT(explained, HasSubstr(" of " + all + " tensors"));
  EXPECT_THAT(explained, HasSubstr("explains 100% of the sampled elements of the other one "
                                   "exactly: tensor-core:h100."));
  const std::string partly = make_report(checked_run(499)).kernels[0].text;
  EXPECT_THAT(partly, HasSubstr("explains 99.8%"));
  EXPECT_THAT(partly, Not(HasSubstr("no order of summation")));
  const std::string wrong = make_report(checked_run(400, 3)).kernels[0].text;
  EXPECT_THAT(wrong, HasSubstr("One has values that no order of summation explains."));
  EXPECT_THAT(wrong, Not(HasSubstr("the other one"))) << "it is the same one";
}

// The reported order is that of the step with the fewest explained elements, whatever happened
// between.
TEST(KernelReport, TellsTheOrderThatExplainsLeast) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].backend = "cuda";
  RunView run = make_run(spec);
  for (const auto& [step, explained, order] :
       {std::tuple(0, 50, "A"), std::tuple(1, 100, "B"), std::tuple(2, 60, "C")}) {
    KernelCheck check{.step = step, .site = 1, .n = 100, .differing = 9, .max_ulps = 1.0};
    check.worst = step;
    check.kernel = kLibrary;
    check.order = order;
    check.sampled = 100;
    check.explained = explained;
    if (step == 0) check.max_ulps = INFINITY;
    run.add_kernel(1, check);
  }
  const KernelSiteReport site = make_report(run).kernels.at(0).sites.at(0);
  EXPECT_EQ(site.order, "A");
  EXPECT_EQ(site.explained, 210);
  EXPECT_TRUE(std::isinf(site.max_ulps));
  EXPECT_THAT(site.worst, HasSubstr("at step 0")) << "not finite ones come first";
}

TEST(KernelReport, IsInEveryReport) {
  const Report report = make_report(checked_run(499));
  const std::string html = report_html(report);
  EXPECT_THAT(html, HasSubstr("id=\"kernels\""));
  EXPECT_THAT(html, HasSubstr(kLibrary));
  EXPECT_THAT(
      html,
      HasSubstr("99.8% at the worst step, by tensor-core:h100 (the kernel&#39;s own summation "
                "order was not found: results change)"));
  EXPECT_THAT(report_markdown(report), HasSubstr("Kernels of `cuda:mixed_float16`: "));
  const auto json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json["kernels"][0]["lane"], "cuda:mixed_float16");
  EXPECT_EQ(json["kernels"][0]["text"], report.kernels[0].text);
  // No kernel section if no kernel was checked.
  const Report other = make_report(make_run(healthy_spec()));
  EXPECT_THAT(report_html(other), Not(HasSubstr("id=\"kernels\"")));
  EXPECT_THAT(report_markdown(other), Not(HasSubstr("Kernels of")));
}

TEST(KernelReport, EqualKernelsNeedNoTable) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].backend = "cuda-own";
  RunView run = make_run(spec);
  run.add_kernel(1, {.step = 0, .site = 1, .n = 10});
  const Report report = make_report(run);
  EXPECT_EQ(report.kernels[0].text,
            "The only tensor has the same bits as the emulator's for the same operands.");
  EXPECT_THAT(report_html(report), Not(HasSubstr("Furthest")));
}

std::vector<Finding> faults_of(const RunView& run) {
  std::vector<Finding> faults;
  for (const Finding& finding : run_rules(run)) {
    if (finding.rule == "kernel_fault") faults.push_back(finding);
  }
  return faults;
}

TEST(KernelFault, AnOrderIsNoFault) {
  EXPECT_TRUE(faults_of(checked_run()).empty());
  EXPECT_TRUE(faults_of(checked_run(100)).empty()) << "unexplained, but within the bound";
}

TEST(KernelFault, WhatNoOrderExplainsIsTheKernels) {
  const std::vector<Finding> faults = faults_of(checked_run(400, 250));
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].severity, Severity::error);
  EXPECT_EQ(faults[0].site, "conv1.activation");
  EXPECT_EQ(faults[0].step, 4);
  EXPECT_EQ(std::get<double>(faults[0].evidence.at("elements")), 250.0);
  EXPECT_THAT(faults[0].text, HasSubstr("25% of the values of conv1.activation"));
  EXPECT_THAT(faults[0].text, HasSubstr("The cuda kernel is wrong here, not the format"));
  EXPECT_THAT(faults[0].action.text, HasSubstr("as cuda-own:mixed_float16"));
  EXPECT_THAT(faults[0].action.text, HasSubstr(kLibrary));
}

// In one of our kernels, a single different bit is a fault, but not one that breaks a training.
TEST(KernelFault, OtherBitsOfOurKernelsAreAWarning) {
  RunView run = checked_run();
  std::vector<KernelCheck> checks;
  KernelCheck& relu = check_of(checks, run, "relu1.activation");
  relu.step = 8;
  relu.differing = 1;
  relu.worst = 0;
  relu.max_ulps = 1.0;
  run.add_kernel(1, relu);
  std::vector<Finding> faults = faults_of(run);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].severity, Severity::warning);
  EXPECT_EQ(faults[0].site, "relu1.activation");
  EXPECT_THAT(faults[0].text, HasSubstr("by at most 1 ulp."));
  EXPECT_THAT(faults[0].action.text, HasSubstr("as emulated:mixed_float16"));
  // A value that is finite in only one of the two is more than that.
  RunView infinite = checked_run();
  relu.max_ulps = INFINITY;
  infinite.add_kernel(1, relu);
  faults = faults_of(infinite);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].severity, Severity::error);
  EXPECT_THAT(faults[0].text, HasSubstr("finite in only one of the two"));
  EXPECT_THAT(faults[0].action.text, HasSubstr("as emulated:mixed_float16"));
  // An error anywhere comes first, and says how many there are.
  KernelCheck& conv = check_of(checks, run, "conv2.activation");
  conv.step = 9;
  conv.differing = conv.beyond = 5;
  conv.worst = 0;
  conv.kernel = kLibrary;
  run.add_kernel(1, conv);
  faults = faults_of(run);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].severity, Severity::error);
  EXPECT_EQ(faults[0].site, "conv2.activation");
  EXPECT_EQ(std::get<double>(faults[0].evidence.at("tensors")), 2.0);
}

}  // namespace
}  // namespace halfscope
