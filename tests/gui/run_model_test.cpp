// SPDX-License-Identifier: MIT
// RunModel: the pictures of a run compared with the statistics that they show.
#include "gui/data/run_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/policy/policy.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

std::shared_ptr<const RunModel> model_of(const RunView& view) {
  return RunModel::make("run.hscope", std::make_shared<const RunView>(view), true);
}

TEST(Heat, KeepsZeroNothingAndSmallApart) {
  EXPECT_EQ(heat_of(0.0), kZeroHeat);
  EXPECT_EQ(heat_of(std::nan("")), kZeroHeat);
  EXPECT_GT(heat_of(1e-9), kZeroHeat);
  EXPECT_EQ(heat_of(1.0), 255);
  EXPECT_LT(heat_of(1e-4), heat_of(1.2e-4));
  EXPECT_NEAR(heat_level(heat_of(1e-3)), 0.5, 0.004);
}

TEST(HeatGrid, TheWorstOfSeveralColumns) {
  HeatGrid grid(2, 3);
  grid.set(0, 1, 200);
  grid.set(1, 2, 90);
  std::vector<Heat> worst(2);
  grid.worst(0, 3, worst);
  EXPECT_EQ(worst, (std::vector<Heat>{200, 90}));
  grid.worst(0, 1, worst);
  EXPECT_EQ(worst, (std::vector<Heat>{kNotMeasured, kNotMeasured}));
  grid.worst(2, 99, worst);
  EXPECT_EQ(worst, (std::vector<Heat>{kNotMeasured, 90}));
}

TEST(RunModel, LayersStandInTheOrderInWhichTheirNodesRun) {
  // The weight of `second` is read before `first` runs, whose result `second` takes.
  RunInfo info;
  LaneInfo lane;
  lane.name = "half";
  for (const char* path : {"first", "second"}) lane.layers.emplace_back().path = path;
  for (const auto& [path, tensor] :
       std::vector<std::pair<const char*, const char*>>{{"input", "input"},
                                                        {"second", "weight"},
                                                        {"first", "activation"},
                                                        {"second", "activation"}}) {
    SiteInfo& site = lane.sites.emplace_back();
    site.path = path;
    site.tensor = tensor;
    site.format = kFp16;
    site.order = static_cast<int>(lane.sites.size()) - 1;
  }
  info.lanes.push_back(lane);
  const auto run = model_of(RunView(info, RunStatus::complete));
  const LaneModel& model = run->lane(0);
  ASSERT_EQ(model.layers.size(), 3u);
  EXPECT_EQ(model.layers[0].path, "input");
  EXPECT_EQ(model.layers[1].path, "first");
  EXPECT_EQ(model.layers[2].path, "second");
  EXPECT_EQ(model.layers[2].sites, (std::vector<int>{1, 3}));
  EXPECT_EQ(model.layer_of_site, (std::vector<int>{0, 2, 1, 2}));
  EXPECT_EQ(run->find_layer(0, "second"), 2);
}

TEST(RunModel, CellsAreTheSharesOfTheirWindows) {
  const RunView view = test::full_run();
  const auto model = model_of(view);
  ASSERT_GT(model->columns().size(), 0u);
  int cells = 0;
  for (int lane = 0; lane < view.lane_count(); ++lane) {
    for (size_t site = 0; site < view.lane(lane).sites.size(); ++site) {
      for (const StatsWindow& window : view.windows(lane, static_cast<int>(site))) {
        const int column = model->column_of(window.step);
        ASSERT_EQ(model->columns()[static_cast<size_t>(column)].step, window.step);
        const Heat heat =
            model->lane(lane).grid(Metric::overflow).at(site, static_cast<size_t>(column));
        if (window.stats.n == 0) {
          EXPECT_EQ(heat, kNotMeasured);
        } else {
          EXPECT_EQ(heat, heat_of(static_cast<double>(window.stats.overflow) /
                                  static_cast<double>(window.stats.n)));
          EXPECT_EQ(model->stats(lane, static_cast<int>(site), column), window.stats);
          ++cells;
        }
      }
    }
  }
  EXPECT_GT(cells, 0);
}

// A lane that failed before its first step has nothing to show.
TEST(RunModel, PassesOverALaneThatNeverBegan) {
  RunInfo info;
  for (const char* name : {"mixed_float16", "float32", "bfloat16"}) {
    LaneInfo& lane = info.lanes.emplace_back();
    lane.name = name;
    lane.backend = "cuda";
    lane.plan_json = plan_to_json(preset_plan(name).value());
    lane.sites.push_back(
        {.path = "fc1", .tensor = "activation", .op = "Gemm", .format = kFp16, .shape = {4}});
  }
  for (const bool with_bfloat16 : {true, false}) {
    RunView run(info, RunStatus::complete);
    for (int lane = 1; lane < (with_bfloat16 ? 3 : 2); ++lane) {
      for (const int64_t step : {0, 1}) run.add_step(lane, {.step = step, .loss = 1.0});
    }
    run.set_lost(0, {0, "out of memory"});
    if (!with_bfloat16) run.set_lost(2, {0, "out of memory"});
    const auto model = model_of(run);
    EXPECT_EQ(model->first_lane(), with_bfloat16 ? 2 : 1);
    EXPECT_EQ(model->step_row(0, 0), nullptr);
    EXPECT_EQ(model->stats(0, 0, 0), std::nullopt);
    EXPECT_EQ(model->lane(0).layers.size(), 1u);
  }
}

TEST(RunModel, LooksAtTheLaneThatSuffers) {
  const auto model = model_of(test::full_run());
  ASSERT_NE(model->report(), nullptr);
  EXPECT_EQ(model->first_lane(), model->report()->sick);
  const LaneModel& lane = model->lane(model->first_lane());
  bool named = false;
  for (const LayerModel& layer : lane.layers) named |= layer.severity.has_value();
  EXPECT_TRUE(named) << "findings stand at their layers";
}

TEST(RunModel, StepsWithoutAColumnBelongToTheOneBefore) {
  const auto model = model_of(test::full_run());
  const Column first = model->columns().front();
  EXPECT_EQ(model->column_of(first.step - 1), -1);
  EXPECT_EQ(model->column_of(first.step), 0);
  EXPECT_EQ(model->column_of(1'000'000), static_cast<int>(model->columns().size()) - 1);
}

}  // namespace
}  // namespace halfscope::gui
