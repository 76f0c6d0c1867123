// SPDX-License-Identifier: MIT
// The page of a study without a window: what it says of every kind of study, and what clicks and
// keys do.
#include "gui/study/study_page.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "analysis/recorder.h"
#include "analysis/study/study_file.h"
#include "tests/analysis/sample_run.h"
#include "tests/gui/app_driver.h"
#include "tests/report/study_fixtures.h"

namespace halfscope::gui {
namespace {

using test::finish_trial;
using test::made_study;
using testing::HasSubstr;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class StudyUser : public AppDriver {
 public:
  explicit StudyUser(StudyView study, std::string file = "study/study.sqlite") {
    app().show(StudyModel::make(std::move(file), std::move(study)));
    frame(3);
  }
  std::string selected() {
    const std::string& hash = app().study_state().trial;
    const int trial = app().study()->find(hash);
    if (trial < 0) return "";
    return trial_name(app().study()->view(), app().study()->facts(),
                      app().study()->view().trials()[static_cast<size_t>(trial)]);
  }
};

TEST(StudyPage, SaysWhatTheReportSays) {
  StudyUser user(test::sample_study());
  const StudyFacts& facts = user.app().study()->facts();
  EXPECT_EQ(user.text("study/headline"), facts.verdict.headline);
  EXPECT_EQ(user.text("study/more"), facts.verdict.more);
  EXPECT_EQ(user.text("study/row/1"), "mixed_float16");
  EXPECT_EQ(user.text("study/count/1"), "7 of 10");
  EXPECT_EQ(user.text("study/share/1"), "70% (39.7% to 89.2%)");
  EXPECT_EQ(user.text("study/cell/1/0"), "fails");
  EXPECT_EQ(user.text("study/cell/1/9"), "ok");
  EXPECT_EQ(user.text("study/layer/1/0/tensor"), "conv2 (activation)");
  EXPECT_EQ(user.text("study/layer/1/0/trials"), "7 of 10");
  EXPECT_EQ(user.text("study/layer/1/0/step"), "43");
  EXPECT_FALSE(user.has("study/progress")) << "all have finished";
  EXPECT_EQ(user.text("status/study"), "plans by seeds   40 trials");
  EXPECT_EQ(user.app().title(), "plans by seeds - HalfScope");
}

TEST(StudyPage, BeginsWithATrialThatFails) {
  StudyUser user(test::sample_study());
  EXPECT_EQ(user.text("study/trial/title"), "mixed_float16, seed 1");
  EXPECT_THAT(user.text("study/trial/result"), HasSubstr("fails"));
  EXPECT_EQ(user.text("study/trial/why"), "conv2 overflows");
  EXPECT_EQ(user.text("study/fan/title"), "Losses of mixed_float16");
}

TEST(StudyPage, AClickOnACellSelectsItsTrial) {
  StudyUser user(test::sample_study());
  user.click("study/cell/2/4");
  user.frame(2);
  EXPECT_EQ(user.selected(), "mixed_bfloat16, seed 5");
  EXPECT_EQ(user.text("study/trial/gap"), "+2%");
  EXPECT_EQ(user.text("study/fan/title"), "Losses of mixed_bfloat16");
  user.hover("study/cell/1/6");
  user.frame(2);
  EXPECT_THAT(user.text("study/map/tip"), HasSubstr("mixed_float16, seed 7"));
  EXPECT_THAT(user.text("study/map/tip"), HasSubstr("gap +200%"));
}

TEST(StudyPage, ArrowsMoveTheSelection) {
  StudyUser user(test::sample_study());
  user.press_named(ImGuiKey_RightArrow);
  EXPECT_EQ(user.selected(), "mixed_float16, seed 2");
  user.press_named(ImGuiKey_DownArrow);
  EXPECT_EQ(user.selected(), "mixed_bfloat16, seed 2");
  user.press_named(ImGuiKey_LeftArrow);
  user.press_named(ImGuiKey_LeftArrow);
  EXPECT_EQ(user.selected(), "mixed_bfloat16, seed 1") << "the edge stops it";
  user.press_named(ImGuiKey_UpArrow);
  user.press_named(ImGuiKey_UpArrow);
  EXPECT_EQ(user.selected(), "float32 (baseline), seed 1");
}

TEST(StudyPage, PointsRowsAndLayersSelectTheirGroup) {
  StudyUser user(test::sample_study());
  user.click("study/point/3");
  user.frame(2);
  EXPECT_EQ(user.selected(), "int8_like, seed 1");
  user.click("study/row/2");
  user.frame(2);
  EXPECT_EQ(user.selected(), "mixed_bfloat16, seed 1");
  user.click("study/layer/1/0");
  user.frame(2);
  EXPECT_EQ(user.selected(), "mixed_float16, seed 1");
}

TEST(StudyPage, TheFrontAndRangesCrossNoName) {
  // The same gaps as in the sample, and a front that is nearly level.
  const StudyView level = made_study({"a plan", "b plan"}, 2, [](TrialRow& trial, int plan, int) {
    finish_trial(trial, plan == 1 ? 1.001 : 1.0, plan < 0 ? 32.0 : plan == 0 ? 24.0 : 16.0);
  });
  for (const StudyView& study : {test::sample_study(), level}) {
    StudyUser user(study);
    std::vector<ImVec2> front;
    const StudyFacts& facts = user.app().study()->facts();
    for (size_t i = 0; i < facts.groups.size(); ++i) {
      if (!facts.groups[i].on_front) continue;
      front.push_back(user.item(fmt::format("study/point/{}", i)).center());
      EXPECT_TRUE(user.has(fmt::format("study/name/{}", i))) << facts.groups[i].name;
    }
    ASSERT_GE(front.size(), 2u);
    std::sort(front.begin(), front.end(), [](ImVec2 a, ImVec2 b) { return a.x < b.x; });
    for (size_t group = 0; group < facts.groups.size(); ++group) {
      const std::string path = fmt::format("study/name/{}", group);
      if (!user.has(path)) continue;
      const auto name = user.item(path);
      for (size_t other = 0; other < facts.groups.size(); ++other) {
        const std::string range = fmt::format("study/range/{}", other);
        if (!user.has(range)) continue;
        const auto line = user.item(range);
        EXPECT_FALSE(name.min.x < line.max.x && name.max.x > line.min.x &&
                     name.min.y < line.max.y && name.max.y > line.min.y)
            << name.text << " crosses the range of " << line.text;
      }
      for (size_t i = 1; i < front.size(); ++i) {
        for (int k = 0; k <= 1000; ++k) {
          const float share = static_cast<float>(k) / 1000.0f;
          const float x = front[i - 1].x + share * (front[i].x - front[i - 1].x);
          const float y = front[i - 1].y + share * (front[i].y - front[i - 1].y);
          ASSERT_FALSE(x > name.min.x && x < name.max.x && y > name.min.y && y < name.max.y)
              << name.text;
        }
      }
    }
  }
}

TEST(StudyPage, CopiesTheCommandOfATrial) {
  StudyUser user(test::sample_study());
  user.click("study/copy");
  user.frame(2);
  EXPECT_THAT(ImGui::GetClipboardText(),
              HasSubstr("halfscope train --plan mixed_float16 --seed 1 --out trials/"));
}

TEST(StudyPage, ShowsHowMuchOfAStudyIsFinished) {
  StudyUser none(test::partial_study(0));
  EXPECT_EQ(none.text("study/headline"), "No trial has finished yet.");
  EXPECT_EQ(none.text("study/progress"), "0 of 40 trials finished");
  EXPECT_EQ(none.text("study/cost/empty"), "No trial has finished yet.");
  EXPECT_EQ(none.text("study/layers/empty"), "No trial has finished yet.");
  EXPECT_TRUE(none.has("study/trial/waiting"));
  EXPECT_FALSE(none.has("study/open")) << "it has no run yet";
  StudyUser some(test::partial_study(3));
  EXPECT_EQ(some.text("study/progress"), "12 of 40 trials finished");
  EXPECT_EQ(some.text("study/cell/2/2"), "ok");
  EXPECT_EQ(some.text("study/cell/2/3"), "waiting");
}

TEST(StudyPage, DrawsEveryKindOfStudyInEverySize) {
  const auto all_nan = [](TrialRow& trial, int, int) {
    finish_trial(trial, std::nan(""), 16.0);
    for (CurvePoint& point : trial.curve) point.loss = std::nanf("");
  };
  const auto baselines = [](TrialRow& trial, int plan, int) {
    if (plan < 0) finish_trial(trial, 1.0, 32.0);
  };
  const auto failed = [](TrialRow& trial, int, int) {
    trial.status = TrialStatus::failed;
    trial.error = "not enough memory";
  };
  const auto good = [](TrialRow& trial, int, int) { finish_trial(trial, 1.0, 16.0); };
  const StudyView studies[] = {
      test::sample_study(),
      test::partial_study(1),
      made_study({"a", "b"}, 3, all_nan),
      made_study({"a"}, 1, baselines),
      made_study({"a"}, 2, failed),
      made_study({std::string(300, 'x'), "\x1b[31m\xff<b>%s%n"}, 200, good),
      made_study(std::vector<std::string>(60, "p"), 2, good),
      StudyView({}, {})};
  for (const StudyView& study : studies) {
    for (const ImVec2 size : {ImVec2{1440, 900}, ImVec2{640, 400}, ImVec2{970, 500}}) {
      StudyUser user(study);
      ImGui::GetIO().DisplaySize = size;
      for (int page = 0; page < 5; ++page) {
        user.app().study_state().page = page;
        user.frame(2);
      }
      EXPECT_TRUE(user.has("study/headline"));
    }
  }
}

TEST(StudyPage, SmallWindowsShowOnePartAtATime) {
  StudyUser user(test::sample_study());
  ImGui::GetIO().DisplaySize = {700, 420};
  user.frame(2);
  EXPECT_TRUE(user.has("study/map"));
  EXPECT_FALSE(user.has("study/cost"));
  user.click("study/part/Cost");
  user.frame(2);
  EXPECT_TRUE(user.has("study/cost"));
  EXPECT_FALSE(user.has("study/map"));
}

TEST(StudyPage, ColorsTellFailingFromWaiting) {
  StudyUser user(test::partial_study(7));
  std::vector<Request> requests;
  const StudyFrame frame{.state = user.app().study_state(),
                         .study = *user.app().study(),
                         .theme = dark_theme(),
                         .fonts = user.fonts(),
                         .scale = 1.0f,
                         .requests = requests};
  const ImU32 broken = trial_color(frame, frame.trial(0)),
              above = trial_color(frame, frame.trial(6));
  EXPECT_EQ(broken, dark_theme().bad) << "NaN";
  EXPECT_EQ(above, dark_theme().lost) << "three times the loss";
  EXPECT_NE(trial_color(frame, frame.trial(10)), trial_color(frame, frame.trial(9)));
}

// --- Files -------------------------------------------------------------------------------------

/// A study with a folder: the run of the first trial is there.
class StudyFolderTest : public testing::Test {
 protected:
  void write(const StudyView& study) {
    std::vector<TrialSpec> specs(study.trials().begin(), study.trials().end());
    StudyFile file(folder_ / "study.sqlite", study.info(), specs);
    for (const TrialRow& trial : study.trials()) {
      if (trial.status != TrialStatus::waiting) file.write(trial.trial, trial);
    }
    file.commit();
  }
  void write_run(const StudyView& study, int trial) {
    const std::filesystem::path run = folder_ / study.trials()[static_cast<size_t>(trial)].run;
    std::filesystem::create_directories(run.parent_path());
    Recorder recorder(run.string());
    test::send_run(recorder, test::sample_info(), 8);
  }
  /// Opens the study, by its file or its folder, and waits for its page.
  void open_study(AppDriver& user, const std::string& name = "study.sqlite") {
    user.app().open((folder_ / name).string());
    ASSERT_TRUE(wait_for(user, [&] { return user.app().shows_study(); }));
    user.frame(2);
  }
  static bool wait_for(AppDriver& user, const std::function<bool()>& ready) {
    for (int i = 0; i < 1000; ++i) {
      user.frame();
      if (ready()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  test::TemporaryFolder folder_;
};

TEST_F(StudyFolderTest, OpensAndFollowsAStudyThatIsStillRunning) {
  write(test::partial_study(3));
  AppDriver user;
  open_study(user, "");
  EXPECT_EQ(user.text("study/progress"), "12 of 40 trials finished");
  user.click("study/cell/2/1");
  user.frame();
  const std::string selected = user.app().study_state().trial;
  write(test::sample_study());
  ASSERT_TRUE(wait_for(user, [&] { return user.app().study()->facts().finished == 40; }));
  user.frame(2);
  EXPECT_FALSE(user.has("study/progress"));
  EXPECT_EQ(user.app().study_state().trial, selected) << "the selection stays";
}

TEST_F(StudyFolderTest, ADoubleClickOpensTheRunAndUGoesBack) {
  const StudyView study = test::sample_study();
  write(study);
  write_run(study, 0);
  AppDriver user;
  open_study(user);
  user.double_click_at(user.item("study/cell/1/0").center());
  ASSERT_TRUE(wait_for(user, [&] { return user.app().has_run(); }));
  user.frame(2);
  EXPECT_TRUE(user.app().run()->file().ends_with("0000000000002000.hscope"));
  EXPECT_FALSE(user.has("study/map"));
  EXPECT_TRUE(user.has("screen/study"));
  user.press(letter_key('U'));
  user.frame(2);
  EXPECT_TRUE(user.has("study/map"));
  EXPECT_FALSE(user.app().has_run()) << "keys of the run do nothing here";
  user.click("screen/details");
  user.frame(2);
  EXPECT_TRUE(user.has("verdict/headline"));
  user.app().close_run();
  user.frame(2);
  EXPECT_TRUE(user.has("study/map")) << "closing the run goes back to its study";
  user.app().close_run();
  user.frame(2);
  EXPECT_TRUE(user.has("welcome/title"));
}

TEST_F(StudyFolderTest, EnterOpensTheSelectedRun) {
  const StudyView study = test::sample_study();
  write(study);
  write_run(study, 0);
  AppDriver user;
  open_study(user);
  user.press_named(ImGuiKey_Enter);
  EXPECT_TRUE(wait_for(user, [&] { return user.app().has_run(); }));
}

TEST_F(StudyFolderTest, ARunThatIsGoneIsSaidAndTheStudyStaysOpen) {
  write(test::sample_study());
  AppDriver user;
  open_study(user);
  user.click("study/open");
  ASSERT_TRUE(wait_for(user, [&] { return !user.app().load_error().empty(); }));
  user.frame(2);
  EXPECT_THAT(user.text("welcome/error"), HasSubstr("0000000000002000.hscope"));
  user.click("screen/study");
  user.frame(2);
  EXPECT_TRUE(user.has("study/map"));
}

TEST_F(StudyFolderTest, TheDialogOffersStudies) {
  std::filesystem::create_directory(folder_ / "plain");
  const std::filesystem::path study = folder_ / "a-study";
  std::filesystem::create_directory(study);
  write(test::sample_study());
  std::filesystem::rename(folder_ / "study.sqlite", study / "study.sqlite");
  const auto show_folder = [this](AppDriver& user) {
    user.type(folder_.path().string());  // the name has the keyboard
    user.click("dialog/ok");
    user.frame(2);
  };
  AppDriver user;
  user.frame(2);
  user.click("welcome/open");
  show_folder(user);
  EXPECT_TRUE(user.has("dialog/study/a-study"));
  EXPECT_TRUE(user.has("dialog/entry/plain"));
  EXPECT_FALSE(user.has("dialog/study/plain"));
  user.click("dialog/entry/a-study");
  EXPECT_EQ(user.text("dialog/name"), "a-study");
  EXPECT_TRUE(user.has("dialog/entry/plain")) << "a click does not enter a study";
  user.click("dialog/ok");
  ASSERT_TRUE(wait_for(user, [&] { return user.app().shows_study(); }));
  user.frame(2);
  EXPECT_FALSE(user.has("dialog/ok"));
  // A run to compare with is not a study.
  user.app().choose_baseline();
  user.frame(2);
  show_folder(user);
  EXPECT_TRUE(user.has("dialog/entry/a-study"));
  EXPECT_FALSE(user.has("dialog/study/a-study"));
}

// --- Pictures and data -------------------------------------------------------------------------

class StudyExports : public StudyFolderTest {
 protected:
  std::string svg_of(AppDriver& user, PanelPicture panel) {
    const std::string file = (folder_ / "x.svg").string();
    std::filesystem::remove(file);
    user.app().save_svg(panel, file);
    user.frame();
    EXPECT_EQ(user.app().svg_problem(), "");
    return text_of(file);
  }
  /// Returns the file that "Save" writes to the study's folder.
  std::string saved(AppDriver& user, const std::string& name) {
    user.frame(2);
    EXPECT_EQ(user.text("dialog/name"), name);
    user.click("dialog/ok");
    user.frame(2);
    return text_of(folder_ / name);
  }
};

TEST_F(StudyExports, EachChartIsASvgWithItsWords) {
  StudyUser user(test::sample_study());
  const std::string map = svg_of(user, PanelPicture::study_map);
  EXPECT_THAT(map, HasSubstr(">Plans by seeds</text>"));
  EXPECT_THAT(map, HasSubstr(">7 of 10</text>"));
  EXPECT_THAT(map, HasSubstr(">mixed_bfloat16</text>"));
  const std::string cost = svg_of(user, PanelPicture::study_cost);
  EXPECT_THAT(cost, HasSubstr(">Cost against loss gap</text>"));
  EXPECT_THAT(cost, HasSubstr(">bits per number</text>"));
  const std::string losses = svg_of(user, PanelPicture::study_losses);
  EXPECT_THAT(losses, HasSubstr(">Losses of mixed_float16</text>"));
  // The window and the selected trial make no difference, but the group does.
  ImGui::GetIO().DisplaySize = {700, 420};
  user.app().study_state().page = 3;
  user.frame(2);
  EXPECT_EQ(svg_of(user, PanelPicture::study_map), map);
  EXPECT_EQ(svg_of(user, PanelPicture::study_cost), cost);
  EXPECT_EQ(svg_of(user, PanelPicture::study_losses), losses);
  user.app().study_state().trial = user.app().study()->view().trials()[20].hash;  // mixed_bfloat16
  user.frame(2);
  EXPECT_EQ(svg_of(user, PanelPicture::study_map), map);
  EXPECT_NE(svg_of(user, PanelPicture::study_losses), losses);
}

TEST_F(StudyExports, AStudyWithoutResultsHasAMapOnly) {
  StudyUser user(test::partial_study(0));
  EXPECT_FALSE(svg_of(user, PanelPicture::study_map).empty());
  for (const PanelPicture panel : {PanelPicture::study_cost, PanelPicture::study_losses}) {
    user.app().save_svg(panel, (folder_ / "none.svg").string());
    user.frame();
    EXPECT_THAT(user.app().svg_problem(), HasSubstr("nothing to draw"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none.svg"));
}

TEST_F(StudyExports, MenusOfTheChartsWriteTheirData) {
  write(test::sample_study());
  AppDriver user;
  open_study(user);
  const StudyFacts& facts = user.app().study()->facts();
  user.click_at(user.item("study/cell/2/4").center(), {}, 1);
  user.click("study/map/export");
  EXPECT_EQ(saved(user, "study-trials.csv"), study_csv(user.app().study()->view(), facts));
  user.click_at(user.item("study/cost").center(), {}, 1);
  EXPECT_FALSE(user.has("study/cost/fit"));
  user.click("study/cost/copy");
  user.frame(2);
  EXPECT_THAT(ImGui::GetClipboardText(),
              HasSubstr("group\tbits\tgap\tleast_gap\tworst_gap\tfailing\tfinished\tpareto\n"));
  EXPECT_THAT(ImGui::GetClipboardText(), HasSubstr("\nmixed_bfloat16\t"));
  user.click_at(user.item("study/fan").center(), {}, 1);
  user.click("study/fan/export");
  const std::string losses = saved(user, "study-losses.csv");
  EXPECT_THAT(losses, HasSubstr("step,smallest,lower quartile,median,upper quartile,largest,"
                                "trials,baseline's median\n"));
  EXPECT_EQ(std::count(losses.begin(), losses.end(), '\n'),
            static_cast<std::ptrdiff_t>(facts.groups[1].fan.size()) + 1);
  user.click_at(user.item("study/fan").center(), {}, 1);
  user.click("study/fan/svg");
  EXPECT_THAT(saved(user, "study-losses.svg"), HasSubstr("<svg"));
}

TEST_F(StudyExports, TheExportMenuHasThemForAStudyOnly) {
  const auto offers = [](AppDriver& user) {
    user.press(letter_key('P'), {.ctrl = true});
    user.frame(2);
    user.type("study: trials");
    user.frame(2);
    return user.has("palette/Study: trials as CSV ...");
  };
  write(test::sample_study());
  AppDriver with;
  open_study(with);
  EXPECT_TRUE(offers(with));
  with.press_named(ImGuiKey_Enter);
  EXPECT_THAT(saved(with, "study-trials.csv"), HasSubstr("trial,hash,group,baseline"));
  AppDriver without;
  without.frame(2);
  EXPECT_FALSE(offers(without));
}

}  // namespace
}  // namespace halfscope::gui
