// SPDX-License-Identifier: MIT
// The panel of distances between lanes: it shows the sampled values, and a click selects.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "analysis/rules/text.h"
#include "gui/data/lane_errors.h"
#include "tests/gui/panel_fixture.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

/// Lane 1 of full_run against lane 0, sampled at steps 44 and 49, beyond the last trained step 39.
class Lanes : public ::testing::Test {
 protected:
  Lanes() : panel_(test::full_run(), draw_lanes) {
    view().lane = "mixed_float16";
    view().site = "conv2.activation";
    ui().frame(2);
  }
  UiDriver& ui() { return panel_.ui(); }
  ViewState& view() { return panel_.view(); }
  const RunView& run() const { return panel_.run().view(); }
  const SiteError& recorded(const std::string& site, int64_t step) {
    const int order = run().find_site(1, site).value();
    for (const SiteError& error : run().errors(1)) {
      if (error.site == order && error.step == step) return error;
    }
    throw std::runtime_error("no such error");
  }

  PanelFixture panel_;
};

TEST_F(Lanes, SaysWhatWasSampled) {
  const SiteError& error = recorded("conv2.activation", 44);
  EXPECT_EQ(ui().text("lanes/step"), "at step 44") << "the sample nearest to the last step, 39";
  EXPECT_EQ(ui().text("lanes/other"), "float32");
  EXPECT_EQ(ui().text("lanes/distances/equal"), std::to_string(error.ulps[0]));
  // 1 ulp of fp16 is up to 2^-10 of the value, 2 or 3 are up to 0.3%, 8 to 15 up to 1.5%.
  EXPECT_EQ(ui().text("lanes/distances/1e-3"), std::to_string(error.ulps[1]));
  EXPECT_EQ(ui().text("lanes/distances/1e-2"),
            std::to_string(error.ulps[2] + error.ulps[3] + error.ulps[4]));
  EXPECT_EQ(ui().text("lanes/distances/NaN/Inf"), "0");
  EXPECT_FALSE(ui().has("lanes/not_finite"));
  const double close = static_cast<double>(error.ulps[0] + error.ulps[1]);
  EXPECT_NE(ui().text("lanes/within").find(percent(close / static_cast<double>(error.n))),
            std::string::npos);
  EXPECT_NE(ui().text("lanes/within").find("at most 11 ulps"), std::string::npos);
  EXPECT_EQ(ui().text("lanes/total"), "0.02");
  EXPECT_EQ(ui().text("lanes/local"), "0.02");
  EXPECT_EQ(ui().text("lanes/inherited"), "4.2e-4");
}

TEST_F(Lanes, TheFirstThatDiffersIsSelectedByAClick) {
  EXPECT_EQ(ui().text("lanes/first"), "conv1.activation");
  ui().click("lanes/first");
  EXPECT_EQ(view().site, "conv1.activation");
  EXPECT_EQ(view().layer, "conv1");
  EXPECT_EQ(ui().text("lanes/flips").substr(0, 12), "3 sign flips");
}

TEST_F(Lanes, DepthListsLayersInOrderAndSelects) {
  const float conv1 = ui().item("lanes/depth/conv1").min.y;
  const float conv2 = ui().item("lanes/depth/conv2").min.y;
  const float fc2 = ui().item("lanes/depth/fc2").min.y;
  EXPECT_LT(conv1, conv2);
  EXPECT_LT(conv2, fc2);
  ui().click("lanes/depth/fc1");
  EXPECT_EQ(view().site, "fc1.activation");
  view().site = "fc1.weight_grad";
  ui().frame(2);
  ui().click("lanes/depth/conv2");
  EXPECT_NE(view().site.find("_grad"), std::string::npos) << "gradients stay with gradients";
  ui().hover("lanes/depth/fc1");
  EXPECT_EQ(view().hovered_layer, "fc1");
}

TEST_F(Lanes, WhatWasNotComparedIsSaid) {
  view().site = "conv2.weight";
  ui().frame(2);
  EXPECT_NE(ui().text("lanes/empty").find("conv2.weight was not compared"), std::string::npos);
  EXPECT_TRUE(ui().has("lanes/depth/conv1"));
  view().site.clear();
  ui().frame(2);
  EXPECT_NE(ui().text("lanes/empty").find("Select"), std::string::npos);
}

TEST_F(Lanes, FromTheReferenceItIsOneClickToTheLaneThatWasCompared) {
  view().lane = "float32";
  ui().frame(2);
  EXPECT_NE(ui().text("lanes/empty").find("others were compared with"), std::string::npos);
  view().lane = "mixed_float16+fp32";
  ui().frame(2);
  EXPECT_NE(ui().text("lanes/empty").find("not compared with another"), std::string::npos);
  ui().click("lanes/look");
  EXPECT_EQ(view().lane, "mixed_float16");
  EXPECT_TRUE(ui().has("lanes/within"));
}

TEST_F(Lanes, NothingIsCutAtTheNarrowest) {
  PanelFixture narrow(test::full_run(), draw_lanes, {360, 760});
  narrow.view() = view();
  narrow.ui().frame(3);
  for (const auto& [path, item] : narrow.ui().tracker().items()) {
    EXPECT_LE(item.max.x, 360.0f) << path;
  }
}

TEST(LanesEmpty, RunsWithoutSamplesSayHowToGetThem) {
  PanelFixture panel(test::make_run(test::healthy_spec()), draw_lanes);
  panel.ui().frame(2);
  EXPECT_NE(panel.ui().text("lanes/empty").find("--errors-every"), std::string::npos);

  test::RunSpec spec = test::healthy_spec();
  spec.lanes.resize(1);
  PanelFixture alone(test::make_run(spec), draw_lanes);
  alone.ui().frame(2);
  EXPECT_NE(alone.ui().text("lanes/empty").find("--lanes"), std::string::npos);

  PanelFixture nothing(RunView(RunInfo{}, RunStatus::running), draw_lanes);
  nothing.ui().frame(2);
  EXPECT_NE(nothing.ui().text("lanes/empty").find("no lanes"), std::string::npos);
}

