// SPDX-License-Identifier: MIT
// The heatmap's pixels, compared with the grids read one by one.
#include "gui/data/heat_picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/gui/plain_run.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

TEST(HeatPicture, IsTheWorstOfTheColumnsOfAPixel) {
  const auto run = test::model_of(test::full_run());
  const int lane = run->first_lane();
  std::vector<HeatRow> rows;
  for (size_t i = 0; i < run->lane(lane).layers.size(); ++i) rows.push_back({static_cast<int>(i)});
  const auto steps = static_cast<double>(run->step_count());
  constexpr size_t kWidth = 7;
  const HeatPicture picture =
      make_heat_picture(*run, lane, Metric::worst, RoleView::all, rows, 0.0, steps, kWidth);
  std::set<Heat> seen;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t x = 0; x < kWidth; ++x) {
      Heat expected = kNotMeasured;
      Spread spread = Spread::none;
      for (size_t c = 0; c < run->columns().size(); ++c) {
        const auto step = static_cast<double>(run->columns()[c].step);
        const double from = steps * static_cast<double>(x) / kWidth;
        const double to = steps * static_cast<double>(x + 1) / kWidth;
        if (step + 1.0 <= from || step >= to) continue;
        for (const int site : run->lane(lane).layers[row].sites) {
          const auto at = static_cast<size_t>(site);
          expected = std::max(expected, run->lane(lane).grid(Metric::worst).at(at, c));
          spread = std::max(spread, run->lane(lane).spread_at(site, static_cast<int>(c)));
        }
      }
      EXPECT_EQ(picture.heat(row, x), expected) << row << ' ' << x;
      EXPECT_EQ(picture.spread_at(row, x), spread) << row << ' ' << x;
      seen.insert(expected);
    }
  }
  EXPECT_GT(seen.size(), 1u);
}

TEST(HeatPicture, OfEqualCellsTheOneThatIsBrokenIsNamed) {
  RunView view(test::plain_info(1), RunStatus::complete);
  const float nan = std::nanf("");
  for (int64_t step = 0; step < 4; ++step) {
    view.add_window(1, 0, {.step = step, .step_count = 1, .stats = test::stats_of({1.0f, 2.0f})});
    view.add_window(
        1, 1,
        {.step = step, .step_count = 1, .stats = test::stats_of({1.0f, step == 2 ? nan : 3.0f})});
  }
  const auto run = test::model_of(std::move(view));
  const HeatCell cell =
      worst_cell(*run, 1, Metric::overflow, RoleView::all, {.layer = 0}, {.first = 0, .last = 4});
  EXPECT_EQ(cell.heat, kZeroHeat);
  EXPECT_EQ(cell.site, 1);
  EXPECT_EQ(cell.column, 2);
  EXPECT_EQ(worst_cell(*run, 1, Metric::overflow, RoleView::updates, {.layer = 0}, {0, 4}).site,
            -1);
}

/// float32 in fp32 and half in fp16: layer0 -> layer1 -> layer2.
RunInfo chain_info() {
  RunInfo info = test::plain_info(3);
  for (LaneInfo& lane : info.lanes) {
    const FloatFormat format = lane.name == "float32" ? kFp32 : kFp16;
    for (SiteInfo& site : lane.sites) site.format = format;
    for (int i = 0; i < 3; ++i) {
      LayerInfo layer;
      layer.path = "layer" + std::to_string(i);
      if (i > 0) layer.inputs = {"layer" + std::to_string(i - 1)};
      layer.read = layer.write = format;
      lane.layers.push_back(layer);
    }
  }
  return info;
}

void add(RunView& run, int lane, int layer, std::vector<float> values) {
  const FloatFormat format = lane == 0 ? kFp32 : kFp16;
  std::vector<float> rounded(values.size());
  run.add_window(lane, 2 * layer,
                 {.step = 0, .step_count = 1, .stats = measure(values, rounded, format)});
}

TEST(HeatPicture, NaNStartsInOneLayerAndOthersPassItOn) {
  RunView view(chain_info(), RunStatus::complete);
  for (int layer = 0; layer < 3; ++layer) add(view, 0, layer, {1.0f, 2.0f, 3.0f, 4.0f});
  const float nan = std::nanf("");
  add(view, 1, 0, {1.0f, 2.0f, 3.0f, 4.0f});
  add(view, 1, 1, {1.0f, 2.0f, 3.0f, 1e6f});  // overflows
  add(view, 1, 2, {nan, nan, 1e6f, 1.0f});
  const auto run = test::model_of(std::move(view));
  ASSERT_EQ(run->reference_of(1), 0);
  EXPECT_EQ(run->reference_of(0), -1);
  EXPECT_EQ(run->lane(1).spread_at(0, 0), Spread::none);
  EXPECT_EQ(run->lane(1).spread_at(2, 0), Spread::starts);
  EXPECT_EQ(run->lane(1).spread_at(4, 0), Spread::passes);
}

TEST(HeatPicture, WhatTheReferenceHasTooIsNoBlame) {
  // A mask's infinity is in both lanes; the lane's own underflow is a quarter of the values.
  const float inf = INFINITY;
  RunView view(chain_info(), RunStatus::complete);
  add(view, 0, 0, {-inf, 1.0f, 1e-9f, 2.0f});
  add(view, 1, 0, {-inf, 1.0f, 1e-9f, 2.0f});
  add(view, 0, 1, {1.0f, 1.0f, 1.0f, 1.0f});
  add(view, 1, 1, {1.0f, 1.0f, 1.0f, std::nanf("")});
  const auto run = test::model_of(std::move(view));
  EXPECT_EQ(run->lane(1).grid(Metric::non_finite).at(0, 0), kZeroHeat);
  EXPECT_EQ(run->lane(1).spread_at(0, 0), Spread::none);
  EXPECT_EQ(run->lane(1).grid(Metric::underflow).at(0, 0), heat_of(1.0 / 3.0));
  EXPECT_EQ(run->lane(1).spread_at(2, 0), Spread::starts)
      << "an infinity that the reference reads, too, does not excuse a NaN";
}

TEST(HeatPicture, StepsBetweenColumnsBelongToTheOneBefore) {
  const std::vector<Column> columns{{0, 1}, {5, 1}, {10, 1}};
  EXPECT_EQ(columns_between(columns, 0.0, 100.0), (ColumnSpan{0, 3}));
  EXPECT_EQ(columns_between(columns, 5.0, 6.0), (ColumnSpan{1, 2}));
  EXPECT_EQ(columns_between(columns, 7.2, 7.4), (ColumnSpan{1, 2}));
  EXPECT_EQ(columns_between(columns, 4.9, 5.1), (ColumnSpan{0, 2}));
  EXPECT_EQ(columns_between({}, 0.0, 9.0), (ColumnSpan{0, 0}));
}

}  // namespace
}  // namespace halfscope::gui
