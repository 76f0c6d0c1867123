// SPDX-License-Identifier: MIT
// Loss, heatmap and magnitudes: their texts match the numbers of the run, and the mouse changes the
// ViewState that all panels share.
#include <gtest/gtest.h>

#include <cmath>

#include "analysis/rules/text.h"
#include "gui/panels/panel.h"
#include "gui/widgets/plot_math.h"
#include "tests/gui/plain_run.h"
#include "tests/gui/ui_driver.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

/// The three panels stacked, as in the application.
class StepPanels : public testing::Test {
 protected:
  void show(std::shared_ptr<const RunModel> run) {
    run_ = std::move(run);
    ui_.draw_with([this] { draw(); });
    ui_.frame(3);
  }

  void draw() {
    view.begin_frame();
    const Frame frame{view,         *run_,       nullptr, resolve_selection(*run_, view),
                      dark_theme(), ui_.fonts(), 1.0f,    textures_,
                      requests_,    caches_};
    at_ = frame.at;
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize({900, 700});
    ImGui::Begin("steps", nullptr, ImGuiWindowFlags_NoDecoration);
    void (*const panels[])(const Frame&){draw_loss, draw_heatmap, draw_magnitudes};
    int id = 0;
    for (const float height : {160.0f, 320.0f, 190.0f}) {
      ImGui::BeginChild(++id, {0, height}, true);
      panels[id - 1](frame);
      EXPECT_EQ(ImGui::GetScrollMaxY(), 0.0f) << "panel " << id << " is higher than its room";
      ImGui::EndChild();
    }
    ImGui::End();
  }

  /// Returns the middle of the step on the screen, in whole pixels as for the mouse.
  ImVec2 place_of(const char* plot, double step, float down = 0.5f) {
    const TrackedItem& item = ui_.item(plot);
    const StepSpan span = span_of(view.range, run_->step_count());
    const double share = (step + 0.5 - span.from) / span.width();
    return {std::floor(item.min.x + static_cast<float>(share) * (item.max.x - item.min.x)),
            std::floor(item.min.y + down * (item.max.y - item.min.y))};
  }
  std::string tip(const char* plot) {
    const std::string path = std::string(plot) + "/tip";
    return ui_.has(path) ? ui_.text(path) : "";
  }
  int pixels_of(ImU32 color) {
    const MemoryTextures::Picture* picture = textures_.find("heatmap");
    if (picture == nullptr) return -1;
    return static_cast<int>(std::count(picture->rgba.begin(), picture->rgba.end(), color));
  }

  UiDriver ui_;
  ViewState view;
  MemoryTextures textures_;
  std::vector<Request> requests_;
  PanelCaches caches_;
  std::shared_ptr<const RunModel> run_;
  Selection at_;
};

constexpr const char* kPlots[]{"steps/loss", "steps/heatmap", "steps/magnitudes"};

