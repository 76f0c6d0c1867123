// SPDX-License-Identifier: MIT
// The Spectrum screen as a user drives it: formats, the loss scale, rows, time, answers.
#include "gui/panels/spectrum.h"

#include <gmock/gmock.h>

#include <cmath>

#include "gui/data/tensor_history.h"
#include "gui/panels/spectrum_plot.h"
#include "tests/gui/app_driver.h"
#include "tests/gui/plain_run.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// One reduced lane beside a reference: layers in two groups whose gradients underflow in fp16.
RunView small_gradients(int64_t steps = 12) {
  RunInfo info = test::plain_info(0);
  info.model = "small";
  for (LaneInfo& lane : info.lanes) {
    lane.plan_json.clear();
    for (const char* path : {"body/a", "body/b", "head"}) {
      for (const Role role : {Role::activation, Role::activation_grad, Role::weight}) {
        SiteInfo site{.path = path,
                      .tensor = role_name(role),
                      .role = role,
                      .phase = role == Role::activation_grad ? Phase::backward : Phase::forward,
                      .op = "Gemm",
                      .format = kFp16,
                      .shape = {4}};
        site.order = static_cast<int>(lane.sites.size());
        lane.sites.push_back(site);
      }
    }
  }
  RunView run(info, RunStatus::complete);
  for (int64_t step = 0; step < steps; ++step) {
    for (int lane = 0; lane < 2; ++lane) {
      run.add_step(lane, {.step = step, .loss = 1.0, .loss_scale = 1.0});
      for (const SiteInfo& site : run.lane(lane).sites) {
        const float size = site.role != Role::activation_grad ? 1.0f
                           : site.path == "body/b"            ? 0x1p-30f
                                                              : 0x1p-10f;
        run.add_window(lane, site.order,
                       {.step = step,
                        .step_count = 1,
                        .stats = test::stats_of({size, size, 2 * size, 4 * size})});
      }
    }
  }
  return run;
}

class SpectrumScreen : public testing::Test {
 protected:
  AppDriver user_{small_gradients(), {}, {}, Screen::spectrum};
  ViewState& view() { return user_.app().view(); }
  SpectrumScreen() { user_.frame(3); }
  /// Returns the middle of a row in a chart, by the place of rows in draw_spectrum().
  ImVec2 row_place(const char* chart, int row, int rows) {
    const TrackedItem& item = user_.item(chart);
    const float height = item.max.y - item.min.y;
    const float peak = std::clamp(height * 0.14f, 24.0f, 64.0f);
    const float pitch = std::clamp((height - peak) / static_cast<float>(rows - 1), 4.5f, 56.0f);
    return {item.center().x, item.min.y + peak + static_cast<float>(row) * pitch - 2.0f};
  }
};

TEST_F(SpectrumScreen, EveryFormatSaysWhatTheRunWouldLose) {
  // body/b has four gradients of 2^-30 to 2^-28; there are 24 values in the two charts.
  EXPECT_EQ(user_.text("windows/recorded"), "16.7% lost");
  EXPECT_EQ(user_.text("windows/fp32"), "0 lost");
  EXPECT_EQ(user_.text("windows/bf16"), "0 lost");
  EXPECT_THAT(user_.text("windows/answer"), HasSubstr("body/b.activation_grad lost most: 100%"));
  user_.click("windows/e4m3fn");
  EXPECT_EQ(view().window, "e4m3fn");
  user_.frame(2);
  // The other gradients, 2^-10 to 2^-8: 2^-10 is a tie and only counts as kept in the bound.
  EXPECT_THAT(user_.text("windows/answer"), HasSubstr("A scale per tensor would save all of them"));
  user_.click("windows/per_tensor");
  EXPECT_EQ(view().window, "e4m3fn/tensor");
  user_.frame(2);
  EXPECT_EQ(user_.text("windows/e4m3fn"), "0 lost");
  EXPECT_THAT(user_.text("windows/answer"), HasSubstr("can represent every value"));
}

