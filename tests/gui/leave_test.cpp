// SPDX-License-Identifier: MIT
// Quitting while a training runs, bookmarks, files of other versions, sizes of displays and
// windows.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "analysis/recorder.h"
#include "analysis/sqlite.h"
#include "gui/app/display_scale.h"
#include "tests/analysis/sample_run.h"
#include "tests/gui/app_driver.h"
#include "tests/gui/plain_run.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

using namespace std::chrono_literals;
using halfscope::test::TemporaryFolder;
using testing::HasSubstr;

template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

std::string read_text(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// --- Quitting ------------------------------------------------------------------------------------

/// A fake training: it prints its process ID. When interrupted, it takes a while for its last step
/// and then reports that its file is complete.
class Leaving : public testing::Test {
 protected:
  Leaving() {
    user_.frame(2);
    user_.app().follow_trial(std::make_unique<Trial>(
        std::vector<std::string>{
            "sh", "-c",
            "trap 'sleep 0.4; echo whole; exit 0' INT; echo $$; while :; do sleep 0.05; done"},
        (folder_ / "trial.hscope").string()));
    EXPECT_TRUE(eventually([&] {
      user_.frame();
      return user_.app().trial()->output().find('\n') != std::string::npos;
    }));
    process_ = std::stoi(user_.app().trial()->output());
  }
  ~Leaving() override {
    if (process_ > 0) ::kill(process_, SIGKILL);
  }
  std::string log() const { return read_text(folder_ / "trial.log"); }
  void ask() {
    user_.press(letter_key('Q'), {.ctrl = true});
    user_.frame(2);
  }

  TemporaryFolder folder_;
  AppDriver user_{test::plain_run(2, 10)};
  pid_t process_ = -1;
};

TEST_F(Leaving, AsksWhileATrainingRuns) {
  ask();
  EXPECT_FALSE(user_.app().wants_quit());
  EXPECT_EQ(user_.text("quit/title"), "Training is still running");
  EXPECT_THAT(user_.text("quit/what"), HasSubstr("trial.hscope"));
  user_.click("quit/cancel");
  user_.frame(2);
  EXPECT_FALSE(user_.has("quit/title"));
  EXPECT_FALSE(user_.app().wants_quit());
  EXPECT_TRUE(user_.app().trial()->running());
}

TEST_F(Leaving, StopsAndWaitsForTheLastStep) {
  ask();
  user_.click("quit/stop");
  user_.frame(2);
  EXPECT_FALSE(user_.app().wants_quit()) << "its last step takes a while";
  EXPECT_THAT(user_.text("quit/waiting"), HasSubstr("finish its step"));
  EXPECT_TRUE(eventually([&] {
    user_.frame();
    return user_.app().wants_quit();
  }));
  EXPECT_THAT(log(), HasSubstr("whole\n"));
  EXPECT_NE(::kill(process_, 0), 0) << "it has ended";
  process_ = -1;
}

TEST_F(Leaving, LetsItRunOn) {
  ask();
  user_.click("quit/keep");
  EXPECT_TRUE(user_.app().wants_quit());
  EXPECT_EQ(::kill(process_, 0), 0) << "it goes on";
  EXPECT_THAT(log(), testing::Not(HasSubstr("whole")));
}

TEST_F(Leaving, QuitsAtOnceWhenItHasEnded) {
  ::kill(process_, SIGINT);
  EXPECT_TRUE(eventually([&] {
    user_.frame();
    return !user_.app().trial()->running();
  }));
  process_ = -1;
  user_.app().quit();
  user_.frame();
  EXPECT_TRUE(user_.app().wants_quit());
}

TEST_F(Leaving, AnotherTrainingStopsTheFirstWithoutKillingIt) {
  user_.app().follow_trial(std::make_unique<Trial>(std::vector<std::string>{"sleep", "0"},
                                                   (folder_ / "second.hscope").string()));
  EXPECT_TRUE(eventually([&] {
    user_.frame();
    return log().find("whole") != std::string::npos;
  }));
  process_ = -1;
}

// --- Bookmarks -----------------------------------------------------------------------------------

TEST(Bookmarks, AreSetListedAndGoneTo) {
  AppDriver user(test::plain_run(3, 60));
  user.app().view().lane = "half";
  user.app().view().site = "layer1.weight_grad";
  user.app().view().metric = Metric::overflow;
  user.app().view().cursor = 50;
  user.app().view().range = {40.0, 55.0};
  user.frame(2);
  user.press(letter_key('B'));
  ASSERT_EQ(user.app().view().bookmarks.size(), 1u);
  EXPECT_EQ(user.app().view().bookmarks[0].name,
            "layer1.weight_grad, half, Overflow, step 50, showing steps 40 to 55");
  user.app().view().lane = "float32";
  user.app().view().site = "layer0.activation";
  user.app().view().metric = Metric::worst;
  user.app().view().range = {};
  user.app().view().cursor = 3;
  user.frame(2);
  user.press(letter_key('B'));
  ASSERT_EQ(user.app().view().bookmarks.size(), 2u);
  user.press(letter_key('B'), {.shift = true});
  user.frame(2);
  user.click("bookmarks/0");
  user.frame(2);
  EXPECT_FALSE(user.has("bookmarks/title")) << "it has closed";
  EXPECT_EQ(user.app().view().lane, "half");
  EXPECT_EQ(user.app().view().site, "layer1.weight_grad");
  EXPECT_EQ(user.app().view().metric, Metric::overflow);
  EXPECT_EQ(user.app().view().cursor, 50);
  EXPECT_EQ(user.app().view().range, (StepRange{40.0, 55.0}));
  user.press_named(ImGuiKey_DownArrow, {.alt = true});
  EXPECT_EQ(user.app().view().cursor, 3) << "the next one";
  user.press_named(ImGuiKey_DownArrow, {.alt = true});
  EXPECT_EQ(user.app().view().cursor, 50) << "and around";
  user.press(letter_key('B'));
  EXPECT_EQ(user.app().view().bookmarks.size(), 1u) << "the same key takes it away";
  user.press_named(ImGuiKey_LeftArrow, {.alt = true});
  EXPECT_EQ(user.app().view().cursor, 3) << "Back knows where one was before";
}

TEST(Bookmarks, StandInThePaletteAndCanBeTakenAway) {
  AppDriver user(test::plain_run(3, 60));
  user.app().view().cursor = 7;
  user.frame(2);
  user.press(letter_key('B'));
  user.app().view().cursor = 20;
  user.frame(2);
  user.press(letter_key('P'), {.ctrl = true});
  user.frame(2);
  user.type("step 7");
  user.frame(2);
  EXPECT_THAT(user.text("palette/bookmark/0"), HasSubstr("step 7"));
  user.press_named(ImGuiKey_Enter);
  user.frame(2);
  EXPECT_EQ(user.app().view().cursor, 7);
  user.press(letter_key('B'), {.shift = true});
  user.frame(2);
  user.click("bookmarks/0/remove");
  user.frame(2);
  EXPECT_TRUE(user.app().view().bookmarks.empty());
}

TEST(Bookmarks, AreRememberedWithTheRun) {
  const TemporaryFolder folder;
  const SettingsFile file(folder.path());
  ViewState view;
  view.bookmarks.push_back({.name = "here", .place = {}});
  Place& place = view.bookmarks[0].place;
  place.lane = "half";
  place.site = "conv2.activation";
  place.metric = Metric::underflow;
  place.cursor = 12;
  place.range = {3.5, 20.25};
  place.tab = Tab::events;
  file.save_view("run.hscope", view);
  const ViewState back = file.load_view("run.hscope");
  ASSERT_EQ(back.bookmarks.size(), 1u);
  EXPECT_EQ(back.bookmarks[0].name, "here");
  EXPECT_EQ(back.bookmarks[0].place, place);
  EXPECT_TRUE(file.load_view("other.hscope").bookmarks.empty());
}

// --- Files of other versions ---------------------------------------------------------------------

TEST(OtherVersions, ANewerFileSaysWhatToDo) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "new.hscope";
  {
    Recorder recorder(file);
    halfscope::test::send_run(recorder, halfscope::test::sample_info(), 1);
  }
  sqlite::Database(file, sqlite::Access::read_write).execute("PRAGMA user_version=99");
  AppDriver user;
  user.app().open(file.string());
  ASSERT_TRUE(eventually([&] {
    user.frame();
    return user.has("welcome/error");
  }));
  EXPECT_THAT(user.text("welcome/error"), HasSubstr("newer format 99"));
  EXPECT_THAT(user.text("welcome/hint"), HasSubstr("update"));
}

