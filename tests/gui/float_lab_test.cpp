// SPDX-License-Identifier: MIT
// The float lab, driven: bits are clicked and painted, numbers typed, presets opened.
#include <gtest/gtest.h>

#include <cmath>

#include "core/numeric/formats/round.h"
#include "gui/widgets/labels.h"
#include "tests/gui/lab_window.h"

namespace halfscope::gui {
namespace {

constexpr int kTabs = static_cast<int>(LabTab::puzzles) + 1;

class Lab : public LabWindow {
 protected:
  explicit Lab(ImVec2 size = {1424, 700}) : LabWindow(size) {}
};

TEST_F(Lab, ClicksFlipBits) {
  EXPECT_EQ(ui.text("lab/exact"), "0.0999755859375");
  EXPECT_EQ(ui.text("lab/bit/15"), "0");
  ui.click("lab/bit/15");
  EXPECT_EQ(lab.code, 0xae66u);
  EXPECT_EQ(ui.text("lab/bit/15"), "1");
  EXPECT_EQ(ui.text("lab/exact"), "-0.0999755859375");
  ui.click("lab/bit/15");
  ui.click("lab/bit/0");
  EXPECT_EQ(lab.code, 0x2e67u);
}

TEST_F(Lab, DraggingPaints) {
  lab.set_code(0);
  ui.frame(2);
  const ImVec2 from = ui.item("lab/bit/9").center();
  const ImVec2 to = ui.item("lab/bit/0").center();
  // In steps of about a cell, as a mouse moves.
  ui.drag_from(from, {(to.x - from.x) / 2, 0});
  EXPECT_EQ(ui.text("lab/bit/9"), "1");
  EXPECT_EQ(ui.text("lab/bit/7"), "1");
  EXPECT_EQ(ui.text("lab/bit/0"), "0");
  const uint32_t painted = lab.code;
  ui.drag_from(from, {(to.x - from.x) / 2, 0});
  EXPECT_EQ(lab.code, 0u) << "from a one it paints zeros, over " << painted;
}

TEST_F(Lab, StepsAndTypedNumbers) {
  ui.click("lab/up");
  EXPECT_EQ(lab.code, 0x2e67u);
  ui.click("lab/down");
  ui.click("lab/down");
  EXPECT_EQ(lab.code, 0x2e65u);
  enter("lab/entry", "65504");
  EXPECT_EQ(lab.code, 0x7bffu);
  EXPECT_EQ(ui.text("lab/conversion"), "none (exact)");
  enter("lab/entry", "0.1");
  EXPECT_EQ(ui.text("lab/conversion"), "-0.0000244140625 (-0.4 ulp)");
  EXPECT_EQ(ui.text("lab/formula"), "+ 1.599609375 \u00d7 2^-4");
  EXPECT_EQ(ui.text("lab/exponent"), "11 - 15 = -4");
  EXPECT_EQ(ui.text("lab/ulp"), "2^-14");
  EXPECT_EQ(ui.text("lab/neighbours"), "0.09991455078125  and  0.10003662109375");
  enter("lab/entry", "x1");
  EXPECT_NE(ui.text("lab/entry/problem").find("neither a number nor a code"), std::string::npos);
  EXPECT_EQ(lab.code, 0x2e66u) << "nonsense changes nothing";
}

TEST_F(Lab, FormatsAreChosenAndTyped) {
  ui.click("lab/format");
  ui.click("lab/format/bf16");
  EXPECT_EQ(lab.shown(), kBf16);
  EXPECT_EQ(ui.text("lab/exact"), "0.10009765625") << "what was typed, rounded anew";
  ui.click("lab/in/fp32");
  EXPECT_EQ(lab.shown(), kFp32);
  EXPECT_EQ(ui.text("lab/exact"), "0.100000001490116119384765625");
  EXPECT_TRUE(ui.has("lab/bit/31"));
  lab.format = "e3m99";
  ui.frame(2);
  EXPECT_NE(ui.text("lab/format/problem/line").find("99"), std::string::npos);
  EXPECT_EQ(lab.shown(), kFp32);
  EXPECT_EQ(ui.text("lab/in/fp16/value"), "0.0999755859375");
  EXPECT_EQ(ui.text("lab/in/e2m1/value"), "0");
}

TEST_F(Lab, CopiesAsCAndPython) {
  ui.click("lab/copy/c");
  EXPECT_STREQ(ImGui::GetClipboardText(), "0x1.998p-4f /* fp16 0x2e66 */");
  ui.click("lab/copy/python");
  EXPECT_STREQ(ImGui::GetClipboardText(), "float.fromhex(\"0x1.998p-4\")");
  lab.set_code(0xfc00);
  ui.frame(2);
  ui.click("lab/copy/c");
  EXPECT_STREQ(ImGui::GetClipboardText(), "-INFINITY /* fp16 0xfc00 */");
  ui.click("lab/copy/python");
  EXPECT_STREQ(ImGui::GetClipboardText(), "float(\"-inf\")");
}

TEST_F(Lab, AllSevenModes) {
  ui.click("lab/tab/rounding");
  lab.value = "-2049.5";
  ui.frame(2);
  for (const RoundingMode mode : kAllRoundingModes) {
    const std::string path = "lab/mode/" + std::string(rounding_mode_name(mode));
    const Rounded<double> expected =
        round_to_format(-2049.5, kFp16, Rounding{.mode = mode, .random = lab.random});
    EXPECT_EQ(ui.text(path + "/result"), value_text(static_cast<float>(expected.value), kFp16));
    EXPECT_EQ(ui.text(path + "/flags"), "inexact");
  }
  EXPECT_EQ(ui.text("lab/mode/down/error"), "-0.25");
  EXPECT_EQ(ui.text("lab/kept"), "1.0000000000");
  EXPECT_EQ(ui.text("lab/guard"), "1");
  EXPECT_EQ(ui.text("lab/round"), "1");
  EXPECT_EQ(ui.text("lab/sticky"), "0");
  EXPECT_EQ(ui.text("lab/between"), "-2048 to -2050");
  const uint32_t before = lab.random;
  ui.click("lab/dice");
  EXPECT_NE(lab.random, before);
  for (const char* special : {"0", "inf", "nan", "1e300", "-1e-300", "1e-45"}) {
    lab.value = special;
    ui.frame(2);
  }
  enter("lab/value", "x");
  EXPECT_NE(ui.text("lab/value/problem").find("not a number"), std::string::npos);
}

TEST_F(Lab, Arithmetic) {
  ui.click("lab/tab/arithmetic");
  EXPECT_EQ(ui.text("lab/result/exact"), "2049");
  EXPECT_EQ(ui.text("lab/result/value"), "2048   0x6800");
  EXPECT_EQ(ui.text("lab/result/error"), "-0.5 ulp");
  EXPECT_EQ(ui.text("lab/result/flags"), "inexact");
  ui.click("lab/mode");
  ui.click("lab/mode/choose/up");
  EXPECT_EQ(ui.text("lab/result/value"), "2050   0x6801");
  ui.click("lab/operation/fma");
  enter("lab/c", "-0.5");
  EXPECT_EQ(ui.text("lab/result/exact"), "2047.5");
  ui.click("lab/operation/div");
  EXPECT_FALSE(ui.has("lab/held/c"));
  enter("lab/b", "0");
  EXPECT_EQ(ui.text("lab/result/flags"), "division by zero");
  EXPECT_EQ(ui.text("lab/result/exact"), "none");
  enter("lab/b", "?");
  EXPECT_TRUE(ui.has("lab/operand/problem"));
}

TEST_F(Lab, SumsStandStill) {
  ui.click("lab/tab/accumulate");
  EXPECT_EQ(ui.text("lab/sums/fp16/still"), "2048 terms");
  EXPECT_EQ(ui.text("lab/sums/fp16/last"), "2048");
  EXPECT_EQ(ui.text("lab/sums/fp16/error"), "50%");
  EXPECT_EQ(ui.text("lab/sums/bf16/still"), "256 terms");
  EXPECT_EQ(ui.text("lab/sums/fp32/still"), "-");
  EXPECT_EQ(ui.text("lab/sums/fp16 Kahan/last"), "4096");
  EXPECT_EQ(ui.text("lab/sums/why"),
            "Half an ulp of 2048 is 1: adding 1 is a tie, and ties go to even. The sum stays.");
  ui.drag("lab/count", {300, 0});
  EXPECT_EQ(lab.terms, "131072x1");
  EXPECT_EQ(ui.text("lab/sums/fp16/last"), "2048");
  for (const char* terms : {"64x0", "64x60000", "64x-3", "64x1e-9", "1,64x-0.25", "x"}) {
    lab.terms = terms;
    ui.frame(2);
  }
  EXPECT_TRUE(ui.has("lab/term/problem"));
}

TEST_F(Lab, SumsOfAListAndTheirMarker) {
  ui.click("lab/tab/accumulate");
  ui.click("lab/terms/example/1");
  EXPECT_EQ(lab.terms, "1,1000x1e-3");
  EXPECT_EQ(ui.text("lab/sums/moment"), "After 1001 terms in fp16:") << "it never stalls";
  const TrackedItem plot = ui.item("lab/sums/plot");
  ui.drag_from({plot.center().x, plot.center().y}, {40, 0});
  EXPECT_GT(lab.moment, 400);
  EXPECT_LT(lab.moment, 700);
  EXPECT_EQ(ui.text("lab/sums/moment"), "After " + std::to_string(lab.moment) + " terms in fp16:");
  EXPECT_NE(ui.text("lab/sums/why").find("is rounded to"), std::string::npos);
  const int bins = std::stoi(ui.text("lab/sums/bins"));
  EXPECT_GE(bins, 6);
  EXPECT_LE(bins, 12);
  ui.click("lab/terms/example/3");
  EXPECT_EQ(lab.moment, -1) << "other terms, other marker";
  EXPECT_EQ(ui.text("lab/sums/fp16/still"), "overflows");
}

TEST_F(Lab, NumberLine) {
  ui.click("lab/tab/line");
  const TrackedItem line = ui.item("lab/line");
  const double span = lab.line_high - lab.line_low;
  ui.wheel("lab/line", 3);
  EXPECT_NEAR(lab.line_high - lab.line_low, span * 0.512, 1e-6);
  const double low = lab.line_low;
  ui.drag("lab/line", {100, 0});
  EXPECT_LT(lab.line_low, low);
  EXPECT_EQ(lab.format, "fp16") << "a drag takes no value";
  ui.click("lab/line/max");
  EXPECT_GT(lab.line_high, 65504.0);
  ui.click("lab/line/all");
  // The first row is e2m1; its value nearest to the middle is zero.
  ui.click_at({line.center().x + 2.0f, line.min.y + 8.0f});
  EXPECT_EQ(lab.format, "e2m1");
  ui.click("lab/line/number");
  ui.frame(3);
}

TEST_F(Lab, FormatsAndTheMapOfCodes) {
  ui.click("lab/tab/formats");
  EXPECT_EQ(ui.text("lab/formats/fp16/largest"), "65504");
  EXPECT_EQ(ui.text("lab/formats/e4m3fn/largest"), "448");
  EXPECT_TRUE(ui.has("lab/map/none"));
  ui.click("lab/formats/e4m3fn");
  EXPECT_EQ(lab.shown(), kE4m3fn);
  EXPECT_EQ(ui.text("lab/map/126"), "448");
  EXPECT_EQ(ui.text("lab/map/127"), "NaN");
  EXPECT_EQ(ui.text("lab/map/128"), "-0");
  ui.click("lab/map/126");
  EXPECT_EQ(lab.code, 126u);
  EXPECT_EQ(lab.tab, LabTab::bits);
  EXPECT_EQ(ui.text("lab/exact"), "448");
}

TEST_F(Lab, PresetsOpenTheirTab) {
  const auto choose = [&](int which) {
    ui.click("lab/preset");
    ui.click("lab/preset/" + std::to_string(which));
    ui.frame(2);
  };
  EXPECT_TRUE(ui.has("lab/try"));
  choose(0);
  EXPECT_FALSE(ui.has("lab/try")) << "the note takes its place";
  EXPECT_EQ(ui.text("lab/exact"), "65504");
  EXPECT_NE(ui.text("lab/note").find("infinity"), std::string::npos);
  choose(1);
  EXPECT_EQ(ui.text("lab/result/value"), "2048   0x6800");
  choose(2);
  EXPECT_EQ(ui.text("lab/in/fp16/value"), "0.0999755859375");
  choose(3);
  EXPECT_EQ(ui.text("lab/exact"), "0.000000059604644775390625");
  choose(4);
  EXPECT_EQ(ui.text("lab/sums/fp16/still"), "2048 terms");
  choose(5);
  EXPECT_EQ(ui.text("lab/mode/nearest-even/result"), "2048");
  choose(6);
  EXPECT_EQ(ui.text("lab/result/value"), "infinity   0x7c00");
  choose(7);
  EXPECT_EQ(ui.text("lab/result/value"), "0   0x0000");
  choose(8);
  EXPECT_EQ(ui.text("lab/same/fp16"), "rounded");
  lab.shift = 0.0;
  ui.frame(2);
  EXPECT_EQ(ui.text("lab/same/fp16"), "underflow");
  choose(9);
  EXPECT_EQ(ui.text("lab/same/bf16"), "rounded");
  choose(10);
  // NumPy and ml_dtypes: the bf16 numbers sum to 10.00146484375, and in fp32 to 10.001465.
  EXPECT_NE(ui.text("lab/walk/text").find("rounding them costs 0.015%"), std::string::npos)
      << ui.text("lab/walk/text");
  choose(11);
  EXPECT_EQ(lab.blocks.format, "mxfp4");
  EXPECT_EQ(ui.text("lab/blocks/scale/0"), "shared scale 2^3 = 8 (ue8m0 0x82)");
  choose(12);
  EXPECT_TRUE(ui.has("lab/drops/board"));
  choose(13);
  EXPECT_NE(ui.text("lab/walk/title").find("round the product"), std::string::npos);
  choose(14);
  EXPECT_NE(ui.text("lab/walk/text").find("8 of 9 products vanish"), std::string::npos);
  ui.click("lab/tab/bits");
  EXPECT_FALSE(ui.has("lab/note")) << "notes go with their tab";
}

TEST_F(Lab, EveryFormatInEveryTab) {
  for (const char* format : {"fp32", "e2m1", "e8m0b130", "e2m0finite", "e5m10fn", "e4m3fnuz",
                             "fp16:ftz", "e3m0", "e8m23b127:sat"}) {
    for (int tab = 0; tab < kTabs; ++tab) {
      for (const char* number : {"0", "1", "-inf", "nan", "1e-300", "3e38"}) {
        lab.open(std::string(format) + " " + number);
        lab.value = number;
        lab.a = number;
        lab.terms = std::string("32x") + number;
        lab.drops.value = number;
        lab.walk.kind = static_cast<WalkState::Kind>(tab % 3);
        lab.walk.a = lab.walk.list_a = number;
        lab.tab = static_cast<LabTab>(tab);
        ui.frame(1);
      }
    }
  }
}

class NarrowLab : public Lab {
 protected:
  NarrowLab() : Lab({430, 1400}) {}
};

TEST_F(NarrowLab, FitsItsWidth) {
  for (int tab = 0; tab < kTabs; ++tab) {
    lab.tab = static_cast<LabTab>(tab);
    lab.open("fp32 0.1");
    lab.tab = static_cast<LabTab>(tab);
    ui.frame(3);
    expect_fits();
  }
}

}  // namespace
}  // namespace halfscope::gui