TEST_F(SpectrumScreen, AnyFormatCanBeTyped) {
  user_.click("windows/other");
  user_.type("e5m9");
  user_.frame(2);
  EXPECT_EQ(view().window, "e5m9");
  EXPECT_THAT(user_.text("windows/answer"), StartsWith("e5m9 would"));
  user_.type("x");
  user_.frame(2);
  EXPECT_THAT(user_.text("windows/answer"), StartsWith("'e5m9x': "));
}

TEST_F(SpectrumScreen, DraggingGradientsSlidesTheLossScale) {
  EXPECT_EQ(user_.text("spectrum/Gradients/lost"), "33.3% lost");
  user_.drag("spectrum/Gradients", {-200, 0});
  user_.frame(2);
  EXPECT_GE(view().scale_shift, 6.0);
  EXPECT_EQ(view().scale_shift, std::round(view().scale_shift));
  EXPECT_THAT(user_.text("spectrum/Gradients/lost"), StartsWith("33.3% lost"));
  EXPECT_THAT(user_.text("spectrum/Gradients/lost"), testing::EndsWith(" 0"));
  EXPECT_EQ(user_.text("spectrum/Activations/lost"), "0 lost");
  user_.click("windows/scale/use");
  EXPECT_EQ(view().edits.loss_scale(), std::exp2(view().scale_shift));
  user_.click("windows/scale/reset");
  EXPECT_EQ(view().scale_shift, 0.0);
}

TEST_F(SpectrumScreen, DraggingActivationsSlidesNothing) {
  user_.drag("spectrum/Activations", {-200, 0});
  EXPECT_EQ(view().scale_shift, 0.0);
}

TEST_F(SpectrumScreen, FitFindsALossScaleThatLosesNothing) {
  user_.click("windows/scale/fit");
  user_.frame(2);
  EXPECT_THAT(user_.text("spectrum/Gradients/lost"), testing::EndsWith(" 0"));
  // 2^-30 becomes subnormal from a scale of 2^6 on, and 2^-8 stays below 2^16 up to 2^23.
  EXPECT_EQ(view().scale_shift, 14.0);
}

TEST_F(SpectrumScreen, AClickSelectsALayerAndADoubleClickShowsItsDetails) {
  user_.click_at(row_place("spectrum/Gradients", 1, 3));
  EXPECT_EQ(view().layer, "body/b");
  EXPECT_EQ(view().site, "body/b.activation_grad");
  EXPECT_EQ(view().screen, Screen::spectrum);
  user_.double_click_at(row_place("spectrum/Activations", 2, 3));
  EXPECT_EQ(view().layer, "head");
  EXPECT_EQ(view().screen, Screen::details);
}

TEST_F(SpectrumScreen, GroupsFoldAndOpen) {
  view().layer = "body/a";
  user_.frame(2);
  user_.press(letter_key('G'));
  user_.frame(2);
  EXPECT_THAT(view().closed, ElementsAre("body"));
  user_.move_to(row_place("spectrum/Gradients", 0, 2));
  user_.frame(2);
  EXPECT_THAT(user_.text("spectrum/Gradients/tip"), StartsWith("body (2 layers)"));
  EXPECT_THAT(user_.text("spectrum/Gradients/tip"), HasSubstr("body/b.activation_grad"));
  user_.click_at(row_place("spectrum/Gradients", 0, 2));
  user_.frame(2);
  EXPECT_TRUE(view().closed.empty());
  EXPECT_THAT(view().opened, ElementsAre("body"));
}

TEST_F(SpectrumScreen, TheListOfLayersHasTheSameGroups) {
  view().screen = Screen::details;
  user_.frame(2);
  ASSERT_TRUE(user_.has("layers/group/body"));
  EXPECT_TRUE(user_.has("layers/row/body/a"));
  EXPECT_LT(user_.item("layers/group/body").min.y, user_.item("layers/row/body/a").min.y);
  user_.click("layers/group/body");
  user_.frame(2);
  EXPECT_FALSE(user_.has("layers/row/body/a"));
  EXPECT_TRUE(user_.has("layers/row/head"));
  EXPECT_THAT(view().closed, ElementsAre("body"));
  view().order = LayerOrder::name;
  user_.frame(2);
  EXPECT_TRUE(user_.has("layers/row/body/a")) << "groups are in order of execution only";
  view().order = LayerOrder::execution;
  user_.frame(2);
  user_.click("layers/group/body");
  user_.frame(2);
  EXPECT_TRUE(user_.has("layers/row/body/b"));
}