// --- Displays and windows ------------------------------------------------------------------------

TEST(DisplayScale, IsThatOfTheContentLessWhatTheWindowsUnitsHold) {
  EXPECT_EQ(display_scale(1.0f, 1440, 1440), 1.0f);
  EXPECT_EQ(display_scale(2.0f, 2880, 2880), 2.0f) << "units are pixels";
  EXPECT_EQ(display_scale(2.0f, 1440, 2880), 1.0f) << "units are points";
  EXPECT_EQ(display_scale(1.5f, 1000, 1500), 1.0f);
  EXPECT_EQ(display_scale(0.0f, 0, 0), 1.0f) << "nothing is known";
  EXPECT_EQ(display_scale(NAN, 100, 100), 1.0f);
  EXPECT_EQ(display_scale(100.0f, 100, 100), 4.0f);
  // Opened at twice the length that was remembered, and remembered as the same again.
  EXPECT_EQ(remembered_length(2880, 2.0f), 1440);
}

TEST(DisplayScale, TheUsersFactorStaysWhenTheDisplayChanges) {
  AppDriver user(test::plain_run(2, 10));
  user.app().settings().ui_scale = 1.25f;
  EXPECT_TRUE(user.app().prepare(2.0f)) << "new fonts";
  EXPECT_FALSE(user.app().prepare(2.0f));
  EXPECT_TRUE(user.app().prepare(1.0f));
  EXPECT_EQ(user.app().settings().ui_scale, 1.25f);
}

