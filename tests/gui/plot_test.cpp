// SPDX-License-Identifier: MIT
// The plot widget under the mouse of a driver: what it reports, and how much it draws.
#include "gui/widgets/plot.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/gui/ui_driver.h"

namespace halfscope::gui {
namespace {

/// One plot of 400 x 200 pixels at (100, 50), x from 0 to 100 and y from 0 to 10, in a window
/// with more below than it can show.
class OnePlot : public testing::Test {
 protected:
  OnePlot() {
    ui_.draw_with([this] { draw(); });
    ui_.frame(2);
  }

  void draw() {
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize({600, 400});
    ImGui::Begin("plots", nullptr, ImGuiWindowFlags_NoTitleBar | ImGuiWindowFlags_NoMove);
    {
      const PlotLook look{dark_theme(), ui_.fonts(), 1.0f};
      Plot plot(look, {.path = "plot",
                       .min = {100, 50},
                       .max = {500, 250},
                       .x = {.low = 0.0, .high = 100.0},
                       .y = {.low = 0.0, .high = 10.0}});
      if (inside_) inside_(plot);
      wheel_ += plot.wheel();
      pan_.x += plot.pan().x;
      pan_.y += plot.pan().y;
      if (plot.brushed()) brushed_ = plot.brushed();
      if (plot.clicked()) ++clicks_;
      if (plot.double_clicked()) ++double_clicks_;
      if (plot.action() != PlotAction::none) action_ = plot.action();
      if (plot.hovered()) pointer_ = {plot.pointer_x(), plot.pointer_y()};
    }
    ImGui::Dummy({10, 1000});
    scroll_ = ImGui::GetScrollY();
    ImGui::End();
  }

