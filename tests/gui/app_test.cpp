// SPDX-License-Identifier: MIT
// The whole viewer without a window: clicks and keys, on runs of every kind.
#include "gui/app/app.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "gui/widgets/labels.h"
#include "tests/gui/app_driver.h"
#include "tests/gui/plain_run.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

TEST(App, GreetsThoseWhoComeWithoutARun) {
  AppDriver user;
  user.frame(3);
  EXPECT_EQ(user.text("welcome/title"), "HalfScope");
  user.click("welcome/open");
  EXPECT_TRUE(user.has("dialog/ok"));
  user.click("dialog/cancel");
  user.frame(2);
  EXPECT_FALSE(user.has("dialog/ok"));
}

TEST(App, TheVerdictKeepsItsHeightWhileARunGrows) {
  const auto top_of_charts = [](RunView run) {
    AppDriver user(std::move(run), {}, {}, Screen::spectrum);
    user.frame(3);
    EXPECT_TRUE(user.app().run()->live());
    return user.item("windows/recorded").min.y;
  };
  RunView healthy = test::plain_run(1, 3), broken = test::full_run();
  healthy.set_status(RunStatus::running);
  broken.set_status(RunStatus::running);
  EXPECT_EQ(top_of_charts(std::move(healthy)), top_of_charts(std::move(broken)));
}

TEST(App, ShowsTheVerdictOfTheReport) {
  AppDriver user(test::full_run());
  user.frame(3);
  const Report& report = *user.app().run()->report();
  EXPECT_EQ(user.text("verdict/headline"), report.verdict.headline);
  EXPECT_EQ(user.text("verdict/more"), plain_text(report.verdict.more));
  EXPECT_NE(user.text("verdict/state").find(verdict_name(report.verdict.state)), std::string::npos);
}

TEST(App, ABrokenRunShowsWhereItBreaksAtOnce) {
  AppDriver user(test::make_run(test::hot_spec()));
  user.frame(3);
  EXPECT_TRUE(user.text("verdict/fix").starts_with("What to do: Keep conv2"))
      << user.text("verdict/fix");
  EXPECT_EQ(user.app().view().site, "conv2.activation");
}

TEST(App, TheHeatmapSaysWhatIsSubtracted) {
  AppDriver user(test::make_run(test::hot_spec()));
  user.frame(3);
  EXPECT_TRUE(user.text("steps/heatmap/whole").starts_with("share of values, minus float32's"))
      << user.text("steps/heatmap/whole");
}

TEST(App, OneClickLeadsBackToWhereItBreaks) {
  AppDriver user(test::make_run(test::hot_spec()));
  user.frame(3);
  user.click("layers/row/fc1");
  user.frame();
  user.click("verdict/show");
  EXPECT_EQ(user.app().view().layer, "conv2");
  EXPECT_EQ(user.app().view().site, "conv2.activation");
  EXPECT_EQ(user.app().view().lane, "mixed_float16");
}

TEST(App, LayersAreFilteredAndSelected) {
  AppDriver user(test::full_run());
  user.frame(3);
  ASSERT_TRUE(user.has("layers/row/fc1"));
  user.press(letter_key('F'), {.ctrl = true});
  user.frame(2);
  user.type("conv");
  user.frame(2);
  EXPECT_EQ(user.app().view().filter, "conv");
  EXPECT_FALSE(user.has("layers/row/fc1"));
  user.click("layers/row/conv2");
  EXPECT_EQ(user.app().view().layer, "conv2");
  EXPECT_FALSE(user.app().view().site.empty());
}

TEST(App, TheCountSaysHowManyLayersHaveATensorOfTheRole) {
  AppDriver user(test::full_run());
  user.frame(3);
  user.click("layers/role/Weights");
  user.frame(2);
  int with_weights = 0;
  const RunModel& run = *user.app().run();
  const int lane = run.first_lane();
  for (const LayerModel& layer : run.lane(lane).layers) {
    bool has = false;
    for (const int site : layer.sites) {
      const Role role = run.view().lane(lane).sites[static_cast<size_t>(site)].role;
      has |= role == Role::weight || role == Role::state;
    }
    with_weights += has ? 1 : 0;
  }
  EXPECT_EQ(user.text("layers/count"),
            std::to_string(with_weights) + " of " + std::to_string(run.lane(lane).layers.size()));
}

TEST(App, TheTabCountsTheRowsThatItLists) {
  AppDriver user(test::make_run(test::hot_spec()));
  user.frame(3);
  const Report& report = *user.app().run()->report();
  const int lane = *user.app().run()->view().find_lane(user.app().view().lane);
  size_t findings = 0, rows = 0;
  for (const Finding& each : report.findings) findings += each.lane == lane ? 1 : 0;
  while (user.has(fmt::format("advice/{}/layer", rows))) ++rows;
  EXPECT_LT(rows, findings) << "harm is told by the verdict";
  EXPECT_EQ(user.text("tab/Recommendations"), fmt::format("Recommendations ({})", rows));
}