TEST_F(SpectrumScreen, ChartsComeAndGo) {
  EXPECT_FALSE(user_.has("spectrum/Weights"));
  user_.click("spectrum/show/Weights");
  user_.frame(2);
  EXPECT_TRUE(user_.has("spectrum/Weights"));
  EXPECT_FALSE(user_.has("spectrum/show/Updates")) << "nothing of this kind was recorded";
  user_.click("spectrum/show/Gradients");
  user_.click("spectrum/show/Activations");
  user_.frame(2);
  user_.click("spectrum/show/Weights");
  EXPECT_THAT(view().charts, ElementsAre(SpectrumChart::weights)) << "the last one stays";
}

TEST_F(SpectrumScreen, SpacePlaysToTheEnd) {
  view().cursor = -1;
  user_.press_named(ImGuiKey_Space);
  EXPECT_TRUE(view().playing);
  EXPECT_LT(view().cursor, 3);
  EXPECT_TRUE(user_.app().draws_on());
  int64_t before = view().cursor;
  for (int i = 0; i < 200 && view().playing; ++i) {
    user_.frame();
    EXPECT_GE(view().cursor, before);
    before = view().cursor;
  }
  EXPECT_FALSE(view().playing);
  EXPECT_EQ(view().cursor, 11);
}

TEST_F(SpectrumScreen, TheTimelineIsScrubbed) {
  const TrackedItem& track = user_.item("timeline/track");
  user_.click_at({track.min.x + 1.0f, track.center().y});
  EXPECT_EQ(view().cursor, 0);
  EXPECT_EQ(user_.text("timeline/step"), "step 0 of 11");
  user_.drag("timeline/track", {4000, 0});
  EXPECT_EQ(view().cursor, 11);
}

TEST_F(SpectrumScreen, KeysChooseFormatsAndScales) {
  user_.press(symbol_key('.'));
  EXPECT_EQ(view().window, "fp32");
  user_.press(symbol_key(','));
  user_.press(symbol_key(','));
  EXPECT_EQ(view().window, "nvfp4");
  user_.press(symbol_key('='));
  user_.press(symbol_key('='));
  user_.press(symbol_key('-'));
  EXPECT_EQ(view().scale_shift, 1.0);
  user_.press(letter_key('V'));
  EXPECT_EQ(view().screen, Screen::details);
}

TEST_F(SpectrumScreen, SwitchesAreReachedByKeys) {
  const auto run = [&](std::string_view action) {
    user_.press(letter_key('P'), {.ctrl = true});
    user_.frame(2);
    user_.type(action);
    user_.frame(2);
    user_.press_named(ImGuiKey_Enter);
    user_.frame(2);
  };
  run("loss scale at which gradients lose least");
  EXPECT_EQ(view().scale_shift, 14.0) << "as by the button";
  run("use this loss scale in the plan");
  EXPECT_EQ(view().edits.loss_scale(), std::exp2(14.0));
  run("chart: gradients");
  EXPECT_FALSE(user_.has("spectrum/Gradients"));
  run("chart: gradients");
  EXPECT_TRUE(user_.has("spectrum/Gradients"));
  run("format of the spectrum: e4m3");
  run("scale per tensor");
  EXPECT_EQ(view().window, "e4m3fn/tensor");
  run("scale per tensor");
  EXPECT_EQ(view().window, "e4m3fn");
  run("format of the spectrum: mxfp8");
  run("scale per tensor");
  EXPECT_EQ(view().window, "mxfp8") << "it has a scale per block";
  user_.press(letter_key('E'));
  EXPECT_TRUE(view().merge_steps);
  user_.press(letter_key('C'));
  EXPECT_EQ(view().wipe, 1.0) << "there is nothing on the other side";
  view().layer.clear();
  view().site.clear();
  user_.press(letter_key('H'));
  EXPECT_EQ(view().layer, "body/b") << "the layer of the worst finding";
}