  UiDriver ui_;
  std::function<void(Plot&)> inside_;
  float wheel_ = 0.0f, scroll_ = 0.0f;
  ImVec2 pan_{};
  std::optional<std::pair<double, double>> brushed_;
  int clicks_ = 0, double_clicks_ = 0;
  PlotAction action_ = PlotAction::none;
  PlotPoint pointer_{};
};

TEST_F(OnePlot, KnowsWhereThePointerIs) {
  ui_.move_to({200, 100});
  EXPECT_NEAR(pointer_.x, 25.0, 1e-4);
  EXPECT_NEAR(pointer_.y, 7.5, 1e-4);
}

TEST_F(OnePlot, KeepsTheWheelFromTheWindow) {
  ui_.wheel_at({300, 150}, 2.0f);
  EXPECT_EQ(wheel_, 2.0f);
  ui_.wheel_at({300, 150}, -1.0f, {.shift = true});
  EXPECT_EQ(wheel_, 1.0f);
  EXPECT_EQ(scroll_, 0.0f);
  ui_.wheel_at({300, 350}, -2.0f);
  EXPECT_EQ(wheel_, 1.0f);
  EXPECT_GT(scroll_, 0.0f) << "beside the plot it scrolls as ever";
}

TEST_F(OnePlot, ADragPansByItsWholeLength) {
  ui_.drag_from({300, 150}, {-80, 30});
  EXPECT_FLOAT_EQ(pan_.x, -80.0f);
  EXPECT_FLOAT_EQ(pan_.y, 30.0f);
  EXPECT_EQ(clicks_, 0);
  ui_.drag_from({300, 350}, {-80, -200});
  EXPECT_FLOAT_EQ(pan_.x, -80.0f) << "it did not begin in the plot";
}

TEST_F(OnePlot, ShiftAndDragIsABrush) {
  ui_.drag_from({400, 150}, {-100, 10}, {.shift = true});
  ASSERT_TRUE(brushed_);
  EXPECT_NEAR(brushed_->first, 50.0, 1e-4);
  EXPECT_NEAR(brushed_->second, 75.0, 1e-4);
  EXPECT_EQ(pan_.x, 0.0f);
  EXPECT_EQ(clicks_, 0);
  ui_.drag_from({300, 100}, {900, 0}, {.shift = true});
  EXPECT_NEAR(brushed_->second, 100.0, 1e-4) << "it ends where the plot does";
}

TEST_F(OnePlot, ADoubleClickIsOneClickAndOneDoubleClick) {
  ui_.click_at({300, 150});
  EXPECT_EQ(clicks_, 1);
  EXPECT_EQ(double_clicks_, 0);
  ui_.double_click_at({300, 150});
  EXPECT_EQ(clicks_, 2);
  EXPECT_EQ(double_clicks_, 1);
}

TEST_F(OnePlot, TheMenuOffersTheData) {
  ui_.click_at({300, 150}, {}, 1);
  ui_.click("plot/copy");
  EXPECT_EQ(action_, PlotAction::copy);
  ui_.click_at({300, 150}, {}, 1);
  ui_.click("plot/export");
  EXPECT_EQ(action_, PlotAction::export_csv);
  EXPECT_EQ(clicks_, 0);
}

TEST_F(OnePlot, LinesCanBeDragged) {
  double x = 50.0, y = 2.0;
  bool moving = false;
  inside_ = [&](Plot& plot) {
    moving = plot.drag_v_line("plot/x", &x, IM_COL32_WHITE, "x");
    plot.drag_h_line("plot/y", &y, IM_COL32_WHITE, "y");
  };
  ui_.frame();
  ui_.drag("plot/x", {100, 0});
  EXPECT_NEAR(x, 75.0, 0.3);
  EXPECT_NEAR(y, 2.0, 1e-9) << "only one line is held";
  EXPECT_FALSE(moving);
  EXPECT_EQ(pan_.x, 0.0f) << "the plot stays";
  ui_.drag_from({150, 210}, {0, -500});
  EXPECT_NEAR(y, 10.0, 1e-6) << "it stays on the axis";
  ui_.drag_from({300, 150}, {20, 0});
  EXPECT_FLOAT_EQ(pan_.x, 20.0f);
}

TEST_F(OnePlot, AMillionPointsAreNoMoreThanPixelsCanShow) {
  constexpr size_t kCount = 1'000'000;
  inside_ = [](Plot& plot) {
    const Trace trace = reduce(plot.x(), kCount, [](size_t i) {
      return PlotPoint{static_cast<double>(i) * 1e-4, i % 2 == 0 ? 1.0 : 9.0};
    });
    EXPECT_LE(trace.points.size(), 802u);
    plot.line(trace, IM_COL32_WHITE, 1.0f);
  };
  const int before = ui_.indices();
  ui_.frame();
  EXPECT_GT(ui_.indices() - before, 400);
  EXPECT_LT(ui_.indices() - before, 802 * 12);
}

TEST_F(OnePlot, WhatHasNoPlaceIsLeftOut) {
  int before = 0;
  inside_ = [&](Plot& plot) {
    const double nan = std::nan(""), inf = HUGE_VAL;
    plot.line({.points = {{nan, 1.0}, {1.0, nan}, {2.0, inf}, {nan, nan}}}, IM_COL32_WHITE);
    plot.stairs({.points = {{nan, 1.0}, {1.0, nan}}}, nan, IM_COL32_WHITE);
    plot.mark(PlotMark::cross, nan, 1.0, IM_COL32_WHITE);
    plot.mark(PlotMark::dot, 1.0, inf, IM_COL32_WHITE);
    plot.bar(1.0, 2.0, 0.0, nan, IM_COL32_WHITE);
    plot.outline(nan, 2.0, 0.0, 1.0, IM_COL32_WHITE);
    plot.band(nan, -inf, IM_COL32_WHITE);
    plot.v_line(nan, IM_COL32_WHITE);
    plot.h_line(1e300, IM_COL32_WHITE);
  };
  before = ui_.indices();
  ui_.frame();  // the driver looks at every vertex
  EXPECT_LE(ui_.indices() - before, 6) << "at most the band, which fills the plot";
}

TEST(Legend, HidesAndShowsAlone) {
  UiDriver ui;
  std::vector<std::string> hidden{"elsewhere"};
  float right = 500.0f;
  ui.draw_with([&] {
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize({600, 200});
    ImGui::Begin("legend", nullptr, ImGuiWindowFlags_NoDecoration);
    draw_legend({dark_theme(), ui.fonts(), 1.0f},
                {{.path = "l/a", .label = "a"},
                 {.path = "l/b", .label = "b"},
                 {.path = "l/c", .label = "c", .mark = PlotMark::diamond}},
                right, hidden);
    ImGui::End();
  });
  ui.frame(2);
  EXPECT_NEAR(ui.item("l/c").max.x, 500.0f, 1.0f) << "flush right";
  EXPECT_EQ(ui.text("l/b"), "on");
  ui.click("l/b");
  EXPECT_EQ(hidden, (std::vector<std::string>{"elsewhere", "l/b"}));
  EXPECT_EQ(ui.text("l/b"), "off");
  ui.click("l/b");
  EXPECT_EQ(hidden, std::vector<std::string>{"elsewhere"});
  ui.double_click_at(ui.item("l/c").center());
  EXPECT_EQ(hidden, (std::vector<std::string>{"elsewhere", "l/a", "l/b"}));
  ui.click("l/a", {.alt = true});
  EXPECT_EQ(hidden, (std::vector<std::string>{"elsewhere", "l/b", "l/c"}));
  right = 60.0f;
  ui.frame(3);
  EXPECT_TRUE(ui.has("l/a"));
  EXPECT_FALSE(ui.has("l/c")) << "no room, not drawn over its neighbours";
}

TEST(PlotTable, JoinsSeriesByTheirFirstColumn) {
  PlotTable table("step");
  EXPECT_TRUE(table.empty());
  table.add("a", 2, [](size_t i) { return PlotPoint{static_cast<double>(i), 0.1}; });
  table.add("b", 2, [](size_t i) {
    return PlotPoint{static_cast<double>(i) + 1.0, i == 0 ? std::nan("") : HUGE_VAL};
  });
  EXPECT_EQ(table.text(','), "step,a,b\n0,0.1,\n1,0.1,\n2,,inf\n");
}

TEST(Elided, KeepsBothEnds) {
  UiDriver ui;
  ui.frame();
  ImFont& font = *ui.fonts().small;
  EXPECT_EQ(elided(font, "conv1", 500.0f), "conv1");
  const std::string name = elided(font, "encoder/block12/attention/query", 90.0f);
  EXPECT_TRUE(name.starts_with("enc")) << name;
  EXPECT_TRUE(name.ends_with("query")) << name;
  EXPECT_LE(font.CalcTextSizeA(font_size(font), 1e9f, 0.0f, name.c_str()).x, 90.0f);
  EXPECT_EQ(elided(font, "abcdef", 1.0f), "...");
  EXPECT_EQ(elided(font, "", 0.0f), "");
}

}  // namespace
}  // namespace halfscope::gui