TEST(App, ASecondFindingOfALayerNamesItsCause) {
  AppDriver user(test::make_run(test::hot_spec()));
  user.frame(3);
  ASSERT_EQ(user.text("advice/0/layer"), user.text("advice/1/layer"));
  EXPECT_EQ(user.text("advice/0/action"), "Keep in fp32.");
  EXPECT_EQ(user.text("advice/1/action"), "Same cause as above.");
  EXPECT_EQ(user.text("advice/predicted"), "Select a change to see its cost and its effect.");
}

TEST(App, TheDotStandsApartFromBothTexts) {
  AppDriver user(test::full_run());
  user.frame(3);
  const TrackedItem run = user.item("status/run"), dot = user.item("status/dot");
  EXPECT_GE(dot.min.x - run.max.x, 8.0f);
  EXPECT_GE(user.item("status/state").min.x - dot.max.x, 8.0f);
  EXPECT_LE(user.item("status/state").max.x, 1440.0f);
}

TEST(App, DistancesToTheOtherLaneFitTheirRegion) {
  AppDriver user(test::full_run());
  user.frame(2);
  for (const char* site : {"conv2.activation", "conv2.weight_grad"}) {
    user.app().view().lane = "mixed_float16";
    user.app().view().site = site;
    user.frame(4);
    const TrackedItem bar = user.item("lanes/distances/equal");
    EXPECT_LE(bar.max.y, user.item("splitter/bottom").min.y - 8.0f) << site;
    const TrackedItem bars = user.item("values/bars");
    EXPECT_GE(bars.max.y - bars.min.y, 72.0f) << site;
  }
}

TEST(App, SwitchesPutAdviceIntoThePlan) {
  AppDriver user(test::make_run(test::hot_spec()));
  user.frame(3);
  ASSERT_EQ(user.text("advice/0/layer"), "conv2");
  user.click("advice/0/what_if");
  EXPECT_TRUE(user.app().view().edits.keeps("conv2"));
  user.frame();
  EXPECT_NE(user.text("advice/predicted").find("removes 100% of the overflows"), std::string::npos);
  user.click("advice/clear");
  EXPECT_TRUE(user.app().view().edits.empty());
}

TEST(App, LayerDetailsShowTheCountersOfTheStep) {
  AppDriver user(test::make_run(test::hot_spec()));
  user.frame(2);
  user.click("verdict/show");
  user.click("tab/Layer details");
  user.frame(2);
  const RunView& run = user.app().run()->view();
  const int lane = *run.find_lane("mixed_float16");
  const int site = *run.find_site(lane, "conv2.activation");
  const int64_t step = user.app().view().cursor;
  const auto window = run.windows(lane, site).find(step);
  ASSERT_TRUE(window.has_value());
  const TensorStats stats = window->stats();
  ASSERT_GT(stats.overflow, 0);
  const std::string shown = user.text("details/tensor/activation/overflow");
  EXPECT_NEAR(std::stod(shown),
              100.0 * static_cast<double>(stats.overflow) / static_cast<double>(stats.n), 0.06);
}

TEST(App, EventsJumpToTheirStepAndTensor) {
  AppDriver user(test::make_run(test::hot_spec()));
  user.frame(2);
  user.click("tab/Events");
  user.frame(2);
  const RunView& run = user.app().run()->view();
  const int lane = *run.find_lane("mixed_float16");
  int64_t first_skipped = -1;
  for (const StepRow& row : run.steps(lane)) {
    if (row.skipped && first_skipped < 0) first_skipped = row.step;
  }
  ASSERT_GE(first_skipped, 0);
  user.click("events/group/0/step");  // opens what repeats
  user.frame(2);
  user.click("events/0/step");
  EXPECT_EQ(user.app().view().cursor, std::stoll(user.text("events/0/step")));
  EXPECT_EQ(user.app().view().site, user.text("events/0/site"));
}

TEST(App, BackAndForwardGoThroughWhatWasLookedAt) {
  AppDriver user(test::full_run());
  user.frame(3);
  user.click("layers/row/conv1");
  user.click("layers/row/fc1");
  EXPECT_EQ(user.app().view().layer, "fc1");
  user.press_named(ImGuiKey_LeftArrow, {.alt = true});
  EXPECT_EQ(user.app().view().layer, "conv1");
  user.press_named(ImGuiKey_RightArrow, {.alt = true});
  EXPECT_EQ(user.app().view().layer, "fc1");
}

