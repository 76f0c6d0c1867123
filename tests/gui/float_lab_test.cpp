// SPDX-License-Identifier: MIT
// The float lab, driven: bits are clicked and painted, numbers typed, presets opened.
#include "gui/panels/float_lab.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/numeric/formats/round.h"
#include "gui/widgets/labels.h"
#include "tests/gui/ui_driver.h"

namespace halfscope::gui {
namespace {

class Lab : public ::testing::Test {
 protected:
  explicit Lab(ImVec2 size = {1424, 700}) : size_(size), ui([this] { draw(); }, size) {
    ui.frame(2);
  }

  void draw() {
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize(size_);
    ImGui::Begin("lab", nullptr, ImGuiWindowFlags_NoDecoration);
    draw_float_lab(lab, dark_theme(), ui.fonts(), 1.0f);
    ImGui::End();
  }
  /// Replaces the text in a field.
  void enter(const char* path, const char* text) {
    ui.click(path);
    ui.press_named(ImGuiKey_A, {.ctrl = true});
    ui.type(text);
    ui.frame(2);
  }

  ImVec2 size_;
  FloatLab lab;
  UiDriver ui;
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
  EXPECT_NE(ui.text("lab/entry/problem").find("not a number"), std::string::npos);
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
  ui.drag("lab/count", {300, 0});
  EXPECT_EQ(lab.count, 131072);
  EXPECT_EQ(ui.text("lab/sums/fp16/last"), "2048");
  for (const char* term : {"0", "60000", "-3", "1e-9", "inf", "x"}) {
    lab.term = term;
    lab.count = 64;
    ui.frame(2);
  }
  EXPECT_TRUE(ui.has("lab/term/problem"));
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
  ui.click("lab/preset/0");
  EXPECT_EQ(ui.text("lab/exact"), "65504");
  EXPECT_NE(ui.text("lab/note").find("infinity"), std::string::npos);
  ui.click("lab/preset/1");
  EXPECT_EQ(ui.text("lab/result/value"), "2048   0x6800");
  ui.click("lab/preset/2");
  EXPECT_EQ(ui.text("lab/in/fp16/value"), "0.0999755859375");
  ui.click("lab/preset/3");
  EXPECT_EQ(ui.text("lab/exact"), "0.000000059604644775390625");
  ui.click("lab/preset/4");
  EXPECT_EQ(ui.text("lab/sums/fp16/still"), "2048 terms");
  ui.click("lab/preset/5");
  EXPECT_EQ(ui.text("lab/mode/nearest-even/result"), "2048");
  ui.click("lab/tab/bits");
  EXPECT_FALSE(ui.has("lab/note")) << "notes go with their tab";
}

TEST_F(Lab, EveryFormatInEveryTab) {
  for (const char* format : {"fp32", "e2m1", "e8m0b130", "e2m0finite", "e5m10fn", "e4m3fnuz",
                             "fp16:ftz", "e3m0", "e8m23b127:sat"}) {
    for (int tab = 0; tab < 6; ++tab) {
      for (const char* number : {"0", "1", "-inf", "nan", "1e-300", "3e38"}) {
        lab.open(std::string(format) + " " + number);
        lab.value = number;
        lab.a = number;
        lab.term = number;
        lab.count = 32;
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
  for (int tab = 0; tab < 6; ++tab) {
    lab.tab = static_cast<LabTab>(tab);
    lab.open("fp32 0.1");
    lab.tab = static_cast<LabTab>(tab);
    ui.frame(3);
    for (const auto& [path, item] : ui.tracker().items()) {
      if (ui.tracker().find(path) == nullptr || path.starts_with("lab/formats/")) continue;
      EXPECT_LE(item.max.x, 430.0f) << path;
    }
  }
}

}  // namespace
}  // namespace halfscope::gui