TEST(LaneErrors, TheNearestSampleOfTwoTheEarlier) {
  const RunView run = test::full_run();
  EXPECT_EQ(LaneErrors::others(run, 1), std::vector<int>{0});
  EXPECT_TRUE(LaneErrors::others(run, 0).empty());
  const auto step = [&](int64_t at) { return LaneErrors::nearest(run, 1, 0, at)->step(); };
  EXPECT_EQ(step(-1), 44);
  EXPECT_EQ(step(46), 44);
  EXPECT_EQ(step(47), 49);
  EXPECT_EQ(step(1000), 49);
  EXPECT_FALSE(LaneErrors::nearest(run, 1, 2, 44)) << "never compared";
  EXPECT_FALSE(LaneErrors::nearest(run, 0, 1, 44));
}

TEST(LaneErrors, AKernelOfTheLanesOwnIsHeldAgainstTheEmulator) {
  RunView run = test::full_run();
  const int site = *run.find_site(1, "conv2.activation");
  KernelCheck check{.step = 44, .site = site, .n = 200};
  EXPECT_EQ(kernel_text(check), "matches the emulator bit for bit");
  EXPECT_FALSE(is_kernel_fault(check));
  check.differing = 2;
  check.worst = 0;
  EXPECT_TRUE(is_kernel_fault(check)) << "not of a library";
  check.kernel = "a library";
  check.order = "tensor-core:h100";
  check.sampled = 100;
  check.explained = 99;
  EXPECT_EQ(kernel_text(check), "99% match the emulator bit for bit, 99% explained");
  EXPECT_FALSE(is_kernel_fault(check));
  run.add_kernel(1, check);
  check.step = 49;
  check.beyond = 1;
  EXPECT_EQ(kernel_text(check),
            "99% match the emulator bit for bit, 0.50% match no summation order");
  EXPECT_TRUE(is_kernel_fault(check));
  run.add_kernel(1, check);
  EXPECT_EQ(kernel_check(run, 1, site, 46)->step, 44);
  EXPECT_EQ(kernel_check(run, 1, site, 1000)->step, 49);
  EXPECT_EQ(kernel_check(run, 1, site + 1, 44), nullptr);
  PanelFixture panel(std::move(run), draw_lanes);
  panel.view().lane = "mixed_float16";
  panel.view().site = "conv2.activation";
  panel.ui().frame(3);
  EXPECT_EQ(panel.ui().text("lanes/kernel"),
            "Kernel: 99% match the emulator bit for bit, 99% explained");
  panel.view().site = "conv1.activation";
  panel.ui().frame(3);
  EXPECT_FALSE(panel.ui().has("lanes/kernel"));
}

TEST(LaneErrors, NotMeasuredAndNotFinite) {
  SiteError error;
  EXPECT_TRUE(std::isnan(local_error(error)));
  error.local_fp32 = 0.5;
  EXPECT_EQ(local_error(error), 0.5);
  error.local_fp64 = 0.25;
  EXPECT_EQ(local_error(error), 0.25);

  // An all-NaN tensor is drawn, too.
  RunView run = test::make_run(test::healthy_spec());
  const int site = *run.find_site(1, "conv1.activation");
  run.add_error(1, {.step = 3,
                    .site = site,
                    .other_lane = 0,
                    .other_site = *run.find_site(0, "conv1.activation"),
                    .n = 4,
                    .differing = 4,
                    .total = std::numeric_limits<double>::quiet_NaN(),
                    .max_ulps = std::numeric_limits<double>::infinity()});
  PanelFixture panel(std::move(run), draw_lanes);
  panel.view().lane = "mixed_float16";
  panel.view().site = "conv1.activation";
  panel.ui().frame(3);
  EXPECT_EQ(panel.ui().text("lanes/total"), "NaN");
  EXPECT_EQ(panel.ui().text("lanes/local"), "-");
}

/// A tensor that is one quarter NaN in the lane, and the same tensor kept in fp32 in another lane,
/// which differs by 1e-4: the first looks worse in every picture.
TEST(LaneErrors, ABrokenTensorLooksWorseThanACuredOne) {
  RunView run = test::make_run(test::healthy_spec());
  const auto site_of = [&run](const char* name) { return *run.find_site(1, name); };
  SiteError broken{.step = 3, .site = site_of("conv1.activation"), .other_lane = 0};
  broken.n = 512;
  broken.ulps[0] = 384;
  broken.ulps.back() = broken.differing = 128;
  broken.total = 0.0;
  run.add_error(1, broken);
  SiteError finite{.step = 3, .site = site_of("conv2.activation"), .other_lane = 0};
  finite.n = finite.differing = finite.ulps[1] = 512;
  finite.total = 4e-4;
  run.add_error(1, finite);
  PanelFixture panel(std::move(run), draw_lanes);
  panel.view().lane = "mixed_float16";
  panel.view().site = "conv1.activation";
  panel.ui().frame(3);
  EXPECT_EQ(panel.ui().text("lanes/distances/NaN/Inf"), "128");
  EXPECT_EQ(panel.ui().text("lanes/not_finite"),
            "25% of all values are NaN or Inf in one lane only");
  EXPECT_EQ(panel.ui().text("lanes/depth/conv1"), "25% NaN/Inf");
  EXPECT_EQ(panel.ui().text("lanes/depth/conv2"), "4.0e-4");
}

}  // namespace
}  // namespace halfscope::gui
