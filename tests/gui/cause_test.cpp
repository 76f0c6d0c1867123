// SPDX-License-Identifier: MIT
// The cause above the recommendations: what it says, and what a click does.
#include <gtest/gtest.h>

#include "tests/gui/panel_fixture.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

using test::full_run;
using test::hot_spec;
using test::make_run;

PanelFixture panel_of(RunView run) {
  return {std::move(run), [](const Frame& frame) { draw_recommendations(frame); }, {1100, 420}};
}

TEST(Cause, AClickOnAHopSelectsItsLayer) {
  PanelFixture panel = panel_of(make_run(hot_spec()));
  panel.view().lane = "mixed_float16";
  panel.ui().frame(3);
  EXPECT_EQ(panel.ui().text("cause/text").find("conv2 overflows fp16"), 0u);
  ASSERT_EQ(panel.ui().text("cause/hop/0"), "conv2");
  ASSERT_TRUE(panel.ui().has("cause/hop/1"));
  const std::string next = panel.ui().text("cause/hop/1");
  EXPECT_NE(next, "conv2");
  panel.ui().click("cause/hop/1");
  EXPECT_EQ(panel.view().layer, next);
  EXPECT_EQ(panel.view().site, next + ".activation");
  panel.ui().click("cause/hop/0");
  EXPECT_EQ(panel.view().layer, "conv2");
}

TEST(Cause, TheFixIsOneSwitch) {
  PanelFixture panel = panel_of(full_run());  // with a proof of conv2 and fc1
  panel.view().lane = "mixed_float16";
  panel.ui().frame(3);
  EXPECT_EQ(panel.ui().text("cause/fix"), "Keep conv2 and fc1 in fp32.");
  EXPECT_EQ(panel.ui().text("cause/proof"), "proved by 4 trials");
  panel.ui().click("cause/fix/what_if");
  EXPECT_EQ(panel.view().edits.fp32_layers(), (std::vector<std::string>{"conv2", "fc1"}));
  panel.ui().click("cause/fix/what_if");
  EXPECT_TRUE(panel.view().edits.empty());
}

TEST(Cause, WhatWasNotTriedSaysSo) {
  PanelFixture panel = panel_of(make_run(hot_spec()));
  panel.view().lane = "mixed_float16";
  panel.ui().frame(3);
  EXPECT_EQ(panel.ui().text("cause/proof"), "not tried yet");
}

TEST(Cause, OtherLanesHaveNone) {
  PanelFixture panel = panel_of(full_run());
  panel.view().lane = "mixed_float16+fp32";
  panel.ui().frame(3);
  EXPECT_FALSE(panel.ui().has("cause/text"));
}

}  // namespace
}  // namespace halfscope::gui
