// SPDX-License-Identifier: MIT
// The tab Puzzles, driven: levels opened, answers right and wrong, progress kept in a file.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "core/lab/puzzle_text.h"
#include "tests/gui/lab_window.h"

namespace halfscope::gui {
namespace {

class PuzzleTab : public LabWindow {
 protected:
  explicit PuzzleTab(ImVec2 size = {1400, 860}) : LabWindow(size) {
    const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("halfscope_puzzle_tab_") + test.name());
    std::filesystem::remove_all(folder_);
    setenv("HALFSCOPE_PROGRESS", file().c_str(), 1);
  }
  ~PuzzleTab() override {
    setenv("HALFSCOPE_PROGRESS", "", 1);
    std::filesystem::remove_all(folder_);
  }

  std::string file() const { return (folder_ / "below" / "puzzles.json").string(); }
  /// Draws until nothing runs.
  void wait() {
    wait_while([&] {
      EXPECT_TRUE(lab.moving || !lab.puzzle.busy()) << "the window must draw on";
      return lab.puzzle.busy();
    });
    EXPECT_FALSE(lab.moving);
  }
  void open(int level) {
    ui.click("lab/puzzle/level/" + std::to_string(level));
    wait();
  }
  /// Ticks these choices in addition, and runs.
  void answer(const std::string& letters) {
    for (const char letter : letters) ui.click(std::string("lab/puzzle/choice/") + letter);
    ui.click("lab/puzzle/run");
    wait();
  }

  std::filesystem::path folder_;
};

TEST_F(PuzzleTab, ALevelIsSolvedAndKept) {
  ui.click("lab/tab/puzzles");
  EXPECT_TRUE(ui.has("lab/puzzle/title"));
  wait();
  EXPECT_FALSE(std::filesystem::exists(file())) << "looking is not a try";
  EXPECT_EQ(ui.text("lab/puzzle/level/1"), "unsolved");
  EXPECT_EQ(ui.text("lab/puzzle/number"), "average of 768 ones");
  // 256 / 768, rounded to bf16: 0x3eab is 0.333984375.
  EXPECT_EQ(ui.text("lab/puzzle/number/broken"), "0.334");
  EXPECT_EQ(ui.text("lab/puzzle/number/your change"), "-");
  EXPECT_EQ(ui.text("lab/puzzle/number/in double"), "1");
  EXPECT_NE(ui.text("lab/puzzle/network").find("ReduceMean(activations)"), std::string::npos);
  EXPECT_FALSE(ui.has("lab/puzzle/losses")) << "it does not train";
  EXPECT_FALSE(ui.has("lab/puzzle/next"));

  answer("a");
  EXPECT_EQ(ui.text("lab/puzzle/verdict"), "Not solved. The result is still 66.6% off.");
  EXPECT_EQ(ui.text("lab/puzzle/number/your change"), "0.334");
  EXPECT_EQ(ui.text("lab/puzzle/try/1/bits"), "32");
  EXPECT_EQ(ui.text("lab/puzzle/try/1/result"), "not solved");
  EXPECT_FALSE(ui.has("lab/puzzle/lesson/0"));
  EXPECT_EQ(ui.text("lab/puzzle/level/1"), "unsolved");
  PuzzleProgress kept = read_progress(file());
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_FALSE(kept.at("01-average-of-ones").solved);
  EXPECT_EQ(kept.at("01-average-of-ones").tries, 1);

  answer("ac");  // a is taken back
  EXPECT_EQ(ui.text("lab/puzzle/verdict"),
            "Solved. This is the cheapest answer: 16 extra bits (par).");
  EXPECT_EQ(ui.text("lab/puzzle/number/your change"), "1");
  EXPECT_EQ(ui.text("lab/puzzle/lesson/0"), puzzles()[0].lesson[0]);
  EXPECT_EQ(ui.text("lab/puzzle/try/2/result"), "at par");
  EXPECT_EQ(ui.text("lab/puzzle/level/1"), "at par");
  EXPECT_EQ(ui.text("lab/puzzle/solved"), "Solved: 1 of 12");
  kept = read_progress(file());
  EXPECT_TRUE(kept.at("01-average-of-ones").solved);
  EXPECT_EQ(kept.at("01-average-of-ones").bits, 16);
  EXPECT_EQ(kept.at("01-average-of-ones").par, 16);
  EXPECT_EQ(kept.at("01-average-of-ones").tries, 2);

  // An answer that costs more does not spoil the best one, and an earlier try can be shown again.
  answer("a");
  EXPECT_EQ(ui.text("lab/puzzle/verdict"),
            "Solved. It costs 48 extra bits; par is 16, so a cheaper answer exists.");
  EXPECT_EQ(read_progress(file()).at("01-average-of-ones").bits, 16);
  ui.click("lab/puzzle/try/1");
  ui.frame(2);
  EXPECT_EQ(ui.text("lab/puzzle/verdict"), "Not solved. The result is still 66.6% off.");
  EXPECT_EQ(ui.text("lab/puzzle/choice/a"), "on");
  EXPECT_EQ(ui.text("lab/puzzle/choice/c"), "off");
  answer("c");
  EXPECT_FALSE(ui.has("lab/puzzle/try/4")) << "it was tried before";
  EXPECT_EQ(ui.text("lab/puzzle/try/3"), "ac");
  ui.click("lab/puzzle/next");
  wait();
  EXPECT_EQ(lab.puzzle.shown(), 1u);
  EXPECT_EQ(ui.text("lab/puzzle/title"), puzzles()[1].title);
}

TEST_F(PuzzleTab, ProgressOfTheTerminalIsRead) {
  std::filesystem::create_directories(folder_ / "below");
  PuzzleProgress kept;
  kept["01-average-of-ones"] = {.bits = 196, .par = 16, .tries = 3, .solved = true};
  ASSERT_TRUE(write_progress(file(), kept));
  ui.click("lab/tab/puzzles");
  wait();
  EXPECT_EQ(ui.text("lab/puzzle/level/1"), "solved");
  EXPECT_TRUE(ui.has("lab/puzzle/lesson/0"));
  // The terminal solves another level meanwhile.
  kept["12-time-step"] = {.bits = 1, .par = 1, .tries = 1, .solved = true};
  ASSERT_TRUE(write_progress(file(), kept));
  answer("c");
  kept = read_progress(file());
  EXPECT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept.at("01-average-of-ones").bits, 16);
  EXPECT_EQ(kept.at("01-average-of-ones").tries, 3) << "counted until it is solved";
  EXPECT_EQ(ui.text("lab/puzzle/level/12"), "at par");
}

