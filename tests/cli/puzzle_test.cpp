// SPDX-License-Identifier: MIT
// `halfscope puzzle`: pages, exit codes, progress and mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::Outcome;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Keeps progress in the test's folder, and puts the environment back.
class CliPuzzle : public testing::Test {
 protected:
  CliPuzzle() { setenv("HALFSCOPE_PROGRESS", (bench_ / "progress.json").c_str(), 1); }
  ~CliPuzzle() override { unsetenv("HALFSCOPE_PROGRESS"); }
  Bench bench_;
};

TEST_F(CliPuzzle, ListsAndShowsLevels) {
  const Outcome list = bench_.run({"puzzle"});
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.out, AllOf(HasSubstr("12  978 becomes 976"), HasSubstr("Solved: 0 of 12")));
  const Outcome level = bench_.run({"puzzle", "1"});
  EXPECT_EQ(level.code, 0);
  EXPECT_THAT(level.out, AllOf(HasSubstr("average of 768 ones: 0.334 (in double: 1)"),
                               HasSubstr("  c  Keep the running sum"),
                               HasSubstr("mean    ReduceMean(activations)")));
  EXPECT_EQ(bench_.run({"puzzle", "01-average-of-ones"}).out, level.out);
  EXPECT_THAT(bench_.run({"puzzle", "1", "--hint"}).out, HasSubstr("256 + 1"));
  EXPECT_THAT(bench_.run({"puzzle", "1", "--solve"}).out, HasSubstr("par"));
}