/// The fixed lane is another one of the run.
TEST(SpectrumAnswers, SayWhyAndWhatToDo) {
  AppDriver user(test::make_run(test::hot_spec()), {}, {}, Screen::spectrum);
  user.app().view().lane = "mixed_float16";
  user.frame(3);
  EXPECT_THAT(user.text("answers/cause"), HasSubstr("conv2"));
  EXPECT_THAT(user.text("answers/hop/0"), StartsWith("conv2 "));
  user.app().view().layer.clear();
  user.click("answers/hop/0");
  EXPECT_EQ(user.app().view().layer, "conv2");
  EXPECT_THAT(user.text("answers/proof/text"), StartsWith("Not tried yet"));
  user.click("answers/fix/0/what_if");
  EXPECT_THAT(user.app().view().edits.fp32_layers(), testing::Contains("conv2"));
}

TEST(SpectrumAnswers, AProofIsShown) {
  AppDriver user(test::full_run(), {}, {}, Screen::spectrum);
  user.app().view().lane = "mixed_float16";
  user.frame(3);
  EXPECT_FALSE(user.text("answers/proof/text").empty());
  EXPECT_THAT(user.text("answers/proof/text"), testing::Not(StartsWith("Not tried")));
  // The lane that keeps the layers in fp32 is on the other side of the wipe.
  ASSERT_TRUE(user.has("spectrum/wipe"));
  user.click("spectrum/wipe/after");
  user.frame(2);
  EXPECT_EQ(user.app().view().wipe, 0.0);
  user.click("spectrum/wipe/before");
  EXPECT_EQ(user.app().view().wipe, 1.0);
  // The line itself is dragged in from the right edge of a chart.
  user.frame(2);
  const TrackedItem chart = user.item("spectrum/Activations");
  user.drag("spectrum/Activations/wipe", {-(chart.max.x - chart.min.x) / 2, 0});
  EXPECT_NEAR(user.app().view().wipe, 0.5, 0.02);
}

TEST(SpectrumAnswers, HealthyRunsAnswerWhetherAnotherFormatWouldDo) {
  AppDriver user(small_gradients(), {}, {}, Screen::spectrum);
  user.frame(3);
  ASSERT_TRUE(user.has("answers/format/bf16/lost"));
  EXPECT_EQ(user.text("answers/format/bf16/lost"), "0 lost");
  user.click("answers/format/mxfp8");
  EXPECT_EQ(user.app().view().window, "mxfp8");
}

TEST(Spectrum, ASmallWindowSwitchesBetweenChartsAndAnswers) {
  AppDriver user(small_gradients(), {}, {}, Screen::spectrum);
  ImGui::GetIO().DisplaySize = {1024, 640};
  user.frame(3);
  EXPECT_TRUE(user.has("spectrum/Gradients"));
  EXPECT_FALSE(user.has("answers/format/bf16/lost"));
  user.click("spectrum/answers");
  user.frame(2);
  EXPECT_FALSE(user.has("spectrum/Gradients"));
  EXPECT_TRUE(user.has("answers/format/bf16/lost"));
}

TEST(Spectrum, DrawsWhateverARunLacks) {
  RunInfo none;
  RunView no_windows(test::plain_info(2), RunStatus::complete);
  for (int64_t step = 0; step < 5; ++step) no_windows.add_step(0, {.step = step, .loss = 1.0});
  test::RunSpec nan_spec = test::healthy_spec();
  nan_spec.nan_from_the_start = true;
  nan_spec.steps = 6;
  nan_spec.elements = 32;
  RunInfo inference = test::plain_info(2);
  inference.inference = true;
  std::vector<RunView> runs;
  runs.emplace_back(none, RunStatus::running);
  runs.emplace_back(test::plain_info(0), RunStatus::running);
  runs.emplace_back(inference, RunStatus::complete);
  runs.push_back(std::move(no_windows));
  runs.push_back(test::plain_run(1, 1));
  runs.push_back(test::make_run(nan_spec));
  runs.push_back(test::full_run());
  runs.push_back(test::large_run(1000));
  for (RunView& run : runs) {
    AppDriver user(std::move(run), {}, {}, Screen::spectrum);
    user.frame(3);
    for (const char* window :
         {"", "fp32", "e4m3fn/tensor", "nvfp4", "e2m1", "not a format", "nvfp4/tensor"}) {
      user.app().view().window = window;
      user.app().view().merge_steps = !user.app().view().merge_steps;
      user.app().view().scale_shift -= 9.0;
      user.app().view().wipe -= 0.2;
      user.frame(2);
    }
    if (!user.has("spectrum/Activations")) continue;
    user.hover("spectrum/Activations");
    user.wheel("spectrum/Activations", -2.0f);
    user.click("spectrum/Activations");
    user.drag("spectrum/Activations", {40, 10});
    user.frame(2);
  }
}

