// SPDX-License-Identifier: MIT
// Files and processes of the viewer: runs that grow, disappear or are invalid, saved settings,
// plans that are edited and tried.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "analysis/recorder.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "gui/app/child_process.h"
#include "gui/app/trial.h"
#include "gui/data/loader.h"
#include "gui/state/edited_plan.h"
#include "gui/state/settings.h"
#include "tests/analysis/sample_run.h"
#include "tests/gui/app_driver.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

using namespace std::chrono_literals;
using halfscope::test::TemporaryFolder;
using testing::HasSubstr;

/// Waits until `condition` holds; returns false after a long while.
template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

// --- Runs ----------------------------------------------------------------------------------------

TEST(Loader, FollowsARunWhileItIsWritten) {
  const TemporaryFolder folder;
  const std::string file = (folder / "run.hscope").string();
  const RunInfo info = halfscope::test::sample_info();
  Recorder recorder(file);
  recorder.begin(info);
  halfscope::test::send_steps(recorder, info, 0, 3);
  std::atomic<int> wakes = 0;
  const Loader loader(file, [&wakes] { ++wakes; });
  ASSERT_TRUE(eventually([&] {
    const auto state = loader.state();
    return state.model && state.model->report();
  }));
  EXPECT_EQ(loader.state().model->step_count(), 3);
  EXPECT_TRUE(loader.state().model->live());
  EXPECT_GT(wakes, 0);
  const auto before = loader.state().model;
  halfscope::test::send_steps(recorder, info, 3, 4);
  ASSERT_TRUE(eventually([&] { return loader.state().model->step_count() == 7; }));
  EXPECT_EQ(before->step_count(), 3) << "a snapshot stays as it is";
  recorder.end(RunEnd::complete);
  EXPECT_TRUE(eventually([&] { return !loader.state().model->live(); }));
}

TEST(Loader, TellsWhatIsNoRunFile) {
  const TemporaryFolder folder;
  const auto file = folder / "notes.hscope";
  for (const std::string& text :
       {std::string("not a run"), std::string(), std::string(5000, 'x')}) {
    write_text(file, text);
    const Loader loader(file.string());
    ASSERT_TRUE(eventually([&] { return !loader.state().error.empty(); })) << text.size();
    EXPECT_EQ(loader.state().model, nullptr);
  }
}

TEST(Loader, KeepsWhatItHasWhenTheFileGoesAway) {
  const TemporaryFolder folder;
  const std::string file = (folder / "run.hscope").string();
  {
    Recorder recorder(file);
    halfscope::test::send_run(recorder, halfscope::test::sample_info(), 5);
  }
  const Loader loader(file);
  ASSERT_TRUE(eventually([&] { return loader.state().model && loader.state().model->report(); }));
  std::filesystem::remove(file);
  ASSERT_TRUE(eventually([&] { return !loader.state().error.empty(); }));
  EXPECT_THAT(loader.state().error, HasSubstr("was moved or deleted"));
  EXPECT_EQ(loader.state().model->step_count(), 5);
}

TEST(Loader, KeepsWhatItHasWhenTheFileIsCutOff) {
  const TemporaryFolder folder;
  const std::string file = (folder / "run.hscope").string();
  {
    Recorder recorder(file);
    halfscope::test::send_run(recorder, halfscope::test::sample_info(), 5);
  }
  const Loader loader(file);
  ASSERT_TRUE(eventually([&] { return loader.state().model && loader.state().model->report(); }));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  ASSERT_TRUE(eventually([&] { return !loader.state().error.empty(); }));
  EXPECT_EQ(loader.state().model->step_count(), 5);
}

TEST(Viewer, SaysInTheWindowThatAFileIsNoRun) {
  const TemporaryFolder folder;
  const auto file = folder / "foreign.hscope";
  write_text(file, "this is no run file");
  AppDriver user;
  user.app().open(file.string());
  ASSERT_TRUE(eventually([&] {
    user.frame();
    return user.has("welcome/error");
  }));
  EXPECT_THAT(user.text("welcome/error"), HasSubstr("foreign.hscope"));
  EXPECT_TRUE(user.has("welcome/open")) << "one can go on";
}

// --- Saved settings ------------------------------------------------------------------------------

TEST(Settings, ComeBackAndIgnoreWhatMakesNoSense) {
  const TemporaryFolder folder;
  const SettingsFile file(folder.path());
  Settings settings;
  settings.dark = false;
  settings.ui_scale = 1.5f;
  settings.layout.left = 300;
  settings.add_recent("/a.hscope");
  settings.add_recent("/b.hscope");
  settings.add_recent("/a.hscope");
  file.save(settings);
  const Settings loaded = file.load();
  EXPECT_FALSE(loaded.dark);
  EXPECT_EQ(loaded.ui_scale, 1.5f);
  EXPECT_EQ(loaded.layout.left, 300);
  EXPECT_THAT(loaded.recent, testing::ElementsAre("/a.hscope", "/b.hscope"));
  write_text(folder / "viewer.json",
             R"({"ui_scale": 1e9, "left": "wide", "dark": 7, "recent": 3})");
  const Settings broken = file.load();
  EXPECT_EQ(broken.ui_scale, 1.0f);
  EXPECT_EQ(broken.layout.left, Layout{}.left);
  EXPECT_TRUE(broken.recent.empty());
  write_text(folder / "viewer.json", "{ no JSON");
  EXPECT_EQ(file.load().width, Settings{}.width);
}