TEST_F(CliPuzzle, JudgesAnswersAndKeepsProgress) {
  const Outcome wrong = bench_.run({"puzzle", "1", "a"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("Not solved. The result is still 66.6% off."));
  EXPECT_THAT(wrong.out, Not(HasSubstr("Seen in"))) << "no lesson yet";
  EXPECT_THAT(bench_.run({"puzzle"}).out, HasSubstr("not solved in 1 try"));
  const Outcome dear = bench_.run({"puzzle", "1", "b"});
  EXPECT_EQ(dear.code, 0);
  EXPECT_THAT(dear.out, AllOf(HasSubstr("Solved."), HasSubstr("par is 16"), HasSubstr("Seen in")));
  EXPECT_THAT(bench_.run({"puzzle"}).out, HasSubstr("770 times par (12,320 bits)"));
  EXPECT_THAT(bench_.run({"puzzle", "1", "c"}).out, HasSubstr("This is the cheapest answer"));
  EXPECT_EQ(bench_.run({"puzzle", "1", "a"}).code, 1) << "later failures do not count";
  EXPECT_THAT(bench_.run({"puzzle"}).out,
              AllOf(HasSubstr("at par (16 bits)"), HasSubstr("Solved: 1 of 12")));
  const json list = json::parse(bench_.run({"puzzle", "--json"}).out);
  EXPECT_EQ(list.at("schema"), "halfscope.puzzles/1");
  EXPECT_EQ(list.at("levels")[0].at("bits"), 16);
  EXPECT_TRUE(list.at("levels")[1].at("par").is_null());
  EXPECT_EQ(bench_.run({"puzzle", "--reset"}).code, 0);
  EXPECT_THAT(bench_.run({"puzzle"}).out, HasSubstr("Solved: 0 of 12"));
}

TEST_F(CliPuzzle, CombinesChoicesAndPrintsJson) {
  const Outcome both = bench_.run({"puzzle", "12", "a,b,c", "--json"});
  EXPECT_EQ(both.code, 0) << both.err;
  const json answer = json::parse(both.out);
  EXPECT_EQ(answer.at("schema"), "halfscope.puzzle-answer/1");
  EXPECT_EQ(answer.at("answer").at("choices"), "abc");
  EXPECT_EQ(answer.at("answer").at("solved"), true);
  EXPECT_EQ(answer.at("answer").at("bits"), answer.at("par"));
  const Outcome clash = bench_.run({"puzzle", "5", "bc"});
  EXPECT_EQ(clash.code, 1);
  EXPECT_THAT(clash.out, HasSubstr("These choices cannot be combined"));
}

TEST_F(CliPuzzle, PlaysFilesAndWritesPages) {
  std::ofstream(bench_ / "mine.json") << test::text_of(std::string(HALFSCOPE_SOURCE_DIR) +
                                                       "/examples/puzzles/01-average-of-ones.json");
  EXPECT_EQ(bench_.run({"puzzle", "mine.json", "c"}).code, 0);
  EXPECT_THAT(bench_.run({"puzzle"}).out, HasSubstr("Solved: 0 of 12")) << "files have no progress";
  const Outcome page = bench_.run({"puzzle", "mine.json", "--html", "mine.html"});
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_THAT(test::text_of(bench_ / "mine.html"),
              AllOf(HasSubstr("<!DOCTYPE html>"), HasSubstr("768 ones average")));
  EXPECT_EQ(bench_.run({"puzzle", "mine.json", "--html", "mine.html"}).code, 2) << "it exists";
}

TEST_F(CliPuzzle, MistakesSayWhatToDo) {
  std::ofstream(bench_ / "bad.json") << "{";
  std::filesystem::create_directory(bench_ / "folder.json");
  std::string healthy = test::text_of(std::string(HALFSCOPE_SOURCE_DIR) +
                                      "/examples/puzzles/01-average-of-ones.json");
  healthy.replace(healthy.find("naive_bfloat16"), 14, "mixed_bfloat16");
  std::ofstream(bench_ / "healthy.json") << healthy;
  const std::vector<std::tuple<std::vector<std::string>, int, const char*, const char*>> mistakes{
      {{"13"}, 2, "there is no level '13'", "1 to 12"},
      {{"1", "z"}, 2, "'z' is not a choice", "a to d"},
      {{"none.json"}, 3, "cannot open 'none.json'", "check the path"},
      {{"bad.json"}, 2, "level 'bad': is not valid JSON", "puzzle.md"},
      {{"--hint"}, 2, "need a level", "puzzle 1 --hint"},
      {{"1", "--reset"}, 2, "forgets all levels", "leave out"},
      {{"1", "a", "--html", "x.html"}, 2, "cannot be combined", "one of them"},
      {{"1", "a", "--hint"}, 2, "cannot be combined", "one of them"},
      {{"1", "--solve", "--json"}, 2, "--json is for", "leave it out"},
      {{"folder.json"}, 3, "not a file", "JSON file of a level"},
      {{"healthy.json"}, 3, "is not broken", "another plan"}};
  for (const auto& [words, code, what, hint] : mistakes) {
    std::vector<std::string> all{"puzzle"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = bench_.run(all);
    EXPECT_EQ(outcome.code, code) << what;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(what), HasSubstr(hint)));
    EXPECT_EQ(outcome.out, "");
  }
  // Progress is not worth an error.
  setenv("HALFSCOPE_PROGRESS", "/proc/no/such/place.json", 1);
  const Outcome full = bench_.run({"puzzle", "1", "c"});
  EXPECT_EQ(full.code, 0);
  EXPECT_THAT(full.err, HasSubstr("cannot keep your progress"));
  EXPECT_EQ(bench_.run({"puzzle", "--reset"}).code, 3);
  // A damaged file counts as none.
  setenv("HALFSCOPE_PROGRESS", (bench_ / "odd.json").c_str(), 1);
  for (const char* text :
       {"", "5", "{\"schema\": 5}", "{\"schema\": \"halfscope.progress/1\", \"levels\": 3}"}) {
    std::ofstream(bench_ / "odd.json") << text;
    EXPECT_EQ(bench_.run({"puzzle"}).code, 0) << text;
    EXPECT_EQ(bench_.run({"puzzle", "1", "c"}).code, 0) << text;
  }
}

}  // namespace
}  // namespace halfscope