TEST(Spectrum, AChartOfNaNAloneDoesNotSayThatNothingIsLost) {
  RunView run(test::plain_info(1), RunStatus::complete);
  for (int lane = 0; lane < 2; ++lane) {
    run.add_step(lane, {.step = 0, .loss = 1.0});
    run.add_window(lane, 0, {0, 1, test::stats_of({1.0f, 2.0f})});
    run.add_window(lane, 1, {0, 1, test::stats_of({std::nanf(""), INFINITY})});
  }
  AppDriver user(std::move(run), {}, {}, Screen::spectrum);
  user.app().view().lane = "half";
  user.frame(3);
  EXPECT_EQ(user.text("spectrum/Gradients/lost"), "only NaN and infinities");
  EXPECT_EQ(user.text("spectrum/Activations/lost"), "0 lost");
}

TEST(Spectrum, ALongListFoldsUntilItFits) {
  AppDriver user(test::large_run(1000), {}, {}, Screen::spectrum);
  user.frame(3);
  const int with_all = user.indices();
  EXPECT_GT(with_all, 1000);
  EXPECT_LT(with_all, 400'000);
}

TEST(RowsToLabel, TheMostImportantOnesThatDoNotTouch) {
  // Two rows of five pixels are needed for each label of ten.
  EXPECT_THAT(rows_to_label({1, 2, 3, 4, 5}, 5.0f, 10.0f), ElementsAre(0, 2, 4));
  EXPECT_THAT(rows_to_label({1, 9, 0, 4, 5}, 5.0f, 10.0f), ElementsAre(1, 4));
  EXPECT_THAT(rows_to_label({1, 1, 1}, 12.0f, 10.0f), ElementsAre(0, 1, 2));
  EXPECT_THAT(rows_to_label({0, 0}, 12.0f, 10.0f), testing::IsEmpty());
}

TEST(TensorHistory, HasTheSharesOfEveryStep) {
  const auto run = std::make_shared<const RunView>(test::plain_run(1, 3));
  TensorHistory history;
  history.update(run, 0, 0);
  ASSERT_EQ(history.moments().size(), 3u);
  EXPECT_EQ(history.low(), -1);  // 0.5
  EXPECT_EQ(history.high(), 3);  // 8
  EXPECT_THAT(history.moments()[1].shares, ElementsAre(1.0f / 3, 0.0f, 1.0f / 3, 0.0f, 1.0f / 3));
  const int generation = history.generation();
  history.update(run, 0, 0);
  EXPECT_EQ(history.generation(), generation) << "the same tensor is not collected again";
}

TEST(TensorHistory, TheHistogramBesideItIsOfTheStepOrOfAllVisibleOnes) {
  // The tensor has 0.5, 2 and 8, but 0.5, 2 and 1e6 = 2^19.9 in step 50.
  AppDriver user(test::plain_run(2, 52), {}, {}, Screen::spectrum);
  ViewState& view = user.app().view();
  view.lane = user.app().run()->view().lane(1).name;
  view.layer = "layer1";
  view.site = "layer1.weight_grad";
  view.cursor = 50;
  user.frame(3);
  ASSERT_TRUE(user.has("history/shares"));
  EXPECT_EQ(user.text("history/shares"), "-1:0.3333 1:0.3333 19:0.3333 ");
  view.cursor = 49;
  user.frame(2);
  EXPECT_EQ(user.text("history/shares"), "-1:0.3333 1:0.3333 3:0.3333 ");
  view.merge_steps = true;
  view.range = {48.0, 51.0};
  user.frame(2);
  EXPECT_EQ(user.text("history/shares"), "-1:0.3333 1:0.3333 3:0.2500 19:0.0833 ");
}

}  // namespace
}  // namespace halfscope::gui