TEST(App, StepsGoByKeysAndStayInTheRun) {
  AppDriver user(test::full_run());
  user.frame(2);
  const int64_t last = user.app().run()->step_count() - 1;
  user.app().view().cursor = -1;
  user.press(symbol_key('['));
  EXPECT_EQ(user.app().view().cursor, last - 1);
  user.press(symbol_key(']'));
  user.press(symbol_key(']'));
  EXPECT_EQ(user.app().view().cursor, last);
  user.press_named(ImGuiKey_End);
  EXPECT_EQ(user.app().view().cursor, -1) << "the last step, also while it grows";
}

TEST(App, ThePaletteDoesWhatIsTyped) {
  AppDriver user(test::full_run());
  user.frame(2);
  const bool dark = user.app().settings().dark;
  user.press(letter_key('P'), {.ctrl = true});
  user.frame(2);
  user.type("dark");
  user.press_named(ImGuiKey_Enter);
  user.frame(2);
  EXPECT_NE(user.app().settings().dark, dark);
}

TEST(App, GoToTakesStepsAndLayers) {
  AppDriver user(test::full_run());
  user.frame(2);
  user.press(letter_key('G'), {.ctrl = true});
  user.frame(2);
  user.type("7");
  user.press_named(ImGuiKey_Enter);
  user.frame(2);
  EXPECT_EQ(user.app().view().cursor, 7);
  user.press(letter_key('G'), {.ctrl = true});
  user.frame(2);
  user.type("fc2");
  user.press_named(ImGuiKey_Enter);
  user.frame(2);
  EXPECT_EQ(user.app().view().layer, "fc2");
}

TEST(App, SplittersMoveAndKeepTheirLimits) {
  AppDriver user(test::full_run());
  user.frame(2);
  const float left = user.app().settings().layout.left;
  user.drag("splitter/left", {60, 0});
  EXPECT_NEAR(user.app().settings().layout.left, left + 60, 12);
  user.drag("splitter/left", {-900, 0});
  EXPECT_GE(user.app().settings().layout.left, 140);
}

TEST(App, TheSheetOfKeysNamesEveryShortcut) {
  AppDriver user(test::full_run());
  user.frame(2);
  user.app().show_keys();
  user.frame(3);
  EXPECT_EQ(user.text("keys/title"), "Keyboard and mouse");
  user.press_named(ImGuiKey_Escape);
  user.frame(2);
  EXPECT_FALSE(user.has("keys/title"));
}

TEST(App, ADroppedFileClosesTheDialogThatWasOpen) {
  AppDriver user(test::make_run(test::hot_spec()));
  user.frame(2);
  user.app().view().edits.keep("conv2", true);
  user.press(letter_key('S'), {.ctrl = true});
  user.frame(2);
  ASSERT_TRUE(user.has("dialog/ok"));
  user.app().drop({"/no/such/run.hscope"});
  user.frame(2);
  EXPECT_FALSE(user.has("dialog/ok"));
  user.press_named(ImGuiKey_Enter);
  user.frame(2);
  EXPECT_TRUE(user.has("welcome/title"));
}

TEST(App, NothingIsSavedWithoutAnEdit) {
  AppDriver user(test::make_run(test::hot_spec()));
  user.frame(2);
  user.press(letter_key('S'), {.ctrl = true});
  user.frame(2);
  EXPECT_FALSE(user.has("dialog/ok"));
  EXPECT_NE(user.text("toast").find("Select a change"), std::string::npos);
}

TEST(App, ALayerWithNaNIsNeverTheBetterOne) {
  AppDriver user(test::make_run(test::hot_spec()), test::make_run(test::healthy_spec()));
  user.frame(2);
  user.app().view().maximized = Region::tabs;
  user.frame(3);
  user.click("tab/Compare runs");
  user.frame(2);
  int broken = 0;
  for (const auto& [path, item] : user.tracker().items()) {
    if (!path.starts_with("compare/layer/") || !path.ends_with("/here")) continue;
    if (item.text.find("NaN") == std::string::npos) continue;
    ++broken;
    EXPECT_EQ(user.text(path.substr(0, path.size() - 4) + "sign"), "worse") << path;
  }
  EXPECT_GT(broken, 0);
}