TEST(Settings, TheViewOfARunComesBackAndTheRunStaysUntouched) {
  const TemporaryFolder folder;
  const std::string run = (folder / "run.hscope").string();
  {
    Recorder recorder(run);
    halfscope::test::send_run(recorder, halfscope::test::sample_info(), 5);
  }
  const PlanEdit edits{.changes = {{.kind = FixKind::store_fp32, .path = "fc1"},
                                   {.kind = FixKind::loss_scale, .value = 512.0}}};
  const auto written = std::filesystem::last_write_time(run);
  const auto show = [&](AppDriver& user) {
    user.app().open(run);
    return eventually([&] {
      user.frame();
      return user.app().run() && user.app().run()->report();
    });
  };
  {
    AppDriver user({}, {}, {.state_folder = folder / "state"});
    ASSERT_TRUE(show(user));
    user.app().view().cursor = 2;
    user.app().view().metric = Metric::underflow;
    user.app().view().tab = Tab::events;
    user.app().view().screen = Screen::details;
    user.app().view().window = "mxfp8";
    user.app().view().closed = {"block1"};
    user.app().view().heat = {.low = 0.25, .high = 0.75};
    user.app().view().edits = edits;
    user.frame(2);
  }
  AppDriver user({}, {}, {.state_folder = folder / "state"});
  ASSERT_TRUE(show(user));
  user.frame(2);
  EXPECT_EQ(user.app().view().cursor, 2);
  EXPECT_EQ(user.app().view().metric, Metric::underflow);
  EXPECT_EQ(user.app().view().tab, Tab::events);
  EXPECT_EQ(user.app().view().screen, Screen::details);
  EXPECT_EQ(user.app().view().window, "mxfp8");
  EXPECT_THAT(user.app().view().closed, testing::ElementsAre("block1"));
  EXPECT_EQ(user.app().view().heat, (HeatRange{.low = 0.25, .high = 0.75}));
  EXPECT_EQ(user.app().view().edits, edits);
  EXPECT_EQ(std::filesystem::last_write_time(run), written);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2)
      << "the run and the state folder, nothing beside the run";
}

// --- Edits and trials --------------------------------------------------------------------------

TEST(EditedPlan, KeepsTheLayersAndNothingElse) {
  LaneInfo lane;
  lane.name = "mixed_float16";
  lane.plan_json = plan_to_json(*preset_plan("mixed_float16"));
  const Plan plan = plan_from_json(edited_plan(lane, PlanEdit::in_fp32({"block*/conv"})));
  EXPECT_EQ(resolve(plan, "block*/conv", "Conv").write, kFp32);
  EXPECT_EQ(resolve(plan, "block2/conv", "Conv").write, kFp16) << "a path is no glob";
  EXPECT_EQ(plan.name, "mixed_float16+edited");
  lane.plan_json = plan_to_json(*preset_plan("float16"));
  EXPECT_EQ(plan_from_json(edited_plan(lane, {})).storage, kFp16);
  EXPECT_EQ(plan_from_json(edited_plan(lane, PlanEdit::of(FixKind::weights_fp32))).storage, kFp32);
}

TEST(TrialCommand, StaysOnTheBackendOfTheLane) {
  LaneInfo lane;
  lane.backend = "emulated";
  EXPECT_EQ(plan_argument(lane, "p.json"), "p.json");
  lane.backend = "cuda-own";
  EXPECT_EQ(plan_argument(lane, "p.json"), "cuda-own:p.json");
}

TEST(TrialCommand, TrainsAsTheRunDid) {
  RunInfo run;
  run.settings = {"--model", "lenet-hot", "--steps", "60"};
  run.lane_settings = {"--lanes", "float32,mixed_float16", "--loss-scale", "dynamic:1024"};
  run.lanes.resize(2);
  run.lanes[0].name = "float32";
  EXPECT_THAT(trial_command(run, 0, {}, "p.json", "o.hscope"),
              testing::ElementsAre("train", "--model", "lenet-hot", "--steps", "60", "--lanes",
                                   "float32,p.json", "--loss-scale", "dynamic:1024", "--out",
                                   "o.hscope", "--force"));
  EXPECT_THAT(trial_command(run, -1, PlanEdit::with_loss_scale(4096.0), "p.json", "o.hscope"),
              testing::IsSupersetOf({"p.json", "static:4096"}));
  run.settings.clear();
  EXPECT_THROW(trial_command(run, 0, {}, "p.json", "o.hscope"), Error);
}

TEST(ChildProcess, GivesItsOutputAndItsEnd) {
  ChildProcess child({"sh", "-c", "echo out; echo err >&2; exit 3"});
  ASSERT_TRUE(eventually([&] {
    child.poll();
    return !child.running();
  }));
  EXPECT_EQ(child.exit_code(), 3);
  EXPECT_THAT(child.output(), HasSubstr("out\n"));
  EXPECT_THAT(child.output(), HasSubstr("err\n"));
}

TEST(ChildProcess, IsAskedToStop) {
  ChildProcess child({"sleep", "600"});
  child.poll();
  EXPECT_TRUE(child.running());
  child.interrupt();
  ASSERT_TRUE(eventually([&] {
    child.poll();
    return !child.running();
  }));
  EXPECT_EQ(child.exit_code(), 130);
}

TEST(ChildProcess, AProgramThatIsNotThereIsAnError) {
  EXPECT_THROW(ChildProcess({"/no/such/program"}), Error);
}

}  // namespace
}  // namespace halfscope::gui
