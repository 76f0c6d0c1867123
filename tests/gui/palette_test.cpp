// SPDX-License-Identifier: MIT
// The palette finds everything by some of its letters, and is used by keyboard alone.
#include <gmock/gmock.h>

#include "gui/data/fuzzy.h"
#include "tests/gui/app_driver.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

using testing::ElementsAre;

int score_of(std::string_view text, std::string_view pattern) {
  const std::optional<FuzzyMatch> match = fuzzy_match(text, pattern);
  return match ? match->score : -1;
}

TEST(Fuzzy, FindsLettersInTheirOrder) {
  EXPECT_TRUE(fuzzy_match("Layer: layer2/0/conv1", "l2c1"));
  EXPECT_TRUE(fuzzy_match("Zoom in", "ZOOM"));
  EXPECT_TRUE(fuzzy_match("Zoom in", "o o m"));
  EXPECT_FALSE(fuzzy_match("Zoom in", "mz"));
  EXPECT_FALSE(fuzzy_match("Zoom in", "zooom in"));
  EXPECT_FALSE(fuzzy_match("", "a"));
  EXPECT_EQ(score_of("anything", ""), 0);
}

TEST(Fuzzy, PrefersStartsOfWordsAndRuns) {
  EXPECT_GT(score_of("Go: Next layer", "layer"), score_of("Lane and year", "layer"));
  EXPECT_GT(score_of("dark theme", "th"), score_of("the dark ah", "dh"));
  EXPECT_THAT(fuzzy_match("abc conv1", "c1")->letters, ElementsAre(4, 8))
      << "the start of the word, not the nearest letter";
  EXPECT_THAT(fuzzy_match("a-b ab", "ab")->letters, ElementsAre(4, 5));
}

class Palette : public testing::Test {
 protected:
  AppDriver user_{test::full_run()};
  void open(std::string_view text) {
    user_.frame(2);
    user_.press(letter_key('P'), {.ctrl = true});
    user_.frame(2);
    user_.type(text);
    user_.frame(2);
  }
};

TEST_F(Palette, SelectsLayersLanesFormatsAndTabs) {
  open("layer: conv1");
  user_.press_named(ImGuiKey_Enter);
  user_.frame(2);
  EXPECT_EQ(user_.app().view().layer, "conv1");
  open("tab events");
  user_.press_named(ImGuiKey_Enter);
  user_.frame(2);
  EXPECT_EQ(user_.app().view().tab, Tab::events);
  open("lane float32");
  user_.press_named(ImGuiKey_Enter);
  user_.frame(2);
  EXPECT_EQ(user_.app().view().lane, "float32");
  open("format mxfp8");
  user_.press_named(ImGuiKey_Enter);
  user_.frame(2);
  EXPECT_EQ(user_.app().view().window, "mxfp8");
  EXPECT_EQ(user_.app().view().screen, Screen::spectrum);
}

TEST_F(Palette, SetsTheFormatOfTheHistogram) {
  user_.app().view().screen = Screen::spectrum;
  open("format of the histogram: e5m2");
  user_.press_named(ImGuiKey_Enter);
  user_.frame(2);
  EXPECT_EQ(user_.app().view().lens, "e5m2");
  EXPECT_EQ(user_.app().view().screen, Screen::details);
}

TEST_F(Palette, EscapeClosesItAndDoesNothing) {
  const std::string lane = user_.app().view().lane;
  open("lane float32");
  ASSERT_TRUE(user_.has("palette/text"));
  user_.press_named(ImGuiKey_Escape);
  user_.frame(2);
  EXPECT_FALSE(user_.has("palette/text"));
  EXPECT_EQ(user_.app().view().lane, lane);
  open("");
  EXPECT_EQ(user_.text("palette/text"), "") << "it opens without the last text";
}

TEST_F(Palette, ArrowKeysChoose) {
  open("layer: conv");
  ASSERT_TRUE(user_.has("palette/layer/conv1"));
  ASSERT_TRUE(user_.has("palette/layer/conv2"));
  const float first = user_.item("palette/layer/conv1").min.y;
  const float second = user_.item("palette/layer/conv2").min.y;
  ASSERT_LT(first, second);
  user_.press_named(ImGuiKey_DownArrow);
  user_.press_named(ImGuiKey_Enter);
  user_.frame(2);
  EXPECT_EQ(user_.app().view().layer, "conv2");
}

TEST_F(Palette, SaysWhenNothingIsFound) {
  open("qqzzx");
  EXPECT_EQ(user_.text("palette/nothing"), "Nothing found.");
  user_.press_named(ImGuiKey_Enter);
  user_.press_named(ImGuiKey_DownArrow);
  user_.frame(2);
  EXPECT_TRUE(user_.has("palette/nothing"));
}

}  // namespace
}  // namespace halfscope::gui
