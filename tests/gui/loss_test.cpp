// SPDX-License-Identifier: MIT
// The loss chart: smoothing, notes on steps, and the losses of further runs.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "analysis/recorder.h"
#include "analysis/rules/text.h"
#include "gui/data/smoothing.h"
#include "gui/state/settings.h"
#include "tests/analysis/sample_run.h"
#include "tests/gui/app_driver.h"
#include "tests/gui/plain_run.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

using halfscope::test::TemporaryFolder;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Smoothed, IsTheWeightedMeanOfAllValuesBefore) {
  const std::vector<double> values{4.0, 1.0, 3.0, 2.5, -7.0};
  const std::vector<double> smooth = smoothed(values, 0.6);
  for (size_t i = 0; i < values.size(); ++i) {
    double sum = 0.0, weights = 0.0;
    for (size_t j = 0; j <= i; ++j) {
      const double weight = std::pow(0.6, static_cast<double>(i - j));
      sum += weight * values[j];
      weights += weight;
    }
    EXPECT_NEAR(smooth[i], sum / weights, 1e-12) << i;
  }
  EXPECT_EQ(smoothed(values, 0.0), values);
}

TEST(Smoothed, LeavesOutWhatIsNotFinite) {
  const std::vector<double> smooth = smoothed(std::vector<double>{2.0, NAN, INFINITY, 2.0}, 0.9);
  EXPECT_THAT(smooth[0], DoubleEq(2.0));
  EXPECT_TRUE(std::isnan(smooth[1]));
  EXPECT_EQ(smooth[2], INFINITY);
  EXPECT_THAT(smooth[3], DoubleEq(2.0)) << "the mean goes on as if they were not there";
}

TEST(Notes, OnePerStepInTheirOrder) {
  ViewState view;
  set_note(view, 7, "spike");
  set_note(view, 3, "warm-up ends");
  set_note(view, 7, "bad batch");
  EXPECT_THAT(view.notes, ElementsAre(Note{3, "warm-up ends"}, Note{7, "bad batch"}));
  EXPECT_EQ(note_on(view, 7), "bad batch");
  EXPECT_EQ(note_on(view, 4), "");
  set_note(view, 3, "");
  EXPECT_THAT(view.notes, ElementsAre(Note{7, "bad batch"}));
}

TEST(Notes, AreKeptWithTheView) {
  const TemporaryFolder folder;
  const SettingsFile file(folder / "state");
  ViewState view;
  set_note(view, 12, "here");
  view.smoothing = 0.9;
  file.save_view("run.hscope", view);
  const ViewState read = file.load_view("run.hscope");
  EXPECT_EQ(read.notes, view.notes);
  EXPECT_EQ(read.smoothing, 0.9);
}

