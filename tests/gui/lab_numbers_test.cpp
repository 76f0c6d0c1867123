// SPDX-License-Identifier: MIT
// The state of the float lab: typed numbers, bits, steps, presets.
#include <gtest/gtest.h>

#include <cmath>

#include "gui/lab/float_lab.h"

namespace halfscope::gui {
namespace {

TEST(LabNumbers, OpensLinks) {
  FloatLab lab;
  EXPECT_TRUE(lab.open("fp16 0.1"));
  EXPECT_EQ(lab.code, 0x2e66u);
  EXPECT_TRUE(lab.typed().has_value());
  EXPECT_TRUE(lab.open("e4m3 0x7e"));
  EXPECT_EQ(format_name(lab.shown()), "e4m3");
  EXPECT_EQ(lab.code, 0x7eu);
  EXPECT_NE(lab.note.find("e4m3fn"), std::string::npos);
  EXPECT_TRUE(lab.open("e4m3fn 0x7e"));
  EXPECT_EQ(lab.number(), 448.0f);
  EXPECT_TRUE(lab.open("  bf16 "));
  EXPECT_EQ(lab.number(), 448.0f) << "the value stays";
  EXPECT_EQ(lab.tab, LabTab::bits);
  for (const char* bad : {"", "0.1", "fp17 0.1", "fp16 zero", "e4m3fn 0x17e"}) {
    EXPECT_FALSE(lab.open(bad)) << bad;
    EXPECT_EQ(lab.format, "bf16") << "nothing changed by " << bad;
  }
}

TEST(LabNumbers, BitsFormatsAndSteps) {
  FloatLab lab;
  EXPECT_EQ(lab.number(), 0x1.998p-4f);
  lab.set_bit(15, true);
  EXPECT_EQ(lab.number(), -0x1.998p-4f);
  EXPECT_FALSE(lab.typed()) << "no longer what was typed";
  lab.format = "e9m9";
  lab.format_edited();
  EXPECT_EQ(lab.shown(), kFp16);
  EXPECT_NE(lab.format_problem(), "");
  lab.set_format(kFp16);
  lab.entry = "65504";
  lab.entry_edited();
  lab.step(+1);
  EXPECT_TRUE(std::isinf(lab.number()));
  lab.step(+1);
  EXPECT_TRUE(std::isinf(lab.number())) << "the last one";
  lab.step(-2);
  EXPECT_EQ(lab.number(), 65472.0f);
  lab.entry = "0";
  lab.entry_edited();
  lab.step(-1);
  EXPECT_EQ(lab.number(), -0x1p-24f);
  lab.entry = "what";
  lab.entry_edited();
  EXPECT_NE(lab.entry_problem(), "");
  EXPECT_EQ(lab.number(), -0x1p-24f) << "bits stay while nonsense is typed";
}

TEST(LabNumbers, Calculates) {
  FloatLab lab;
  LabResult result = calculate(lab);  // 2048 + 1
  EXPECT_EQ(result.result.value, 2048.0f);
  EXPECT_EQ(result.result.exact, "2049");
  EXPECT_EQ(result.result.error_ulps, -0.5);
  EXPECT_EQ(result.result.flags, kInexact);
  lab.operation = Operation::div;
  lab.a = "1";
  lab.b = "3";
  result = calculate(lab);
  EXPECT_EQ(result.result.exact, "0.33333333333333331...");
  EXPECT_NEAR(result.result.error_ulps, -1.0 / 3.0, 1e-9);
  lab.b = "4";
  EXPECT_EQ(calculate(lab).result.exact, "0.25");
  lab.b = "0";
  result = calculate(lab);
  EXPECT_EQ(result.result.exact, "");
  EXPECT_EQ(result.result.flags, kDivideByZero);
  lab.operation = Operation::fma;
  lab.a = "65504";
  lab.b = "65504";
  lab.c = "-inf";
  EXPECT_TRUE(std::isinf(calculate(lab).result.value));
  lab.c = "0x0001";
  EXPECT_EQ(calculate(lab).result.exact, "4290774016.000000059604644775390625");
  lab.a = "nonsense";
  EXPECT_TRUE(std::isnan(calculate(lab).result.value));
}

TEST(LabNumbers, PresetsShowWhatTheySay) {
  for (const LabPreset& preset : lab_presets()) {
    FloatLab lab;
    preset.apply(lab);
    EXPECT_NE(lab.note, "") << preset.name;
  }
  FloatLab lab;
  lab_presets()[0].apply(lab);
  EXPECT_EQ(lab.number(), 65504.0f);
}

}  // namespace
}  // namespace halfscope::gui
