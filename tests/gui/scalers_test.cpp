// SPDX-License-Identifier: MIT
// Loss scales of lanes and of frameworks' scalers side by side. Expected scales are worked out by
// hand from the gradients of plain_run().
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "gui/data/scaler_study.h"
#include "tests/gui/panel_fixture.h"
#include "tests/gui/plain_run.h"

namespace halfscope::gui {
namespace {

TEST(Scalers, StartWithTheRecordedLanes) {
  PanelFixture panel(test::plain_run(3, 60), draw_scalers, {1300, 300});
  panel.view().lane = "half";
  panel.ui().frame(2);
  EXPECT_EQ(panel.ui().text("scalers/lane/half/skipped"), "1");
  EXPECT_EQ(panel.ui().text("scalers/lane/half/last"), "2^9");
  EXPECT_FALSE(panel.ui().has("scalers/lane/float32"));  // without a loss scale
  EXPECT_FALSE(panel.ui().has("scalers/trace/torch"));
}

TEST(Scalers, ShowWhatOtherFrameworksWouldDo) {
  // The largest gradient is 8 at scale 1024, so it overflows from 65520 / 8 * 1024 on. In step 50
  // that of layer1 is 1e6 at scale 512, which allows less than 33.5.
  PanelFixture panel(test::plain_run(3, 60), draw_scalers, {1300, 400});
  panel.view().lane = "half";
  panel.ui().frame(2);
  panel.ui().click("scalers/try");
  panel.ui().frame(2);
  EXPECT_TRUE(panel.view().try_scalers);
  EXPECT_EQ(panel.ui().text("scalers/trace/torch/skipped"), "1");
  EXPECT_EQ(panel.ui().text("scalers/trace/torch/last"), "2^15");
  EXPECT_EQ(panel.ui().text("scalers/trace/tf-keras/last"), "2^14");
  EXPECT_EQ(panel.ui().text("scalers/trace/static/skipped"), "0");
  EXPECT_EQ(panel.ui().text("scalers/trace/static/last"), "2^5");
  EXPECT_EQ(panel.ui().text("scalers/trace/static/end"), "fits");
  EXPECT_EQ(panel.ui().text("scalers/trace/torch/about"), "Skips 1 step.");
}

TEST(Scalers, NameTheGradientsThatLimitTheScale) {
  PanelFixture panel(test::plain_run(3, 60), draw_scalers, {1300, 400});
  panel.view().lane = "half";
  panel.view().try_scalers = true;
  panel.ui().frame(2);
  EXPECT_EQ(panel.ui().text("scalers/ceiling/layer1.weight_grad"), "layer1.weight_grad 2^5.1");
  panel.ui().click("scalers/ceiling/layer1.weight_grad");
  EXPECT_EQ(panel.view().site, "layer1.weight_grad");
}

TEST(Scalers, StepsThatOverflowAtAnyScaleAreCounted) {
  RunView run = test::plain_run(2, 3);
  // The forward pass of step 3 is not finite, so no loss scale helps.
  for (int lane = 0; lane < 2; ++lane) {
    run.add_step(lane, {.step = 3,
                        .loss = 1.0,
                        .loss_scale = lane == 0 ? 1.0 : 1024.0,
                        .skipped = lane == 1,
                        .first_bad = lane == 1 ? 0 : -1});
    for (const SiteInfo& site : run.lane(lane).sites) {
      run.add_window(lane, site.order,
                     {.step = 3, .step_count = 1, .stats = test::stats_of({1e6f, 1.0f})});
    }
  }
  PanelFixture panel(std::move(run), draw_scalers, {1300, 400});
  panel.view().lane = "half";
  panel.view().try_scalers = true;
  panel.ui().frame(2);
  EXPECT_EQ(panel.ui().text("scalers/ceiling/any"), "1 step at any scale");
}

TEST(Scalers, AClickEmphasisesOne) {
  PanelFixture panel(test::plain_run(3, 60), draw_scalers, {1300, 400});
  panel.view().lane = "half";
  panel.view().try_scalers = true;
  panel.ui().frame(2);
  panel.ui().click("scalers/trace/torch");
  EXPECT_EQ(panel.view().scaler, "torch");
  panel.ui().click("scalers/trace/torch");
  EXPECT_EQ(panel.view().scaler, "");
}

TEST(Scalers, TheTooltipHasEveryScaleOfAStep) {
  PanelFixture panel(test::plain_run(3, 60), draw_scalers, {1300, 400});
  panel.view().lane = "half";
  panel.view().try_scalers = true;
  panel.ui().frame(2);
  panel.ui().hover("scalers/plot");
  panel.ui().frame(2);
  const std::string tip = panel.ui().text("scalers/plot/tip");
  EXPECT_NE(tip.find("half (recorded) 2^10"), std::string::npos) << tip;
  EXPECT_NE(tip.find("torch 2^16"), std::string::npos) << tip;
  EXPECT_NE(tip.find("less than 2^23"), std::string::npos) << tip;
}

TEST(Scalers, SayWhyThereIsNothing) {
  RunInfo info = test::plain_info(2);
  for (LaneInfo& lane : info.lanes) {
    for (SiteInfo& site : lane.sites) site.format = kFp32;
  }
  RunView run(info, RunStatus::complete);
  for (int lane = 0; lane < 2; ++lane) run.add_step(lane, {.step = 0, .loss = 1.0});
  PanelFixture panel(std::move(run), draw_scalers, {1300, 400});
  panel.view().try_scalers = true;
  panel.ui().frame(2);
  EXPECT_NE(panel.ui().text("scalers/state").find("needs no loss scale: its gradients are"),
            std::string::npos);
  EXPECT_EQ(panel.ui().text("scalers/empty"), "No lane of this run uses a loss scale.");
}

TEST(ScalerStudies, OfLargeRunsAreMadeInTheBackground) {
  const auto run = std::make_shared<const RunView>(test::plain_run(60, 400));
  ScalerStudies studies;
  const ScalerStudy* study = studies.of(run, 1);
  EXPECT_EQ(study, nullptr);
  for (int i = 0; i < 6000 && study == nullptr; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    study = studies.of(run, 1);
  }
  ASSERT_NE(study, nullptr);
  EXPECT_EQ(study->demands.steps.size(), 400u);
  EXPECT_EQ(studies.of(run, 1), study);
}

}  // namespace
}  // namespace halfscope::gui