TEST_F(PuzzleTab, WithoutAFileProgressLastsAsLongAsTheLab) {
  for (const char* place : {"", "/proc/no/such/place.json"}) {
    setenv("HALFSCOPE_PROGRESS", place, 1);
    lab = FloatLab();
    ui.click("lab/tab/puzzles");
    wait();
    answer("c");
    open(2);
    answer("a");
    EXPECT_EQ(ui.text("lab/puzzle/level/1"), "at par") << place;
    EXPECT_EQ(ui.text("lab/puzzle/solved").substr(0, 8), "Solved: ") << place;
  }
}

TEST_F(PuzzleTab, EveryLevelIsDrawn) {
  ui.click("lab/tab/puzzles");
  for (size_t i = 0; i < puzzles().size(); ++i) {
    const Puzzle& puzzle = puzzles()[i];
    theme = i % 2 == 0 ? &dark_theme() : &light_theme();
    open(static_cast<int>(i) + 1);
    EXPECT_EQ(ui.text("lab/puzzle/title"), puzzle.title);
    EXPECT_EQ(ui.text("lab/puzzle/network").empty(), false);
    EXPECT_EQ(ui.has("lab/puzzle/losses"), puzzle.which.make().trains) << puzzle.name;
    EXPECT_NE(ui.text("lab/puzzle/number/broken"), ui.text("lab/puzzle/number/in double"));
    ui.click("lab/puzzle/hint");
    ui.frame(2);
    EXPECT_EQ(ui.text("lab/puzzle/hint/text"), puzzle.hint);
    answer("a");
    EXPECT_NE(ui.text("lab/puzzle/number/your change"), "-") << puzzle.name;
    EXPECT_EQ(ui.has("lab/puzzle/lesson/0"), lab.puzzle.level().tries[0].solved) << puzzle.name;
    expect_fits();
  }
}

