// SPDX-License-Identifier: MIT
// The tab Training step, driven: presets, stations, settings that train again, the plot of losses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "emulation/backends.h"
#include "emulation/threads.h"
#include "tests/gui/lab_window.h"

namespace halfscope::gui {
namespace {

class MicroscopeTab : public LabWindow {
 protected:
  explicit MicroscopeTab(ImVec2 size = {1280, 760}) : LabWindow(size) {
    ui.click("lab/tab/step");
    wait();
  }

  /// Draws until no training runs in the background.
  void wait() {
    wait_while([&] { return lab.desk.study.busy(); });
  }
  void pick(const std::string& list, const std::string& entry) {
    ui.click(list);
    ui.click(list + "/" + entry);
    wait();
  }
  struct Losses {
    double lane = 0.0, twin = 0.0;
    int skipped = 0;
  };
  Losses losses() {
    Losses read;
    const std::string text = ui.text("lab/step/losses");
    EXPECT_EQ(
        std::sscanf(text.c_str(), "%lf fp32 %lf skipped %d", &read.lane, &read.twin, &read.skipped),
        3)
        << text;
    return read;
  }
  /// Returns what the tab shows, trained again.
  Microscope expected() const {
    const OneThread one;
    return look(lab.desk.training, lab.desk.place, emulation_backend());
  }
};

TEST_F(MicroscopeTab, PresetsShowWhatTheySay) {
  EXPECT_GT(losses().lane, 2.0) << "the first preset is open";
  EXPECT_LT(losses().twin, 0.4);
  EXPECT_EQ(ui.text("lab/step/name"), "Output gradient");
  EXPECT_EQ(ui.text("lab/step/loss"), "underflow to zero");
  EXPECT_EQ(ui.text("lab/step/stored"), "0");
  ui.click("lab/step/preset/1");
  wait();
  EXPECT_NEAR(losses().lane, losses().twin, 0.02);
  ui.click("lab/step/preset/2");
  wait();
  EXPECT_NEAR(losses().lane, losses().twin, 0.1);
  ui.click("lab/step/preset/3");
  wait();
  EXPECT_GT(losses().lane, losses().twin + 0.1);
  EXPECT_EQ(ui.text("lab/step/loss"), "lost in the addition");
  ui.click("lab/step/master");
  wait();
  EXPECT_NEAR(losses().lane, losses().twin, 0.05) << "as the note says";
  ui.click("lab/step/preset/4");
  wait();
  EXPECT_EQ(ui.text("lab/step/name"), "Rank 6 + rank 5");
  EXPECT_TRUE(ui.has("lab/station/hop_7"));
  EXPECT_NEAR(losses().lane, losses().twin, 0.02);
  ui.click("lab/step/preset/5");
  wait();
  EXPECT_EQ(ui.text("lab/step/name"), "Weight as read");
  EXPECT_EQ(ui.text("lab/step/station_format").substr(0, 6), "e4m3fn");
  EXPECT_TRUE(ui.has("lab/station/read_gradient_scale"));
  EXPECT_NEAR(losses().lane, losses().twin, 0.1);
}

TEST_F(MicroscopeTab, StationsAreClickedAndStepped) {
  const Microscope all = expected();
  for (const Station& each : all.stations) {
    std::string path = "lab/station/" + each.key;
    std::replace(path.begin(), path.end(), ' ', '_');
    ui.click(path);
    ui.frame();
    EXPECT_EQ(lab.desk.selected, each.key);
    EXPECT_EQ(ui.text("lab/step/name"), each.name);
    EXPECT_EQ(ui.text("lab/step/text"), each.text);
    EXPECT_EQ(ui.text("lab/step/loss"), station_loss_name(each.loss));
    if (each.kept.empty()) continue;
    const std::string sign = each.exact < 0 ? "-" : "";
    EXPECT_EQ(ui.text("lab/step/bits"), sign + each.kept + "|" + each.dropped);
  }
  ui.press_named(ImGuiKey_RightArrow);
  EXPECT_EQ(lab.desk.selected, "new weight") << "stays at the end";
  ui.press_named(ImGuiKey_LeftArrow);
  ui.press_named(ImGuiKey_LeftArrow);
  EXPECT_EQ(lab.desk.selected, "v");
  ui.press_named(ImGuiKey_RightArrow);
  EXPECT_EQ(lab.desk.selected, "update");
}

TEST_F(MicroscopeTab, SettingsTrainAgain) {
  const double before = losses().lane;
  pick("lab/step/format", "bf16");
  EXPECT_EQ(lab.desk.training.format, kBf16);
  EXPECT_LT(losses().lane, before - 1.0);
  EXPECT_EQ(lab.desk.note, "") << "the preset's note no longer applies";
  pick("lab/step/format", "fp16");
  EXPECT_EQ(losses().lane, before);
  pick("lab/step/scale", "static");
  EXPECT_LT(losses().lane, before - 1.0);
  EXPECT_EQ(lab.desk.training.scaler.initial, 65536.0);
  ui.drag("lab/step/scale_value", {40, 0});
  wait();
  EXPECT_GT(lab.desk.training.scaler.initial, 65536.0);
  EXPECT_GT(losses().skipped, 100) << "a static scale that overflows never recovers";
  pick("lab/step/scale", "dynamic");
  EXPECT_GT(losses().skipped, 0);
  EXPECT_LT(losses().skipped, 50);
  pick("lab/step/rounding", "stochastic");
  pick("lab/step/sums", "format");
  EXPECT_EQ(lab.desk.training.accumulation, Accumulation(Accumulation::format));
  pick("lab/step/blocks", "mxfp8_e5m2");
  pick("lab/step/block_size", "16");
  EXPECT_EQ(lab.desk.training.blocks->block_size, 16);
  pick("lab/step/ranks", "4");
  pick("lab/step/reduce", "halving");
  EXPECT_TRUE(ui.has("lab/station/hop_3"));
  EXPECT_FALSE(ui.has("lab/station/hop_4"));
  pick("lab/step/optimizer", "SGD");
  EXPECT_FALSE(ui.has("lab/station/v"));
}

TEST_F(MicroscopeTab, TheStationsAreThoseOfTheSettings) {
  pick("lab/step/scale", "static");
  ui.click("lab/station/gradient");
  ui.frame();
  const Microscope again = expected();
  EXPECT_EQ(ui.text("lab/step/stored"), fmt::format("{:.10g}", station(again, "gradient")->stored));
  EXPECT_EQ(ui.text("lab/step/twin"), fmt::format("{:.10g}", station(again, "gradient")->twin));
}

TEST_F(MicroscopeTab, AnotherWeightAndStep) {
  const TrackedItem plot = ui.item("lab/step/losses");
  const Losses before = losses();
  ui.click_at({plot.min.x + 0.5f * (plot.max.x - plot.min.x), plot.center().y});
  wait();
  EXPECT_NEAR(static_cast<double>(lab.desk.place.step), 75.0, 8.0);
  EXPECT_EQ(losses().lane, before.lane) << "the curves stay";
  const TrackedItem grid = ui.item("lab/step/inputs");
  ui.click_at({grid.min.x + 3, grid.min.y + 3});
  EXPECT_EQ(lab.desk.place.column, 0);
  ui.click_at({grid.max.x - 3, grid.max.y - 3});
  EXPECT_EQ(lab.desk.place.column, 63);
  ui.click("lab/station/weight");
  ui.frame();
  EXPECT_EQ(ui.text("lab/step/exact"),
            fmt::format("{:.10g}", station(expected(), "weight")->stored));
  ui.click("lab/step/layer/2");
  ui.frame(2);
  EXPECT_EQ(lab.desk.place.column, 31) << "the last input of the second layer";
  EXPECT_EQ(lab.desk.place.row, 5);
  EXPECT_FALSE(ui.has("lab/station/logit_gradient"));
}

TEST_F(MicroscopeTab, NotANumberAndSettingsThatCannotRun) {
  ui.click("lab/step/preset/3");
  lab.desk.format = "e5m2";
  lab.desk.learning_rate = "0.005";
  wait();
  EXPECT_TRUE(std::isnan(losses().lane));
  for (const char* key : {"weight", "sum", "gradient", "m", "new_weight"}) {
    ui.click(std::string("lab/station/") + key);
    ui.frame(2);
  }
  EXPECT_EQ(ui.text("lab/step/loss"), "infinity or NaN");
  lab.desk.format = "e6m9";
  pick("lab/step/sums", "tensor-core:h100");
  EXPECT_NE(ui.text("lab/step/problem"), "");
  EXPECT_FALSE(ui.has("lab/step/losses"));
}

class SmallMicroscopeTab : public MicroscopeTab {
 protected:
  SmallMicroscopeTab() : MicroscopeTab({720, 504}) {}
};

TEST_F(SmallMicroscopeTab, ShowsEverythingOnScrolling) {
  for (int preset = 0; preset < 6; ++preset) {
    ui.click("lab/step/preset/" + std::to_string(preset));
    wait();
    ui.wheel_at({300, 400}, -60.0f);
    ui.frame(2);
    EXPECT_TRUE(ui.item("lab/step/losses").visible);
    EXPECT_LE(ui.item("lab/step/losses").max.x, 720.0f);
    EXPECT_LE(ui.item("lab/step/weights").max.x, 720.0f);
    ui.wheel_at({300, 400}, 60.0f);
    ui.frame(2);
  }
}

TEST(MicroscopeStudy, WaitsWhereThereAreNoThreads) {
  SmallTraining training;
  training.steps = 40;
  MicroscopeStudy waits(true);
  const Microscope* shown = waits.of(training, {});
  ASSERT_NE(shown, nullptr);
  EXPECT_FALSE(waits.busy());
  ASSERT_EQ(shown->lane.size(), 40u);
  const double first = station(*shown, "new weight")->stored;
  MicroscopePlace later;
  later.step = 30;
  shown = waits.of(training, later);
  EXPECT_EQ(shown->lane.size(), 40u) << "only part of it is trained again";
  const OneThread one;
  const Microscope whole = look(training, later, emulation_backend());
  EXPECT_EQ(station(*shown, "new weight")->stored, station(whole, "new weight")->stored);
  EXPECT_NE(station(*shown, "new weight")->stored, first);
}

}  // namespace
}  // namespace halfscope::gui