TEST(App, LayersAreComparedByTheLargestDifference) {
  AppDriver user(test::make_run(test::healthy_spec()), test::make_run(test::hot_spec()));
  user.frame(2);
  user.app().view().maximized = Region::tabs;
  user.app().view().lane = "mixed_float16";
  user.frame(3);
  user.click("tab/Compare runs");
  user.frame(2);
  EXPECT_EQ(user.text("compare/what"),
            "Worst rate over the whole run. This run: mixed_float16. Other run: mixed_float16.");
  // From top to bottom: the shares of both runs and whether one of them has NaN or Inf alone.
  std::map<float, double> differences;
  const auto share = [&](const std::string& path) {
    const std::string text = user.text(path);
    EXPECT_NE(text, "0%, NaN / Inf") << "nothing is lost but to NaN";
    if (!text.ends_with("%") && text.find("%,") == std::string::npos) return 0.0;
    return text.starts_with("<") ? 0.005 : std::stod(text);
  };
  for (const auto& [path, item] : user.tracker().items()) {
    if (!path.starts_with("compare/layer/") || !path.ends_with("/here")) continue;
    const std::string layer = path.substr(0, path.size() - 5);
    differences[item.min.y] = std::fabs(share(path) - share(layer + "/there"));
  }
  ASSERT_GE(differences.size(), 3u);
  EXPECT_GT(differences.begin()->second, 10.0) << "conv2 overflows in the other run";
  double before = 1e9;
  for (const auto& [y, difference] : differences) {
    EXPECT_LE(difference, before + 0.01) << "at " << y;
    before = difference;
  }
  EXPECT_EQ(user.text("compare/layer/fc1/there"), "NaN / Inf");
  EXPECT_EQ(user.text("compare/other/mixed_float16/loss"), "NaN");
}

TEST(App, TheFloatLabShowsAllFormats) {
  AppDriver user;
  ImGui::GetIO().DisplaySize = {1200, 760};
  ASSERT_TRUE(user.app().show_lab("fp16 0.1"));
  user.frame(4);
  for (const NamedFormat& each : named_formats()) {
    const TrackedItem row = user.item("lab/in/" + std::string(each.name));
    EXPECT_TRUE(row.visible) << each.name;
    EXPECT_LE(row.max.y, 760.0f) << each.name;
  }
  user.click("lab/in/bf16");
  user.frame(2);
  EXPECT_EQ(user.app().lab().shown(), kBf16);
  EXPECT_TRUE(user.has("lab/in/bf16")) << "the lab stays open";
}

TEST(App, ComparesTwoRuns) {
  AppDriver user(test::full_run(), test::make_run(test::hot_spec()));
  user.frame(2);
  user.click("tab/Compare runs");
  user.frame(2);
  const Report& other = *user.app().baseline()->report();
  EXPECT_EQ(user.text("compare/other/mixed_float16/skipped"),
            std::to_string(other.lanes[1].skipped));
  const RunModel* before = user.app().run();
  user.click("compare/swap");
  user.frame(2);
  EXPECT_EQ(user.app().baseline(), before);
}

// --- every kind of run --------------------------------------------------------------------------

RunView empty_run() {
  RunInfo info;
  info.model = "none";
  return RunView(info, RunStatus::interrupted);
}

RunView lanes_without_steps() {
  const RunView full = test::full_run();
  return RunView(full.info(), RunStatus::running);
}

RunView one_step() {
  test::RunSpec spec = test::healthy_spec();
  spec.steps = 1;
  return test::make_run(spec);
}

RunView all_nan() {
  test::RunSpec spec = test::healthy_spec();
  spec.nan_from_the_start = true;
  return test::make_run(spec);
}

struct Kind {
  const char* name;
  RunView (*make)();
};

class EveryRun : public testing::TestWithParam<Kind> {};

TEST_P(EveryRun, IsDrawnInEveryTabThemeAndSize) {
  AppDriver user(GetParam().make());
  user.frame(3);
  for (const char* tab :
       {"Recommendations", "Events", "Layer details", "Float lab", "Compare runs", "Log"}) {
    const std::string path = std::string("tab/") + tab;
    if (!user.has(path)) continue;  // a run without lanes has no tabs
    user.click(path);
    user.frame(2);
  }
  user.app().settings().dark = false;
  user.frame(2);
  for (const Region region : {Region::layers, Region::steps, Region::values, Region::tabs}) {
    user.app().view().maximized = region;
    user.frame(2);
  }
  user.app().view().maximized = Region::none;
  ImGui::GetIO().DisplaySize = {500, 340};
  user.frame(3);
  ImGui::GetIO().DisplaySize = {3000, 2000};
  user.app().settings().ui_scale = 2.0f;
  user.frame(3);
  EXPECT_GT(user.indices(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Gui, EveryRun,
    testing::Values(Kind{"Empty", empty_run}, Kind{"NoSteps", lanes_without_steps},
                    Kind{"OneStep", one_step}, Kind{"AllNaN", all_nan},
                    Kind{"Healthy", [] { return test::make_run(test::healthy_spec()); }},
                    Kind{"Full", test::full_run},
                    Kind{"Large", [] { return test::large_run(300); }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace halfscope::gui
