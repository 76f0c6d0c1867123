// SPDX-License-Identifier: MIT
// The tabs of the float lab that are moved rather than typed into: bars dragged, balls dropped,
// formats built, arithmetic stepped through.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/gui/lab_window.h"

namespace halfscope::gui {
namespace {

class LabTabs : public LabWindow {
 protected:
  explicit LabTabs(ImVec2 size = {1380, 840}) : LabWindow(size) {}
};

TEST_F(LabTabs, BarsAreDragged) {
  ui.click("lab/tab/blocks");
  ui.click("lab/blocks/example/4");
  EXPECT_EQ(lab.blocks.values[0], -4.0f);
  EXPECT_EQ(ui.text("lab/blocks/bar/0"), "-4 ");
  const TrackedItem first = ui.item("lab/blocks/bar/5");
  const TrackedItem last = ui.item("lab/blocks/bar/8");
  // Down to the axis, and along it: every bar on the way becomes 0.
  ui.drag_from({first.center().x, first.min.y + 5}, {0, first.center().y - first.min.y - 5});
  EXPECT_NEAR(lab.blocks.values[5], 0.0f, 0.1f);
  EXPECT_EQ(lab.blocks.selected, 5);
  ui.drag_from(first.center(), {last.center().x - first.center().x, 0});
  EXPECT_NEAR(lab.blocks.values[8], 0.0f, 0.1f);
  EXPECT_EQ(lab.blocks.selected, 8);
  // An outlier moves the scale.
  const std::string before = ui.text("lab/blocks/scale/0");
  enter("lab/blocks/value", "100");
  EXPECT_EQ(lab.blocks.values[8], 100.0f);
  EXPECT_NE(ui.text("lab/blocks/scale/0"), before);
  EXPECT_EQ(ui.text("lab/blocks/scale/0"), "shared scale 2^4 = 16 (ue8m0 0x83)");
  ui.click("lab/blocks/halve");
  EXPECT_EQ(lab.blocks.values[8], 50.0f);
  ui.click("lab/blocks/negate");
  EXPECT_EQ(lab.blocks.values[8], -50.0f);
}

TEST_F(LabTabs, RulesDifferAtTheTop) {
  ui.click("lab/tab/blocks");
  ui.click("lab/blocks/example/3");  // the largest is 7.2
  EXPECT_EQ(ui.text("lab/blocks/bar/20"), "6 clipped");
  EXPECT_EQ(ui.text("lab/blocks/chart").substr(0, 10), "1 clipped,");
  ui.click("lab/blocks/rule/nearest");
  EXPECT_EQ(ui.text("lab/blocks/bar/20"), "8 ");
  EXPECT_NE(ui.text("lab/blocks/reason").find("which reaches 2^3"), std::string::npos);
  ui.click("lab/blocks/rule/ceil");
  EXPECT_EQ(ui.text("lab/blocks/bar/20"), "8 ");
  ui.click("lab/blocks/all/nvfp4");
  EXPECT_EQ(lab.blocks.format, "nvfp4");
  ui.frame(2);
  EXPECT_FALSE(ui.has("lab/blocks/rule/ceil")) << "nvfp4 rounds its scale to e4m3fn";
  EXPECT_NE(ui.text("lab/blocks/scale/1").find("block scale 448"), std::string::npos)
      << "the largest value of the tensor is in the second block";
  EXPECT_NE(ui.text("lab/blocks/tensor_scale").find("0.0026786"), std::string::npos)
      << "7.2 / (6 * 448)";
  lab.blocks.others = 10.0;
  ui.frame(2);
  EXPECT_NE(ui.text("lab/blocks/tensor_scale").find("2.7429"), std::string::npos);
  ui.click("lab/blocks/log");
  EXPECT_TRUE(lab.blocks.logarithmic);
}

TEST_F(LabTabs, BlocksOfSpecialValues) {
  ui.click("lab/tab/blocks");
  for (const char* text : {"nan", "inf", "0", "1e-45", "3.4e38"}) {
    enter("lab/blocks/value", text);
    for (const char* format : {"mxfp4", "nvfp4", "mxfp8_e5m2"}) {
      lab.blocks.format = format;
      lab.blocks.logarithmic = !lab.blocks.logarithmic;
      ui.frame(2);
    }
  }
  lab.blocks.values.fill(0.0f);
  ui.frame(3);
  EXPECT_NE(ui.text("lab/blocks/reason").find("All values are 0"), std::string::npos);
}

TEST_F(LabTabs, BallsFall) {
  ui.click("lab/tab/stochastic");
  EXPECT_EQ(ui.text("lab/drops/board"), "0 balls");
  EXPECT_FALSE(lab.moving);
  ui.click("lab/drops/one");
  EXPECT_TRUE(lab.moving) << "the window must draw on";
  ui.frame(90);
  EXPECT_EQ(ui.text("lab/drops/board"), "1 balls");
  EXPECT_FALSE(lab.moving);
  ui.click("lab/drops/many");
  ui.frame(60);
  EXPECT_LT(lab.drops.drops.count(), 1001) << "they take their time";
  EXPECT_GT(lab.drops.drops.count(), 10);
  ui.frame(200);
  EXPECT_EQ(ui.text("lab/drops/board"), "1001 balls");
  const int left = std::stoi(ui.text("lab/drops/left"));
  const int right = std::stoi(ui.text("lab/drops/right"));
  EXPECT_EQ(left + right, 1001);
  // 2048.75 goes up in 37.5% of the cases; a standard deviation of 1001 balls is 15.
  EXPECT_NEAR(right, 375, 60);
  EXPECT_NEAR(lab.drops.drops.mean(), 2048.75, 0.13);
  const int64_t away = lab.drops.drops.away();
  ui.click("lab/drops/again");
  EXPECT_EQ(ui.text("lab/drops/board"), "0 balls");
  lab.drops.seed = 1;
  lab.drops.value = "2048.75 ";
  ui.frame(1);
  ui.click("lab/drops/many");
  ui.click("lab/drops/one");
  ui.frame(250);
  EXPECT_EQ(lab.drops.drops.away(), away) << "the same seed, the same balls";
  enter("lab/drops/value", "-2048.75");
  ui.click("lab/drops/many");
  ui.frame(250);
  EXPECT_NEAR(std::stoi(ui.text("lab/drops/left")), 375, 60) << "away from zero is on the left";
  for (const char* hopeless : {"2048", "1e9", "nan", "x", "0"}) {
    enter("lab/drops/value", hopeless);
    EXPECT_TRUE(ui.has("lab/drops/problem")) << hopeless;
  }
}

TEST_F(LabTabs, OneNumberEverywhere) {
  ui.click("lab/tab/same_number");
  EXPECT_EQ(ui.text("lab/same/fp16"), "rounded");
  EXPECT_EQ(ui.text("lab/same/fp16/value"), "0.099975586");
  EXPECT_EQ(ui.text("lab/same/fp16/error"), "0.02%, 0.40 ulp");
  EXPECT_EQ(ui.text("lab/same/e2m1"), "underflow");
  EXPECT_EQ(ui.text("lab/same/e3m2/error"), "subnormal, 25%");
  const TrackedItem axis = ui.item("lab/same/axis");
  // The axis ends at 2^130: no format but saturating ones can store that.
  ui.click_at({axis.max.x - 1, axis.center().y});
  EXPECT_EQ(ui.text("lab/same/fp32"), "overflow");
  EXPECT_EQ(ui.text("lab/same/e2m1"), "saturates");
  ui.click("lab/same/bf16");
  EXPECT_EQ(lab.shown(), kBf16);
  enter("lab/entry", "1e-8");
  EXPECT_EQ(ui.text("lab/same/fp16"), "underflow");
  ui.drag("lab/shift", {60, 0});
  EXPECT_GT(lab.shift, 8.0);
  EXPECT_NE(ui.text("lab/same/fp16"), "underflow") << "the loss scale saves it";
  enter("lab/entry", "nan");
  EXPECT_EQ(ui.text("lab/same/fp16/error"), "special");
}

TEST_F(LabTabs, BuildsAFormat) {
  ui.click("lab/tab/builder");
  EXPECT_EQ(ui.text("lab/build/name"), "fp16");
  EXPECT_EQ(ui.text("lab/build/largest"), "65504");
  EXPECT_EQ(ui.text("lab/build/values"), "63,487 of 65,536 codes, 2,046 NaN");
  EXPECT_EQ(ui.text("lab/build/range"), "240.8 dB, 40.0 powers of two");
  lab.set_format(parse_format("e4m3").value());
  ui.frame(2);
  EXPECT_EQ(ui.text("lab/build/largest"), "240") << "IEEE e4m3";
  ui.click("lab/build/encoding/1");
  EXPECT_EQ(lab.shown(), kE4m3fn);
  EXPECT_EQ(ui.text("lab/build/largest"), "448");
  ui.click("lab/build/encoding/2");
  EXPECT_EQ(lab.shown(), kE4m3fnuz) << "with the usual bias of fnuz";
  ui.click("lab/build/encoding/3");
  EXPECT_EQ(ui.text("lab/build/values"), "255 of 256 codes");
  ui.click("lab/build/saturate");
  ui.click("lab/build/flush_out");
  EXPECT_EQ(ui.text("lab/build/name"), format_name(lab.shown()));
  EXPECT_EQ(parse_format(ui.text("lab/build/name")), lab.shown()) << "can be typed elsewhere";
  EXPECT_TRUE(lab.shown().flush_out);
  EXPECT_EQ(ui.text("lab/build/smallest"), "subnormals become 0");
  ui.drag("lab/build/exponent", {300, 0});
  EXPECT_EQ(lab.shown().exponent_bits, 8);
  ui.drag("lab/build/fraction", {-300, 0});
  EXPECT_EQ(lab.shown().mantissa_bits, 0);
  ui.drag("lab/build/exponent", {-300, 0});
  EXPECT_EQ(lab.shown().exponent_bits, 1);
  ui.click("lab/build/encoding/0");
  EXPECT_EQ(lab.shown().exponent_bits, 2) << "only finite formats have one exponent bit";
  EXPECT_TRUE(is_valid(lab.shown()));
  ui.click("lab/build/copy");
  EXPECT_EQ(ImGui::GetClipboardText(), format_name(lab.shown()));
}

TEST_F(LabTabs, EveryFormatCanBeBuilt) {
  lab.tab = LabTab::builder;
  for (const char* format :
       {"fp32", "e8m22fnb128", "e2m0finite", "e1m6", "e5m10fn", "e5m10b3:sat:ftz", "e8m0b130"}) {
    lab.set_format(parse_format(format).value());
    ui.frame(2);
    for (const char* encoding : {"0", "1", "2", "3"}) {
      ui.click(std::string("lab/build/encoding/") + encoding);
      EXPECT_TRUE(is_valid(lab.shown())) << format << " " << encoding;
    }
  }
}

TEST_F(LabTabs, StepsThroughAnFma) {
  ui.click("lab/tab/walk");
  EXPECT_EQ(ui.text("lab/walk/title"), "1 of 6: Operands");
  ui.click("lab/walk/back");
  EXPECT_EQ(ui.text("lab/walk/title"), "1 of 6: Operands");
  ui.click("lab/walk/next");
  ui.click("lab/walk/next");
  EXPECT_EQ(ui.text("lab/walk/title"), "3 of 6: Separate: round the product");
  ui.click("lab/walk/step/5");
  EXPECT_NE(ui.text("lab/walk/text").find("mul + add gives 0"), std::string::npos);
  ui.click("lab/walk/play");
  EXPECT_EQ(lab.walk.step, 0) << "from the start";
  EXPECT_TRUE(lab.moving);
  ui.frame(80);
  EXPECT_EQ(lab.walk.step, 1);
  ui.frame(400);
  EXPECT_EQ(lab.walk.step, 5);
  EXPECT_FALSE(lab.moving);
  enter("lab/walk/c", "x");
  EXPECT_TRUE(ui.has("lab/walk/problem"));
}

TEST_F(LabTabs, StepsThroughATensorCore) {
  ui.click("lab/tab/walk");
  ui.click("lab/walk/tensor_core");
  lab.walk.arch = "v100";
  enter("lab/walk/list_a", "4096,0x1p-12");
  enter("lab/walk/list_b", "2x1");
  ui.click("lab/walk/step/1");
  EXPECT_NE(ui.text("lab/walk/text").find("1 of 2 products vanish"), std::string::npos);
  EXPECT_EQ(ui.text("lab/walk/row/0"), "4096");
  ui.click("lab/walk/arch");
  ui.click("lab/walk/arch/h100-wgmma");
  EXPECT_EQ(lab.walk.arch, "h100-wgmma");
  ui.click("lab/walk/step/1");
  EXPECT_EQ(ui.text("lab/walk/text").find("vanish"), std::string::npos) << "25 bits keep it";
  lab.set_format(kE4m3fn);
  lab.walk.arch = "v100";
  ui.frame(2);
  EXPECT_NE(ui.text("lab/walk/problem").find("no tensor core"), std::string::npos);
}

TEST_F(LabTabs, StepsThroughADotProduct) {
  ui.click("lab/tab/walk");
  ui.click("lab/walk/dot");
  lab.walk.accumulation = "format";
  enter("lab/walk/list_a", "2048,1,1");
  enter("lab/walk/list_b", "3x1");
  EXPECT_EQ(ui.text("lab/walk/title"), "1 of 3: Add 2048 \u00d7 1");
  ui.click("lab/walk/step/2");
  EXPECT_NE(ui.text("lab/walk/text").find("stays where it is"), std::string::npos);
  EXPECT_EQ(ui.text("lab/walk/row/3"), "2048");
  ui.click("lab/walk/accumulation");
  ui.click("lab/walk/accumulation/fp32");
  ui.click("lab/walk/step/2");
  EXPECT_EQ(ui.text("lab/walk/row/3"), "2050");
  enter("lab/walk/list_b", "2x1");
  EXPECT_TRUE(ui.has("lab/walk/problem"));
}

TEST_F(LabTabs, TheTriangleOfARoundingIsDragged) {
  ui.click("lab/tab/rounding");
  const TrackedItem line = ui.item("lab/between");
  ui.click_at({line.min.x + 0.25f * (line.max.x - line.min.x), line.center().y});
  const double value = std::stod(lab.value);
  EXPECT_GT(value, 2048.2);
  EXPECT_LT(value, 2048.8);
  EXPECT_EQ(ui.text("lab/mode/nearest-even/result"), "2048");
}

class SmallLabTabs : public LabTabs {
 protected:
  SmallLabTabs() : LabTabs({768, 560}) {}
};

TEST_F(SmallLabTabs, EveryTabFitsItsWidth) {
  theme = &light_theme();
  for (int tab = 0; tab <= static_cast<int>(LabTab::puzzles); ++tab) {
    lab.tab = static_cast<LabTab>(tab);
    for (int kind = 0; kind < 3; ++kind) {
      lab.walk.kind = static_cast<WalkState::Kind>(kind);
      ui.frame(3);
      EXPECT_TRUE(ui.has("lab/try")) << tab;
      expect_fits();
    }
  }
}

TEST_F(LabTabs, ChartsFillTheWindow) {
  for (const auto& [tab, chart] : {std::pair{LabTab::accumulate, "lab/sums/plot"},
                                   {LabTab::line, "lab/line"},
                                   {LabTab::stochastic, "lab/drops/board"},
                                   {LabTab::same_number, "lab/same/axis"},
                                   {LabTab::builder, "lab/build/zero"},
                                   {LabTab::formats, "lab/plane"}}) {
    lab.tab = tab;
    ui.frame(3);
    const TrackedItem& item = ui.item(chart);
    EXPECT_GT(item.max.y, size_.y - 70.0f) << chart;
    EXPECT_LE(item.max.y, size_.y) << chart;
  }
}

}  // namespace
}  // namespace halfscope::gui