bool says(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// --- The common axis -----------------------------------------------------------------------------

TEST_F(StepPanels, StandExactlyAboveEachOther) {
  show(test::model_of(test::plain_run(3, 100)));
  for (const char* plot : kPlots) {
    EXPECT_EQ(ui_.item(plot).min.x, ui_.item("steps/loss").min.x) << plot;
    EXPECT_EQ(ui_.item(plot).max.x, ui_.item("steps/loss").max.x) << plot;
  }
}

TEST_F(StepPanels, TheWheelZoomsAtThePointer) {
  show(test::model_of(test::plain_run(3, 200)));
  view.layer = "layer1";
  ui_.frame(2);
  for (const char* plot : kPlots) {
    view.range = {};
    ui_.frame();
    const ImVec2 place = place_of(plot, 60.0);
    ui_.wheel_at(place, 3.0f);
    ui_.frame();
    const StepSpan span = span_of(view.range, 200);
    EXPECT_NEAR(span.width(), 200.0 / std::pow(1.25, 3.0), 1e-6) << plot;
    EXPECT_NEAR(place_of(plot, 60.0).x, place.x, 1.0f) << plot;
    EXPECT_EQ(view.hovered_step, 60) << plot;
  }
  view.range = {};
  ui_.wheel_at(place_of("steps/loss", 100.0), 1.0f, {.ctrl = true});
  const double fine = span_of(view.range, 200).width();
  view.range = {};
  ui_.wheel_at(place_of("steps/loss", 100.0), 1.0f, {.shift = true});
  EXPECT_LT(span_of(view.range, 200).width(), 150.0);
  EXPECT_GT(fine, 180.0);
}

TEST_F(StepPanels, ADragPansAndStopsAtTheEnds) {
  show(test::model_of(test::plain_run(3, 200)));
  view.range = {100.0, 149.0};
  ui_.frame();
  const TrackedItem item = ui_.item("steps/heatmap");
  const float per_step = (item.max.x - item.min.x) / 50.0f;
  ui_.drag("steps/heatmap", {per_step * 10.0f, 0.0f});
  EXPECT_NEAR(view.range.first, 90.0, 0.1);
  EXPECT_NEAR(view.range.last, 139.0, 0.1);
  EXPECT_EQ(view.cursor, -1) << "dragging is not clicking";
  for (int i = 0; i < 4; ++i) ui_.drag("steps/loss", {500.0f, 0.0f});
  EXPECT_NEAR(view.range.first, 0.0, 1e-9);
  EXPECT_NEAR(view.range.last, 49.0, 1e-9);
}

TEST_F(StepPanels, ABrushZoomsToTheStepsItTouches) {
  show(test::model_of(test::plain_run(3, 200)));
  const ImVec2 from = place_of("steps/heatmap", 40.0), to = place_of("steps/heatmap", 80.0);
  ui_.drag_from(from, {to.x - from.x, 5.0f}, {.shift = true});
  EXPECT_EQ(view.range, (StepRange{40.0, 80.0}));
  ui_.double_click_at(ui_.item("steps/loss").center());
  EXPECT_TRUE(view.range.all()) << "a double click shows all again";
}

TEST_F(StepPanels, AClickSetsTheCursorAndInTheHeatmapTheLayer) {
  show(test::model_of(test::plain_run(4, 100)));
  ui_.click_at(place_of("steps/loss", 20.0));
  EXPECT_EQ(view.cursor, 20);
  EXPECT_EQ(view.layer, "");
  const TrackedItem row = ui_.item("steps/heatmap/row/layer2");
  ui_.click_at({place_of("steps/heatmap", 70.0).x, row.center().y});
  EXPECT_EQ(view.cursor, 70);
  EXPECT_EQ(view.layer, "layer2");
  EXPECT_EQ(at_.layer, 2);
  ui_.click("steps/heatmap/row/layer3");
  EXPECT_EQ(view.layer, "layer3") << "names can be clicked, too";
  EXPECT_EQ(view.cursor, 70);
}

TEST_F(StepPanels, HoveringIsShared) {
  show(test::model_of(test::plain_run(4, 100)));
  const TrackedItem row = ui_.item("steps/heatmap/row/layer1");
  ui_.move_to({place_of("steps/heatmap", 33.0).x, row.center().y});
  EXPECT_EQ(view.hovered_step, 33);
  EXPECT_EQ(view.hovered_layer, "layer1");
  ui_.frame();
  EXPECT_EQ(view.lit_step, 33);
  EXPECT_EQ(view.lit_layer, "layer1");
  ui_.move_to({1000, 800});
  EXPECT_EQ(view.hovered_step, -1);
  EXPECT_EQ(view.hovered_layer, "");
}

// --- Loss ----------------------------------------------------------------------------------------

TEST_F(StepPanels, TheLossTooltipSaysTheRowOfTheStep) {
  view.lane = "half";
  show(test::model_of(test::plain_run(2, 100)));
  ui_.move_to(place_of("steps/loss", 50.0));
  ui_.frame();
  const StepRow& row = run_->view().steps(1)[50];
  const std::string text = tip("steps/loss");
  EXPECT_TRUE(says(text, "Step 50\n")) << text;
  EXPECT_TRUE(says(text, "loss, float32 " + short_number(run_->view().steps(0)[50].loss))) << text;
  EXPECT_TRUE(says(text, "loss, half " + short_number(row.loss))) << text;
  EXPECT_TRUE(says(text, "loss scale " + scale_text(row.loss_scale))) << text;
  EXPECT_TRUE(says(text, "learning rate 0.125")) << text;
  EXPECT_TRUE(says(text, "gradient norm 0.75")) << text;
  EXPECT_TRUE(says(text, "skipped")) << text;
  ui_.move_to(place_of("steps/loss", 49.0));
  ui_.frame();
  EXPECT_FALSE(says(tip("steps/loss"), "skipped"));
}

TEST_F(StepPanels, TheLossTooltipSaysTheLastEvaluation) {
  RunView run = test::plain_run(1, 40);
  run.add_eval(1, {.step = 10, .loss = 1.0, .accuracy = 0.5});
  run.add_eval(1, {.step = 20, .loss = 1.0, .accuracy = 0.625});
  view.lane = "half";
  show(test::model_of(std::move(run)));
  for (const auto& [step, wanted] : {std::pair<double, const char*>{8.0, ""},
                                     {9.0, "test accuracy after 10 steps 50%"},
                                     {30.0, "test accuracy after 20 steps 62.5%"}}) {
    ui_.move_to(place_of("steps/loss", step));
    ui_.frame();
    const std::string text = tip("steps/loss");
    EXPECT_TRUE(says(text, wanted)) << text;
    EXPECT_EQ(says(text, "test accuracy"), *wanted != 0) << text;
  }
}

TEST_F(StepPanels, FollowARunThatGrows) {
  view.lane = "half";
  view.layer = "layer1";
  show(test::model_of(test::plain_run(2, 10)));
  EXPECT_EQ(at_.step, 9);
  show(test::model_of(test::plain_run(2, 60)));
  EXPECT_EQ(at_.step, 59) << "the cursor stays at the last step";
  EXPECT_TRUE(view.range.all());
  EXPECT_TRUE(ui_.has("steps/loss/skipped")) << "step 50 is there now";
  ui_.move_to(place_of("steps/magnitudes", 55.0));
  ui_.frame();
  EXPECT_TRUE(says(tip("steps/magnitudes"), "step 55")) << tip("steps/magnitudes");
  view.range = {2.0, 8.0};
  show(test::model_of(test::plain_run(2, 90)));
  EXPECT_EQ(view.range, (StepRange{2.0, 8.0})) << "who has zoomed in is left in peace";
}

TEST_F(StepPanels, TheLossLegendHidesSeries) {
  view.lane = "half";
  show(test::model_of(test::plain_run(2, 100)));
  EXPECT_TRUE(ui_.has("steps/loss/skipped"));
  EXPECT_FALSE(ui_.has("steps/loss/growth")) << "the scale never grew";
  const int before = ui_.indices();
  ui_.click("steps/loss/loss scale");
  ui_.move_to({1000, 800});
  EXPECT_EQ(view.hidden_series, std::vector<std::string>{"steps/loss/loss scale"});
  EXPECT_LT(ui_.indices(), before);
}

TEST_F(StepPanels, LossesThatAreNotFinite) {
  RunView run(test::plain_info(1), RunStatus::complete);
  for (int64_t step = 0; step < 30; ++step) {
    for (int lane = 0; lane < 2; ++lane) {
      const double loss = lane == 1 ? std::nan("") : step == 7 ? HUGE_VAL : 1.0;
      run.add_step(lane, {.step = step, .loss = loss});
    }
  }
  view.lane = "half";
  show(test::model_of(std::move(run)));
  ui_.move_to(place_of("steps/loss", 7.0));
  ui_.frame();
  EXPECT_TRUE(says(tip("steps/loss"), "loss, float32 NaN / Inf"));
  EXPECT_TRUE(says(tip("steps/loss"), "loss, half NaN / Inf"));
}

TEST_F(StepPanels, TheLossCanBeCopiedAndExported) {
  show(test::model_of(test::plain_run(2, 60)));
  view.range = {10.0, 13.0};
  ui_.frame();
  ui_.click_at(ui_.item("steps/loss").center(), {}, 1);
  ui_.click("steps/loss/copy");
  ASSERT_EQ(requests_.size(), 1u);
  EXPECT_EQ(requests_[0].kind, Request::Kind::copy);
  EXPECT_TRUE(requests_[0].text.starts_with("step\tloss float32\tloss_scale float32\t"));
  EXPECT_TRUE(says(requests_[0].text, "\n13\t14\t1\t0\t0.75\t15\t1024\t0\t0.75\n"));
  EXPECT_EQ(std::count(requests_[0].text.begin(), requests_[0].text.end(), '\n'), 5)
      << "a heading and what is in sight";
  ui_.click_at(ui_.item("steps/heatmap").center(), {}, 1);
  ui_.click("steps/heatmap/export");
  ASSERT_EQ(requests_.size(), 2u);
  EXPECT_EQ(requests_[1].kind, Request::Kind::export_csv);
  EXPECT_EQ(requests_[1].text, "heatmap.csv");
  EXPECT_TRUE(requests_[1].content.starts_with("step,layer0,layer1\n10,0,0\n"));
}

// --- Heatmap -------------------------------------------------------------------------------------

TEST_F(StepPanels, TheHeatmapTooltipSaysTheCountersOfTheCell) {
  view.lane = "half";
  show(test::model_of(test::plain_run(3, 100)));
  view.range = {45.0, 55.0};
  ui_.frame();
  const float y = ui_.item("steps/heatmap/row/layer1").center().y;
  ui_.move_to({place_of("steps/heatmap", 50.0).x, y});
  ui_.frame();
  const std::string text = tip("steps/heatmap");
  const auto stats = run_->stats(1, *run_->view().find_site(1, "layer1.weight_grad"), 50);
  ASSERT_TRUE(stats);
  ASSERT_EQ(stats->overflow, 1);
  EXPECT_TRUE(text.starts_with("layer1.weight_grad\n")) << text;
  EXPECT_TRUE(says(text, "step 50")) << text;
  EXPECT_TRUE(says(text, "overflow " + percent(1.0 / static_cast<double>(stats->n)))) << text;
  EXPECT_TRUE(says(text, "zero 25%")) << text;
  EXPECT_TRUE(says(text, "NaN / Inf 25%")) << "what overflows is infinite: " << text;
  EXPECT_TRUE(says(text, "of all values")) << text;
  EXPECT_TRUE(says(text, "of non-zero values")) << text;
  EXPECT_TRUE(says(text, "NaN or Inf starts here")) << text;
  EXPECT_TRUE(says(text, "(1e+06)")) << text;
  EXPECT_TRUE(says(text, "min (non-zero) 2^-1 (0.5)")) << text;
  EXPECT_TRUE(says(text, "loss scale 512 (2^9)")) << text;
  EXPECT_LT(text.find("of all values"), text.find("overflow")) << "a heading: " << text;
  EXPECT_FALSE(says(text, "worst of")) << text;
}

TEST_F(StepPanels, OneBadStepOfManyIsSeenAndNamed) {
  view.lane = "half";
  show(test::model_of(test::plain_run(3, 5000)));
  const ImU32 bad = heat_color(0.1 + 0.9 * heat_level(heat_of(0.25)));
  EXPECT_GT(pixels_of(bad), 0) << "one step of 5 000, one tensor of six";
  const float y = ui_.item("steps/heatmap/row/layer1").center().y;
  ui_.move_to({place_of("steps/heatmap", 50.0).x, y});
  ui_.frame();
  const std::string text = tip("steps/heatmap");
  EXPECT_TRUE(says(text, "step 50, the worst of the ")) << text;
  EXPECT_TRUE(says(text, " steps in this column")) << text;
  EXPECT_TRUE(says(text, "overflow 25%")) << text;
  view.metric = Metric::underflow;
  ui_.frame();
  EXPECT_EQ(pixels_of(bad), 0);
  view.metric = Metric::overflow;
  ui_.frame();
  const int pixels = pixels_of(bad);
  EXPECT_GT(pixels, 0);
  view.role = RoleView::activations;
  ui_.frame();
  EXPECT_EQ(pixels_of(bad), 0) << "it is a gradient";
  view.role = RoleView::gradients;
  ui_.frame();
  EXPECT_EQ(pixels_of(bad), pixels);
}

TEST_F(StepPanels, TheLegendNamesWhatIsStriped) {
  view.lane = "half";
  show(test::model_of(test::plain_run(3, 50)));
  EXPECT_EQ(ui_.text("steps/colors/starts"), "NaN/Inf starts here");
  EXPECT_EQ(ui_.text("steps/colors/passed"), "passed on");
  for (const char* each : {"steps/colors/starts", "steps/colors/passed"}) {
    EXPECT_LE(ui_.item(each).max.x, ui_.item("steps/colors").max.x) << each;
    EXPECT_LE(ui_.item(each).max.y, ui_.item("steps/heatmap").max.y) << each;
  }
  EXPECT_LE(ui_.item("steps/colors/starts").max.y, ui_.item("steps/colors/passed").min.y);
  view.metric = Metric::underflow;
  ui_.frame(2);
  EXPECT_FALSE(ui_.has("steps/colors/starts")) << "this metric has no stripes";
}

TEST_F(StepPanels, NamesOfLowRowsAreEvenlySpaced) {
  show(test::model_of(test::plain_run(17, 20)));
  view.tensor_rows = true;
  ui_.frame(3);
  for (const char* site : {"", "layer3.weight_grad", "layer10.activation", "layer16.weight_grad"}) {
    view.site = site;
    ui_.frame(3);
    std::vector<float> places;
    for (const auto& [path, item] : ui_.tracker().items()) {
      if (path.starts_with("steps/heatmap/row/") && ui_.tracker().find(path) != nullptr) {
        places.push_back(item.min.y);
      }
    }
    ASSERT_GT(places.size(), 5u);
    std::sort(places.begin(), places.end());
    for (size_t i = 2; i < places.size(); ++i) {
      EXPECT_NEAR(places[i] - places[i - 1], places[1] - places[0], 0.51f) << site << " " << i;
    }
  }
  EXPECT_EQ(ui_.text("steps/heatmap/row/layer16.weight_grad"), "layer16.weight_grad");
}

TEST_F(StepPanels, TensorsHaveTheirWholeNamesWhereTheyFit) {
  show(test::model_of(test::plain_run(3, 20)));
  view.tensor_rows = true;
  ui_.frame(3);
  EXPECT_EQ(ui_.text("steps/heatmap/row/layer2.weight_grad"), "layer2.weight_grad");
}

TEST_F(StepPanels, RowsAreLayersOrTensors) {
  show(test::model_of(test::plain_run(3, 20)));
  EXPECT_TRUE(ui_.has("steps/heatmap/row/layer2"));
  ui_.click("steps/tensor_rows");
  EXPECT_TRUE(view.tensor_rows);
  EXPECT_TRUE(ui_.has("steps/heatmap/row/layer2.weight_grad"));
  EXPECT_FALSE(ui_.has("steps/heatmap/row/layer2"));
  ui_.click("steps/heatmap/row/layer2.weight_grad");
  EXPECT_EQ(view.site, "layer2.weight_grad");
  view.role = RoleView::activations;
  ui_.frame(2);
  EXPECT_FALSE(ui_.has("steps/heatmap/row/layer2.weight_grad"));
  view.filter = "layer1";
  ui_.frame(2);
  EXPECT_FALSE(ui_.has("steps/heatmap/row/layer2.activation"));
  view.filter = "nothing like it";
  ui_.frame(2);
}

TEST_F(StepPanels, TheMetricIsChosenFromAList) {
  show(test::model_of(test::plain_run(3, 20)));
  EXPECT_EQ(ui_.text("steps/metric"), "Worst");
  ui_.click("steps/metric");
  ui_.click("steps/metric/Underflow");
  EXPECT_EQ(view.metric, Metric::underflow);
  EXPECT_EQ(ui_.text("steps/metric"), "Underflow");
}

TEST_F(StepPanels, TheHandlesOfTheColoursSetTheRatesTheyTellApart) {
  view.lane = "half";
  show(test::model_of(test::plain_run(3, 60)));
  ui_.frame(2);
  ASSERT_TRUE(ui_.has("steps/colors/high"));
  const std::vector<ImU32> before = textures_.find("heatmap")->rgba;
  ui_.drag("steps/colors/high", {0, 40});
  EXPECT_LT(view.heat.high, 1.0);
  EXPECT_GT(view.heat.high, view.heat.low);
  ui_.frame(2);
  EXPECT_NE(textures_.find("heatmap")->rgba, before);
  ui_.hover("steps/colors/low");
  ui_.frame(2);
  EXPECT_EQ(ui_.text("steps/colors/rate"), "Bottom of the colours: 1 in 1,000,000");
  EXPECT_FALSE(ui_.has("steps/colors/tip")) << "one tooltip at a time";
  ui_.drag("steps/colors/low", {0, -4000});
  EXPECT_NEAR(view.heat.low, view.heat.high - 0.05, 1e-9) << "it stops below the other one";
  ui_.double_click_at(ui_.item("steps/colors/high").center());
  EXPECT_EQ(view.heat, HeatRange{});
  view.heat.low = 0.392;  // 1 in 4,446
  ui_.frame(2);
  EXPECT_EQ(ui_.text("steps/colors/low"), "1 in 4,400");
}

TEST_F(StepPanels, AThousandRowsScrollAndZoom) {
  show(test::model_of(test::large_run(1000)));
  const MemoryTextures::Picture* picture = textures_.find("heatmap");
  ASSERT_NE(picture, nullptr);
  const TrackedItem plot = ui_.item("steps/heatmap");
  EXPECT_EQ(picture->height, static_cast<int>(plot.max.y - plot.min.y));
  ui_.drag("steps/heatmap", {0.0f, -100.0f});
  EXPECT_NEAR(view.row_scroll, 100.0, 1e-3) << "a row is one pixel high";
  ui_.wheel("steps/heatmap", 8.0f, {.ctrl = true});
  ui_.frame();
  EXPECT_NEAR(view.row_zoom, std::pow(1.25, 8.0), 1e-6);
  EXPECT_TRUE(view.range.all()) << "Ctrl and wheel leave the steps alone";
  ui_.hover("steps/heatmap");
  // The row in the middle is unchanged: 100 rows and half a plot were scrolled by.
  const float middle = (plot.max.y - plot.min.y) / 2.0f;
  const int row = 100 + static_cast<int>(middle);
  const int hovered = run_->find_layer(at_.lane, view.hovered_layer);
  EXPECT_NEAR(hovered, row, 1);
  ui_.double_click_at(plot.center());
  EXPECT_EQ(view.row_zoom, 1.0);
  EXPECT_EQ(view.row_scroll, 0.0);
  view.layer = run_->lane(at_.lane).layers.back().path;
  view.site.clear();
  ui_.frame(3);
  EXPECT_GT(view.row_scroll, 500.0) << "a layer chosen elsewhere is scrolled to";
}

TEST_F(StepPanels, ThePictureIsMadeOnlyWhenSomethingChanges) {
  class Counting final : public Textures {
   public:
    ImTextureID update(std::string_view, int, int, std::span<const ImU32>) override {
      ++count;
      return (ImTextureID)(intptr_t)1;
    }
    int count = 0;
  } counting;
  const auto run = test::model_of(test::plain_run(3, 50));
  std::vector<Request> requests;
  PanelCaches caches;
  ui_.draw_with([&] {
    ImGui::SetNextWindowSize({600, 300});
    ImGui::Begin("heatmap");
    const Frame frame{view,         *run,        nullptr, resolve_selection(*run, view),
                      dark_theme(), ui_.fonts(), 1.0f,    counting,
                      requests,     caches};
    draw_heatmap(frame);
    ImGui::End();
  });
  ui_.frame(3);
  const int first = counting.count;
  ui_.frame(5);
  EXPECT_EQ(counting.count, first);
  view.layer = "layer1";
  ui_.frame(2);
  EXPECT_EQ(counting.count, first) << "the selection lies above the picture";
  view.metric = Metric::underflow;
  ui_.frame(2);
  EXPECT_EQ(counting.count, first + 1);
  view.range = {3.0, 20.0};
  ui_.frame(2);
  EXPECT_EQ(counting.count, first + 2);
}

// --- Magnitudes ----------------------------------------------------------------------------------

TEST_F(StepPanels, MagnitudesSayTheStatisticsWithAndWithoutTheScale) {
  view.lane = "half";
  view.site = "layer0.weight_grad";
  show(test::model_of(test::plain_run(2, 100)));
  EXPECT_EQ(ui_.text("steps/magnitudes/title"), "Magnitudes of layer0.weight_grad");
  ui_.move_to(place_of("steps/magnitudes", 20.0));
  ui_.frame();
  const auto stats = run_->stats(1, *run_->view().find_site(1, "layer0.weight_grad"), 20);
  ASSERT_TRUE(stats);
  ASSERT_EQ(stats->max_abs, 8.0f);
  std::string text = tip("steps/magnitudes");
  EXPECT_TRUE(says(text, "step 20, times the loss scale")) << text;
  EXPECT_TRUE(says(text, "max 2^3 (8)")) << text;
  EXPECT_TRUE(says(text, "min (non-zero) 2^-1 (0.5)")) << text;
  const double rms = std::sqrt(stats->sum_sq / static_cast<double>(stats->n));
  EXPECT_TRUE(says(text, "(" + short_number(rms) + ")")) << text;
  ui_.click("steps/magnitudes/unscaled");
  EXPECT_TRUE(view.unscaled);
  ui_.move_to(place_of("steps/magnitudes", 20.0));
  ui_.frame();
  text = tip("steps/magnitudes");
  EXPECT_TRUE(says(text, "max 2^-7 (")) << text << ": 8 / 1024";
  view.site = "layer0.activation";
  ui_.frame(2);
  EXPECT_FALSE(ui_.has("steps/magnitudes/unscaled")) << "activations are not scaled";
  ui_.move_to(place_of("steps/magnitudes", 20.0));
  ui_.frame();
  EXPECT_TRUE(says(tip("steps/magnitudes"), "max 2^3 (")) << tip("steps/magnitudes");
  ui_.click("steps/magnitudes/rms");
  EXPECT_EQ(view.hidden_series, std::vector<std::string>{"steps/magnitudes/rms"});
}

// --- Every other kind of run ---------------------------------------------------------------------

TEST_F(StepPanels, DrawWhateverARunLacks) {
  RunInfo none;
  RunView no_windows(test::plain_info(2), RunStatus::complete);
  for (int64_t step = 0; step < 5; ++step) no_windows.add_step(0, {.step = step, .loss = 1.0});
  test::RunSpec nan_spec = test::healthy_spec();
  nan_spec.nan_from_the_start = true;
  nan_spec.steps = 6;
  nan_spec.elements = 32;
  RunView nothing_measured(test::plain_info(1), RunStatus::complete);
  nothing_measured.add_step(0, {.step = 0, .loss = -1.0});
  nothing_measured.add_window(0, 0, {.step = 0, .step_count = 1, .stats = {}});
  std::vector<RunView> runs;
  runs.emplace_back(none, RunStatus::running);
  runs.emplace_back(test::plain_info(0), RunStatus::running);
  runs.emplace_back(test::plain_info(2), RunStatus::running);
  runs.push_back(std::move(no_windows));
  runs.push_back(std::move(nothing_measured));
  runs.push_back(test::plain_run(1, 1));
  runs.push_back(test::make_run(nan_spec));
  runs.push_back(test::full_run());
  runs.push_back(test::large_run(1000));
  for (RunView& run : runs) {
    view = {};
    show(test::model_of(std::move(run)));
    for (const char* layer : {"", "layer0", "conv1", "no such layer"}) {
      view.layer = layer;
      for (const char* plot : kPlots) {
        ASSERT_TRUE(ui_.has(plot));
        ui_.hover(plot);
        ui_.wheel(plot, 2.0f);
        ui_.drag(plot, {30, 10});
        ui_.click(plot);
        ui_.double_click_at(ui_.item(plot).center());
      }
      view.tensor_rows = !view.tensor_rows;
    }
  }
}

TEST_F(StepPanels, KeepInsideASmallWindow) {
  const auto run = test::model_of(test::plain_run(40, 30));
  ui_.draw_with([&] {
    const Frame frame{view,         *run,        nullptr, resolve_selection(*run, view),
                      dark_theme(), ui_.fonts(), 2.0f,    textures_,
                      requests_,    caches_};
    int number = 0;
    for (void (*panel)(const Frame&) : {draw_loss, draw_heatmap, draw_magnitudes}) {
      ImGui::SetNextWindowSize({60, 40});
      ImGui::Begin(std::to_string(++number).c_str());
      panel(frame);
      ImGui::End();
    }
  });
  ui_.frame(4);
}

}  // namespace
}  // namespace halfscope::gui