class LossChart : public testing::Test {
 protected:
  AppDriver user_{test::full_run(), {}, {}, Screen::spectrum};
  ViewState& view() { return user_.app().view(); }
  LossChart() { user_.frame(3); }
  void wait_for_added() {
    for (int i = 0; i < 1000 && user_.app().reads_others(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    user_.frame(3);
  }
};

TEST_F(LossChart, AKeySmoothsItAndTheTitleSaysSo) {
  EXPECT_EQ(user_.text("steps/loss/title"), "Loss");
  user_.press(letter_key('X'));
  user_.frame(2);
  EXPECT_EQ(user_.text("steps/loss/title"), "Loss, smoothed 0.6");
  for (int i = 0; i < 3; ++i) user_.press(letter_key('X'));
  user_.frame(2);
  EXPECT_EQ(view().smoothing, 0.0) << "the last one is followed by none";
}

TEST_F(LossChart, ANoteIsWrittenShownFoundAndRemoved) {
  view().cursor = 2;
  user_.frame(2);
  user_.press(letter_key('T'));
  user_.frame(3);
  EXPECT_EQ(user_.text("note/title"), "Note on step 2");
  user_.type("bad batch");
  user_.frame(2);
  user_.press_named(ImGuiKey_Enter);
  user_.frame(3);
  EXPECT_EQ(note_on(view(), 2), "bad batch");
  EXPECT_EQ(user_.text("timeline/note/2"), "bad batch");
  view().cursor = 0;
  user_.press(letter_key('P'), {.ctrl = true});
  user_.frame(2);
  user_.type("note bad");
  user_.frame(2);
  user_.press_named(ImGuiKey_Enter);
  user_.frame(2);
  EXPECT_EQ(view().cursor, 2);
  user_.press(letter_key('T'));
  user_.frame(3);
  user_.click("note/remove");
  user_.frame(2);
  EXPECT_TRUE(view().notes.empty());
  EXPECT_FALSE(user_.has("timeline/note/2"));
}

TEST_F(LossChart, FurtherRunsAddTheirLoss) {
  const TemporaryFolder folder;
  const std::string file = (folder / "slow-rate.hscope").string();
  {
    Recorder recorder(file);
    halfscope::test::send_run(recorder, halfscope::test::sample_info(), 30);
  }
  user_.app().add_run(file);
  wait_for_added();
  ASSERT_TRUE(user_.has("steps/loss/added/0"));
  user_.hover("steps/loss");
  user_.frame(30);
  EXPECT_THAT(user_.text("steps/loss/tip"), HasSubstr("loss, slow-rate"));
  user_.app().remove_added_runs();
  user_.frame(2);
  EXPECT_FALSE(user_.has("steps/loss/added/0"));
}

TEST_F(LossChart, RunsOfTheSameNameAreToldApartByTheirFolders) {
  const TemporaryFolder folder;
  for (const char* each : {"fast", "slow"}) {
    std::filesystem::create_directory(folder / each);
    const std::string file = (folder / each / "run.hscope").string();
    {
      Recorder recorder(file);
      halfscope::test::send_run(recorder, halfscope::test::sample_info(), 30);
    }
    user_.app().add_run(file);
  }
  wait_for_added();
  user_.hover("steps/loss");
  user_.frame(30);
  EXPECT_THAT(user_.text("steps/loss/tip"),
              testing::AllOf(HasSubstr("loss, fast/run"), HasSubstr("loss, slow/run")));
}

TEST_F(LossChart, ARunThatCannotBeReadIsToldAndTheOthersStay) {
  const TemporaryFolder folder;
  const std::string file = (folder / "torn.hscope").string();
  halfscope::test::write_text(file, "not a run");
  user_.app().add_run(file);
  wait_for_added();
  ASSERT_TRUE(user_.app().others_error());
  EXPECT_THAT(user_.app().others_error()->what(), HasSubstr("torn.hscope"));
  EXPECT_THAT(user_.app().problem(), HasSubstr("torn.hscope"));
  EXPECT_FALSE(user_.has("steps/loss/added/0"));
}

TEST(Zoom, ShowsTheStepsThatHarmTheSelection) {
  // layer1.weight_grad overflows in step 50 alone.
  AppDriver user(test::plain_run(2, 100), {}, {}, Screen::spectrum);
  ViewState& view = user.app().view();
  view.lane = user.app().run()->view().lane(1).name;
  view.layer = "layer1";
  view.site = "layer1.weight_grad";
  user.frame(2);
  user.press(letter_key('Z'));
  user.frame(2);
  EXPECT_EQ(view.range, (StepRange{48.0, 52.0})) << "with two steps before and after";
  view.lane = user.app().run()->view().lane(0).name;
  user.frame(2);
  user.press(letter_key('Z'));
  EXPECT_EQ(view.range, (StepRange{48.0, 52.0})) << "nothing to zoom to in the other lane";
}

TEST(Found, LayersSayHowMuchTheirWorstTensorLoses) {
  AppDriver user(test::full_run());
  user.frame(3);
  const RunModel& run = *user.app().run();
  const int lane = run.first_lane();
  const LaneModel& model = run.lane(lane);
  const auto worst_of = [&](size_t layer) {
    double most = 0.0;
    for (const int site : model.layers[layer].sites)
      most = std::max(most, metric_share(*run.rates(lane, site, -1), Metric::worst));
    return most;
  };
  size_t worst = 0;
  for (size_t i = 1; i < model.layers.size(); ++i) {
    if (worst_of(i) > worst_of(worst)) worst = i;
  }
  ASSERT_GT(worst_of(worst), 0.0);
  const std::string path = model.layers[worst].path;
  user.app().view().filter = path;
  user.frame(2);
  EXPECT_THAT(user.text("layers/count"), HasSubstr(", worst " + percent(worst_of(worst))));
  user.press(letter_key('P'), {.ctrl = true});
  user.frame(2);
  user.type("layer: " + path);
  user.frame(2);
  EXPECT_EQ(user.text("palette/layer/" + path + "/right"), "Worst " + percent(worst_of(worst)));
}

}  // namespace
}  // namespace halfscope::gui
