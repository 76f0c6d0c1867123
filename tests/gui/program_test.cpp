// SPDX-License-Identifier: MIT
// The program itself, drawn by OpenGL without a display: scripts, pictures, errors. Skips without
// OpenGL.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "analysis/recorder.h"
#include "analysis/study/study_file.h"
#include "gui/app/child_process.h"
#include "tests/analysis/sample_run.h"
#include "tests/report/study_fixtures.h"

#define STBI_ONLY_PNG
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image.h>
#pragma GCC diagnostic pop

namespace halfscope {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;

struct Outcome {
  int code = -1;
  std::string said;  ///< output and error output
};

Outcome run_program(std::vector<std::string> words) {
  gui::ChildProcess child(words);
  for (int i = 0; i < 6000 && child.running(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    child.poll();
  }
  return {child.exit_code().value_or(-1), child.output()};
}

struct Picture {
  int width = 0, height = 0;
  std::vector<unsigned char> rgba;
  size_t colors() const {
    std::set<uint32_t> all;
    for (size_t i = 0; i + 3 < rgba.size(); i += 4) {
      all.insert(uint32_t{rgba[i]} << 16 | uint32_t{rgba[i + 1]} << 8 | rgba[i + 2]);
    }
    return all.size();
  }
  int at(int x, int y, int channel) const {
    return rgba[static_cast<size_t>((y * width + x) * 4 + channel)];
  }
};

Picture read_picture(const std::filesystem::path& file) {
  Picture picture;
  int channels = 0;
  unsigned char* data = stbi_load(file.c_str(), &picture.width, &picture.height, &channels, 4);
  if (data == nullptr) return picture;
  picture.rgba.assign(data, data + picture.width * picture.height * 4);
  stbi_image_free(data);
  return picture;
}

class ViewProgram : public testing::Test {
 protected:
  ViewProgram() {
    Recorder recorder(run_);
    test::send_run(recorder, test::sample_info(), 8);
  }
  static Outcome view(std::vector<std::string> words) {
    words.insert(words.begin(), HALFSCOPE_VIEWER);
    return run_program(std::move(words));
  }
  /// Returns why OpenGL is missing. Other failures do not count: the tests continue and fail.
  std::string no_opengl() const {
    const Outcome outcome = view({"--screenshot", (folder_ / "probe.png").string()});
    const bool missing = outcome.said.find("cannot draw without a display") != std::string::npos;
    return missing ? outcome.said : "";
  }
  TemporaryFolder folder_;
  std::string run_ = (folder_ / "run.hscope").string();
};

TEST_F(ViewProgram, WritesAPictureOfARun) {
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  const auto file = folder_ / "run.png";
  const Outcome outcome =
      view({run_, "--screenshot", file.string(), "--size", "1000x700", "--light"});
  ASSERT_EQ(outcome.code, 0) << outcome.said;
  const Picture picture = read_picture(file);
  EXPECT_EQ(picture.width, 1000);
  EXPECT_EQ(picture.height, 700);
  EXPECT_GT(picture.colors(), 100u) << "text, bars and a heatmap";
  EXPECT_EQ(picture.at(999, 350, 3), 255);
  EXPECT_GT(picture.at(3, 350, 0), 200) << "light ground";
}

TEST_F(ViewProgram, AStudyIsOpenedAlone) {
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  const StudyView study = test::sample_study();
  const std::vector<TrialSpec> specs(study.trials().begin(), study.trials().end());
  const std::string file = (folder_ / "study.sqlite").string();
  {
    StudyFile writer(file, study.info(), specs);
    for (const TrialRow& trial : study.trials()) writer.write(trial.trial, trial);
    writer.commit();
  }
  const auto picture_file = folder_ / "study.png";
  const Outcome outcome = view({file, "--screenshot", picture_file.string()});
  ASSERT_EQ(outcome.code, 0) << outcome.said;
  EXPECT_GT(read_picture(picture_file).colors(), 100u) << "cells, lines and text";
  const Outcome two = view({file, run_, "--screenshot", (folder_ / "two.png").string()});
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.said, HasSubstr("a study is opened alone"));
  const Outcome card = view({file, "--share", (folder_ / "card.png").string()});
  EXPECT_EQ(card.code, 2);
  EXPECT_THAT(card.said, HasSubstr("--share needs a run"));
}

TEST_F(ViewProgram, AShareCardHasTheSizeOfLinkPictures) {
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  const auto dark = folder_ / "dark.png", light = folder_ / "light.png";
  const Outcome outcome = view({run_, "--share", dark.string(), "--size", "1000x700"});
  ASSERT_EQ(outcome.code, 0) << outcome.said;
  const Picture picture = read_picture(dark);
  EXPECT_EQ(picture.width, 1200);
  EXPECT_EQ(picture.height, 630);
  EXPECT_GT(picture.colors(), 100u) << "a Spectrum, a loss and text";
  ASSERT_EQ(view({run_, "--share", light.string(), "--light"}).code, 0);
  EXPECT_GT(read_picture(light).at(3, 350, 0), 200) << "light ground";
  const Outcome again = view({run_, "--share", dark.string()});
  EXPECT_EQ(again.code, 2) << "a file is there, and no --force";
}

TEST_F(ViewProgram, HalfscopeViewStartsIt) {
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  const auto file = folder_ / "run.png";
  const Outcome outcome =
      run_program({HALFSCOPE_PROGRAM, "view", run_, "--screenshot", file.string()});
  ASSERT_EQ(outcome.code, 0) << outcome.said;
  EXPECT_EQ(read_picture(file).width, 1440);
  const Outcome wrong = run_program({HALFSCOPE_PROGRAM, "view", "--size", "1x1"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.said, HasSubstr("--size 1x1"));
}

TEST_F(ViewProgram, TheSameRunGivesTheSamePicture) {
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  for (const char* name : {"a.png", "b.png"}) {
    ASSERT_EQ(view({run_, "--screenshot", (folder_ / name).string()}).code, 0);
  }
  EXPECT_EQ(read_picture(folder_ / "a.png").rgba, read_picture(folder_ / "b.png").rgba);
}

TEST_F(ViewProgram, ScriptsMoveItAndSayWhatTheyCannotDo) {
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  const auto script = folder_ / "script.txt";
  const auto first = folder_ / "first.png", last = folder_ / "last.png";
  std::ofstream(script) << "# the tab of events\npicture \"" << first.string()
                        << "\"\nstep 3\ntab events\nclick \"tab/Layer details\"\n";
  const Outcome outcome = view({run_, "--screenshot", last.string(), "--script", script.string()});
  ASSERT_EQ(outcome.code, 0) << outcome.said;
  EXPECT_NE(read_picture(first).rgba, read_picture(last).rgba);
  std::ofstream(script) << "step 3\nclick no/such/thing\n";
  const Outcome bad =
      view({run_, "--screenshot", last.string(), "--script", script.string(), "--force"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.said, HasSubstr("line 2"));
  EXPECT_THAT(bad.said, HasSubstr("no/such/thing"));
}

TEST_F(ViewProgram, AScriptWaitsForTheLab) {
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  const auto script = folder_ / "script.txt", progress = folder_ / "puzzles.json";
  // Only a solved level offers the next one, and only one that has been opened has choices.
  std::ofstream(script) << "frames 3\nclick lab/tab/puzzles\nwait lab\n"
                           "click lab/puzzle/choice/c\nclick lab/puzzle/run\nwait lab\n"
                           "click lab/puzzle/next\nwait lab\nclick lab/puzzle/choice/e\n";
  setenv("HALFSCOPE_PROGRESS", progress.c_str(), 1);
  const Outcome outcome = view({"--lab", "fp16 0.1", "--screenshot", (folder_ / "x.png").string(),
                                "--script", script.string()});
  unsetenv("HALFSCOPE_PROGRESS");
  EXPECT_EQ(outcome.code, 0) << outcome.said;
  EXPECT_THAT(test::read_text(progress), HasSubstr("01-average-of-ones"));
}

TEST_F(ViewProgram, AScriptWritesPanelsAsSvg) {
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  const auto script = folder_ / "script.txt";
  for (const char* name : {"a.svg", "b.svg"}) {
    // Neither the size of the window nor its scale matters.
    const bool large = name[0] == 'b';
    std::ofstream(script) << "svg loss \"" << (folder_ / name).string() << "\"\n";
    const Outcome outcome =
        view({run_, "--screenshot", (folder_ / "x.png").string(), "--script", script.string(),
              "--force", "--size", large ? "1900x1100" : "800x500"});
    ASSERT_EQ(outcome.code, 0) << outcome.said;
  }
  const std::string first = test::read_text(folder_ / "a.svg");
  EXPECT_THAT(first, HasSubstr("data-name=\"steps/loss/float32\""));
  EXPECT_EQ(first, test::read_text(folder_ / "b.svg"));
  const Outcome again =
      view({run_, "--screenshot", (folder_ / "y.png").string(), "--script", script.string()});
  EXPECT_EQ(again.code, 2) << "a file is there, and no --force";
}

TEST_F(ViewProgram, NeverWritesOverWhatItReads) {
  const auto script = folder_ / "script.txt";
  const auto before = std::filesystem::file_size(run_);
  std::ofstream(script) << "frames 1\n";
  for (const std::string& target : {run_, script.string()}) {
    const Outcome outcome =
        view({run_, "--screenshot", target, "--script", script.string(), "--force"});
    EXPECT_EQ(outcome.code, 2) << outcome.said;
    EXPECT_THAT(outcome.said, HasSubstr("would be overwritten"));
  }
  EXPECT_EQ(std::filesystem::file_size(run_), before);
  const auto there = folder_ / "there.png";
  std::ofstream(there) << "mine";
  EXPECT_EQ(view({run_, "--screenshot", there.string()}).code, 2);
  EXPECT_EQ(std::filesystem::file_size(there), 4u) << "only with --force";
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  std::ofstream(script) << "picture " << run_ << "\n";
  const Outcome inside = view(
      {run_, "--screenshot", (folder_ / "x.png").string(), "--script", script.string(), "--force"});
  EXPECT_EQ(inside.code, 2) << inside.said;
  EXPECT_EQ(std::filesystem::file_size(run_), before);
}

TEST_F(ViewProgram, LinesThatCannotBeDoneAreErrors) {
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  const auto script = folder_ / "script.txt";
  for (const char* line :
       {"screen none",   "window none",     "wipe 2",          "wipe nan",
        "lane none",     "layer none",      "tensor none",     "keep none",
        "lens nonsense", "rows foo",        "theme purple",    "step -5",
        "step 1.5",      "step nan",        "step 1e30",       "steps 20 5",
        "steps inf 3",   "scale-shift nan", "scale-shift 1e9", "hover layers/filter 5",
        "step 1 2",      "frames 1e300",    "tab none",        "wait forever",
        "svg none x",    "svg loss",        "smooth 1",        "smooth nan",
        "note 1",        "note 99999 late", "nonsense"}) {
    std::ofstream(script) << "frames 1\n" << line << "\n";
    const Outcome outcome = view({run_, "--screenshot", (folder_ / "x.png").string(), "--script",
                                  script.string(), "--force"});
    EXPECT_EQ(outcome.code, 2) << line << ": " << outcome.said;
    EXPECT_THAT(outcome.said, HasSubstr("line 2")) << line;
  }
}

TEST_F(ViewProgram, WrongArgumentsAreOneLineAndTwo) {
  for (const auto& [words, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--size", "big", "--screenshot", "x.png"}, "--size big"},
           {{"--scale", "99"}, "--scale 99"},
           {{"--script", "x"}, "--screenshot"},
           {{"--share", "x.png"}, "--share needs a run"},
           {{"--share", "x.png", "--screenshot", "y.png"}, "different pictures"},
           {std::vector<std::string>(13, "a.hscope"), "at most 12 runs, but 13 were given"},
           {{"--nonsense"}, "--nonsense"}}) {
    const Outcome outcome = view(words);
    EXPECT_EQ(outcome.code, 2) << text;
    EXPECT_THAT(outcome.said, HasSubstr(text));
    EXPECT_THAT(outcome.said, HasSubstr("hint: "));
  }
}

TEST_F(ViewProgram, ARunThatIsNotThereIsThree) {
  const Outcome outcome = view({"none.hscope"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.said, HasSubstr("cannot open 'none.hscope': file not found"));
}

TEST_F(ViewProgram, OtherRunsThatCannotBeReadAreErrors) {
  if (const std::string why = no_opengl(); !why.empty()) GTEST_SKIP() << why;
  const auto broken = folder_ / "broken.hscope";
  std::ofstream(broken) << "not a run";
  const std::string picture = (folder_ / "x.png").string();
  for (const auto& runs : {std::vector{run_, broken.string()}, {run_, run_, broken.string()}}) {
    std::vector<std::string> words{"--screenshot", picture, "--force", "--"};
    words.insert(words.end(), runs.begin(), runs.end());
    const Outcome outcome = view(words);
    EXPECT_EQ(outcome.code, 3) << outcome.said;
    EXPECT_THAT(outcome.said, HasSubstr("broken.hscope"));
  }
}

TEST_F(ViewProgram, WithoutADisplayItSaysWhatToDo) {
  const Outcome outcome =
      run_program({"env", "-u", "DISPLAY", "-u", "WAYLAND_DISPLAY", HALFSCOPE_VIEWER, run_});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.said, HasSubstr("cannot open a window"));
  EXPECT_THAT(outcome.said, HasSubstr("--screenshot"));
}

}  // namespace
}  // namespace halfscope