TEST(SmallWindows, PagesShareTheSpace) {
  AppDriver user(test::full_run());
  ImGui::GetIO().DisplaySize = {800, 500};
  user.frame(3);
  EXPECT_TRUE(user.has("steps/heatmap"));
  EXPECT_TRUE(user.has("layers/filter"));
  EXPECT_FALSE(user.has("advice/try"));
  user.click("tab/Values");
  user.frame(2);
  EXPECT_FALSE(user.has("steps/heatmap"));
  EXPECT_TRUE(user.has("values/title"));
  user.click("tab/Recommendations");
  user.frame(2);
  EXPECT_TRUE(user.has("advice/try"));
  EXPECT_EQ(user.app().view().tab, Tab::recommendations);
  user.app().show_tab(Tab::events);
  user.frame(2);
  EXPECT_TRUE(user.has("events/group/0/step"));
  user.click("tab/Steps");
  user.frame(2);
  EXPECT_TRUE(user.has("steps/heatmap"));
  ImGui::GetIO().DisplaySize = {1440, 900};
  user.frame(3);
  EXPECT_TRUE(user.has("steps/heatmap"));
  EXPECT_TRUE(user.has("values/title"));
  EXPECT_TRUE(user.has("events/group/0/step")) << "the tab that was chosen";
}

TEST(SmallWindows, EveryPlotKeepsItsLeastHeight) {
  AppDriver user(test::full_run());
  for (const ImVec2 size : {ImVec2{800, 500}, ImVec2{640, 400}, ImVec2{1280, 720},
                            ImVec2{1920, 1080}, ImVec2{1000, 460}}) {
    ImGui::GetIO().DisplaySize = size;
    user.frame(3);
    for (const char* plot : {"steps/loss", "steps/heatmap"}) {
      const TrackedItem& item = user.item(plot);
      EXPECT_GE(item.max.y - item.min.y, 36.0f) << plot << " at " << size.x << "x" << size.y;
      EXPECT_GE(item.max.x - item.min.x, 150.0f) << plot << " at " << size.x << "x" << size.y;
    }
  }
}

TEST(Words, AFewHealthyStepsAreNoPromise) {
  test::RunSpec spec = test::healthy_spec();
  spec.steps = 3;
  AppDriver early(test::make_run(spec));
  early.frame(3);
  EXPECT_THAT(early.text("verdict/state"), HasSubstr("inconclusive"));
}

}  // namespace
}  // namespace halfscope::gui
