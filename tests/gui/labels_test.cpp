// SPDX-License-Identifier: MIT
// Numbers and names as the panels write them.
#include "gui/widgets/labels.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/number_text.h"
#include "gui/panels/histogram_plot.h"
#include "tests/gui/ui_driver.h"

namespace halfscope::gui {
namespace {

TEST(Labels, Numbers) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(65536), "65,536");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(power_text(16), "2^16");
  EXPECT_EQ(power_text(-3.5), "2^-3.5");
  EXPECT_EQ(power_text(4.96), "2^5") << "no .0 where the tenth is a zero";
  EXPECT_EQ(power_text(-24.04), "2^-24");
  EXPECT_EQ(power_text(-0.01), "2^0");
}

TEST(Labels, SharesAndBounds) {
  EXPECT_EQ(share_text({0, 0}, 1000), "0");
  EXPECT_EQ(share_text({31, 31}, 1000), "3.1%");
  EXPECT_EQ(share_text({30, 32}, 1000), "3 to 3.2%");
  EXPECT_EQ(share_text({0, 500}, 1000), "0 to 50%");
}

TEST(Labels, CommandsHaveNoBackticks) {
  EXPECT_EQ(plain_text("`halfscope diagnose` trains."), "halfscope diagnose trains.");
}

TEST(Labels, ParagraphsDoNotEndInOneWord) {
  UiDriver ui;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "several words ";
  text += "end.";
  int shorter = 0;
  ui.draw_with([&] {
    const auto height = [&](float width) {
      return ImGui::CalcTextSize(text.c_str(), nullptr, false, width).y;
    };
    for (float width = 300.0f; width < 900.0f; width += 7.0f) {
      const float balanced = balanced_width(text, width);
      EXPECT_LE(balanced, width);
      EXPECT_EQ(height(balanced), height(width)) << width;
      EXPECT_GT(height(balanced - 2.0f), height(width)) << width << ": no width is left over";
      shorter += balanced < width ? 1 : 0;
    }
    EXPECT_EQ(balanced_width("one line", 300.0f), 300.0f);
  });
  ui.frame();
  EXPECT_GT(shorter, 10);
}

TEST(Labels, TooLongNamesLoseTheirMiddle) {
  UiDriver ui;
  ImFont* font = ui.fonts().text;
  const std::string name = "encoder/layer_11/attention/output/dense";
  EXPECT_EQ(fitted(name, font, 1000.0f), name);
  for (float width = 200.0f; width > 30.0f; width -= 9.0f) {
    const std::string cut = fitted(name, font, width);
    EXPECT_LE(text_width(font, cut), width);
    EXPECT_EQ(cut.front(), 'e');
    EXPECT_EQ(cut.back(), 'e');
  }
  // No character is cut in half.
  const std::string greek = "\u03b1\u03b2\u03b3\u03b4\u03b1\u03b2\u03b3\u03b4";
  for (float width = 60.0f; width > 20.0f; width -= 1.0f) {
    const std::string cut = fitted(greek, font, width);
    EXPECT_EQ((cut.size() - 2) % 2, 0u) << cut;
  }
}

TEST(ExponentAxis, HoldsTheValuesAsTheyAreAndMoved) {
  TensorStats stats{.n = 10};
  stats.exponents[static_cast<size_t>(-60 - kMinExponentBin)] = 5;
  stats.exponents[static_cast<size_t>(20 - kMinExponentBin)] = 5;
  const ExponentAxis axis = fit_exponents(stats, 0.0);
  EXPECT_LE(axis.low, -60.0);
  EXPECT_GE(axis.high, 21.0);
  EXPECT_GE(fit_exponents(stats, 12.0).high, 33.0);
  EXPECT_LE(fit_exponents(stats, -12.0).low, -72.0);
  EXPECT_LE(fit_exponents(TensorStats{}, 0.0).low, -25.0) << "fp16 at least";
  EXPECT_GE(fit_exponents(TensorStats{}, 0.0).high, 17.0);
}

TEST(BinText, SaysWhatBecomesOfTheValues) {
  TensorStats stats{.n = 4};
  stats.exponents[static_cast<size_t>(-20 - kMinExponentBin)] = 4;
  HistogramPlot plot{.stats = stats, .lens = kFp16};
  EXPECT_NE(bin_text(plot, -19.5).find("4 elements, 100%"), std::string::npos);
  EXPECT_NE(bin_text(plot, -19.5).find("5 significant bits instead of 11"), std::string::npos);
  EXPECT_NE(bin_text(plot, -27.5).find("rounded to zero"), std::string::npos);
  EXPECT_NE(bin_text(plot, 3.5).find("normal in fp16"), std::string::npos);
  EXPECT_NE(bin_text(plot, 15.5).find("normal in fp16"), std::string::npos);
  EXPECT_NE(bin_text(plot, 17.5).find("beyond the largest"), std::string::npos);
  plot.shift = 10.0;
  EXPECT_NE(bin_text(plot, -9.5).find("recorded as 2^-20 to 2^-19"), std::string::npos);
  EXPECT_EQ(bin_text(plot, 1000.0), "");
}

}  // namespace
}  // namespace halfscope::gui