TEST_F(PuzzleTab, LossesOfATraining) {
  ui.click("lab/tab/puzzles");
  open(3);
  const std::string before = ui.text("lab/puzzle/losses");
  EXPECT_NE(before.find("yours -"), std::string::npos);
  EXPECT_EQ(ui.text("lab/puzzle/number/broken"), "0") << "all gradients are flushed to zero";
  answer("c");
  EXPECT_NE(ui.text("lab/puzzle/losses"), before);
  EXPECT_EQ(ui.text("lab/puzzle/number/your change"), "512");
  const PuzzleLevel& level = lab.puzzle.level();
  ASSERT_EQ(level.answer()->losses.size(), 80u);
  ASSERT_EQ(level.right_losses.size(), 80u);
  EXPECT_LT(level.answer()->losses.back(), 0.3 * level.broken.losses.back());
  EXPECT_NEAR(level.answer()->losses.back() / level.right_losses.back(), 1.0, 0.1);
}

TEST_F(PuzzleTab, ChoicesRunWhileAnotherLevelOpens) {
  ui.click("lab/tab/puzzles");
  wait();
  ui.click("lab/puzzle/choice/c/text");  // the text is part of the checkbox
  ui.click("lab/puzzle/run");
  ui.click("lab/puzzle/level/11");
  ui.frame();
  EXPECT_EQ(ui.text("lab/puzzle/wait"), "running ...") << "384 workers take a second";
  EXPECT_FALSE(ui.has("lab/puzzle/number"));
  wait();
  EXPECT_EQ(ui.text("lab/puzzle/level/1"), "at par");
  EXPECT_TRUE(lab.puzzle.level().tries.empty());
  EXPECT_TRUE(ui.has("lab/puzzle/number"));
}

class SmallPuzzleTab : public PuzzleTab {
 protected:
  SmallPuzzleTab() : PuzzleTab({640, 480}) {}
};

TEST_F(SmallPuzzleTab, FitsItsWidthAndScrolls) {
  ui.click("lab/tab/puzzles");
  for (const int level : {1, 4, 12}) {
    open(level);
    lab.puzzle.level().chosen = 1;
    lab.puzzle.run();
    wait();
    expect_fits();
    ui.wheel_at({20, 470}, -60.0f);
    ui.frame(2);
    EXPECT_TRUE(ui.item("lab/puzzle/try/1").visible);
    ui.wheel_at({20, 470}, 60.0f);
    ui.frame(2);
  }
}

TEST(PuzzleStudy, ClosingDoesNotWaitForTheRun) {
  setenv("HALFSCOPE_PROGRESS", "", 1);
  using Clock = std::chrono::steady_clock;
  constexpr size_t kWorkers = 10;
  ASSERT_EQ(puzzles()[kWorkers].name, "11-384-workers");
  const auto start = Clock::now();
  PuzzleStudy whole(true);
  whole.show(kWorkers);
  for (int i = 0; i < 4; ++i) whole.update();
  ASSERT_TRUE(whole.level().open);
  const auto takes = Clock::now() - start;
  auto study = std::make_unique<PuzzleStudy>();
  study->show(kWorkers);
  study->update();
  ASSERT_TRUE(study->busy());
  const auto closed = Clock::now();
  study.reset();
  EXPECT_LT(Clock::now() - closed, takes / 2) << "one step, not the whole level";
}

TEST(PuzzleStudy, RunsInAFrameOfItsOwnWhereThereAreNoThreads) {
  setenv("HALFSCOPE_PROGRESS", "", 1);
  PuzzleStudy study(true);
  study.update();
  EXPECT_TRUE(study.opening()) << "a frame says that it runs";
  EXPECT_FALSE(study.level().open);
  study.update();
  EXPECT_FALSE(study.busy());
  ASSERT_TRUE(study.level().open);
  EXPECT_EQ(study.level().right_number, 1.0);
  study.run();
  EXPECT_FALSE(study.busy()) << "nothing is chosen";
  study.level().chosen = 4;
  study.run();
  study.update();
  EXPECT_TRUE(study.answering());
  study.update();
  ASSERT_NE(study.level().answer(), nullptr);
  EXPECT_TRUE(study.level().answer()->solved);
  EXPECT_FALSE(study.level().par.has_value());
  for (int i = 0; i < 2; ++i) study.update();
  EXPECT_EQ(study.level().par, 16);
  EXPECT_EQ(study.solved(), 1u);
}

}  // namespace
}  // namespace halfscope::gui
