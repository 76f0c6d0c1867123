// SPDX-License-Identifier: MIT
// The levels are broken as their stories say, only the intended answers repair them, and files with
// mistakes are refused by name.
#include "core/lab/puzzle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/lab/puzzle_html.h"
#include "core/lab/puzzle_text.h"
#include "core/lower/lower.h"
#include "core/numeric/formats/rng.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"

namespace halfscope::lab {
namespace {

using testing::HasSubstr;

zoo::Backends backends() {
  return {.emulated = &emulation_backend(), .in_double = &float64_backend()};
}

/// A level and the answers that it is designed for.
struct Design {
  const char* name;
  double broken, right;           ///< its number; NaN: any
  std::set<std::string> solving;  ///< single choices that solve it
  std::string par;                ///< the cheapest answer
};

std::vector<Design> designs() {
  return {
      // 256 / 768 in bf16: NumPy with ml_dtypes sums 768 ones to 256, and 256 / 768 is 0.333984375.
      {"01-average-of-ones", 0.333984375, 1.0, {"b", "c", "d"}, "c"},
      {"02-layer-before-the-blame", 52, 64, {"c", "d"}, "d"},
      {"03-network-that-never-learns", 0, 512, {"c"}, "c"},
      {"04-scale-too-large", 0, 256, {"c"}, "c"},
      {"05-attention-without-attention", 768, 1024, {"b", "c"}, "c"},
      {"06-epsilon-that-vanished", 12, 16, {"b", "c"}, "c"},
      {"07-weights-that-stand-still", 0, 768, {"b", "c", "d"}, "d"},
      {"08-average-that-stopped", 1.0, 1.094, {"c"}, "c"},
      {"09-outlier-rules-the-tensor", 0.188, 0, {"a", "d"}, "a"},
      {"10-layer-norm-weights", 4, 2048, {"a", "c", "d"}, "c"},
      {"11-384-workers", 0.0169, 0, {"b", "c"}, "c"},
      {"12-time-step", 0.613, 0, {}, "abc"},
  };
}

uint32_t bits_of(const std::string& letters) {
  uint32_t choices = 0;
  for (const char c : letters) choices |= uint32_t{1} << (c - 'a');
  return choices;
}

class Levels : public testing::TestWithParam<Design> {};

TEST_P(Levels, AreBrokenAndSolvedByTheIntendedAnswers) {
  const Design design = GetParam();
  const std::vector<Puzzle>& all = puzzles();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Puzzle& each) { return each.name == design.name; });
  ASSERT_NE(found, all.end());
  EXPECT_FALSE(found->hint.empty());
  EXPECT_FALSE(found->lesson.empty());
  PuzzleDesk desk(*found, backends());
  const PuzzleAnswer& broken = desk.answer(0);
  EXPECT_EQ(broken.truth.harm, zoo::Harm::real) << broken.truth.error;
  EXPECT_EQ(broken.bits, 0);
  EXPECT_NEAR(broken.number, design.broken, 0.005 * design.broken);
  EXPECT_NEAR(desk.right_number(), design.right, 0.001 * design.right);
  for (size_t i = 0; i < found->choices.size(); ++i) {
    const std::string letter(1, static_cast<char>('a' + i));
    const PuzzleAnswer& answer = desk.answer(uint32_t{1} << i);
    EXPECT_EQ(answer.solved, design.solving.contains(letter))
        << letter << " " << answer.truth.error;
    EXPECT_GE(answer.bits, 0) << letter << ": fp32 costs at least as much";
  }
  const PuzzleAnswer& best = desk.answer(bits_of(design.par));
  EXPECT_TRUE(best.solved);
  EXPECT_EQ(best.bits, desk.par());
  // No smaller set of choices is as cheap.
  for (uint32_t choices = 1; choices < uint32_t{1} << found->choices.size(); ++choices) {
    const PuzzleAnswer& each = desk.answer(choices);
    if (!each.solved || each.bits > best.bits) continue;
    EXPECT_GE(std::popcount(choices), std::popcount(best.choices)) << choices;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Levels, testing::ValuesIn(designs()), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return "Level" + name;
});

TEST(Puzzles, EveryLevelHasADesign) {
  std::set<std::string> designed;
  for (const Design& each : designs()) designed.insert(each.name);
  const std::vector<std::string> names = puzzle_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), designed);
  EXPECT_EQ(names.size(), 12u);
}

constexpr const char* kLevel = R"({
  "schema": "halfscope.puzzle/1", "title": "t", "story": "s", "plan": "naive_bfloat16",
  "network": [
    {"input": "x", "shape": [1, 768], "values": 1},
    {"node": "mean", "op": "ReduceMean", "inputs": ["x"], "attributes": {"axes": [1]}}],
  "result": "mean", "measure": "outputs", "number": {"of": "output", "text": "n"},
  "choices": [{"text": "c", "changes": [{"kind": "accumulate_fp32", "path": "mean"}]}]
})";

std::string with(const std::string& old, const std::string& now) {
  std::string text = kLevel;
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), now);
}

TEST(PuzzleFile, MistakesAreNamed) {
  EXPECT_NO_THROW(read_puzzle(kLevel, "mine"));
  const std::vector<std::pair<std::string, const char*>> mistakes{
      {"{", "level 'mine': is not valid JSON: line 1, column 2: the text ends too early"},
      {"[]", "must be a JSON object"},
      {with("\"story\": \"s\"", "\"story\": \"\\u001b[2J\""), "control characters"},
      {with("\"values\": 1}", "\"values\": 1e300}"), "too large for fp32"},
      {with("\"values\": 1}", "\"values\": null}"), "must be a number, an array"},
      {with("\"values\": 1}", "\"values\": {\"normal\": [0, -1]}}"), "deviation of at least 0"},
      {with("\"title\"", "\"tittle\""), "unknown key \"tittle\""},
      {with("\"title\": \"t\",", ""), "needs the key \"title\""},
      {with("puzzle/1", "puzzle/9"), "schema: must be"},
      {with("naive_bfloat16", "naive_float99"), "plan: "},
      {with("\"values\": 1}", "\"values\": {}}"), "network[0].values: needs \"normal\""},
      {with("\"values\": 1}", "\"values\": {\"normal\": [1]}}"), "an array of two numbers"},
      {with("\"values\": 1}", "\"values\": {\"ramp\": [0, 1], \"set\": {\"9999\": 1}}}"),
       "has no element 9999"},
      {with("[1, 768]", "[1, -768]"), "network[0].shape: must be a whole number"},
      {with("[1, 768]", "[4000, 768000]"), "network[0].shape: "},
      {with("ReduceMean", "ReduceMeans"), "network[1]: "},
      {with("[\"x\"]", "[\"y\"]"), "there is no \"y\" above"},
      {with("\"result\": \"mean\"", "\"result\": \"max\""), "there is no \"max\" above"},
      {with("\"result\": \"mean\",", ""), "needs either \"result\""},
      {with("\"outputs\"", "\"loss\""), "\"outputs\" is for \"result\""},
      {with("accumulate_fp32", "accumulate_fp64"), "choices[0].changes: is not a list of changes"},
      {with("\"path\": \"mean\"", "\"path\": \"men\""), "the network has no \"men\""},
      {with("\"of\": \"output\"", "\"of\": \"outputs\""), "unknown word \"outputs\""},
      {with("\"choices\"", "\"plan\": \"float32\", \"choices\""), "has the key \"plan\" twice"},
  };
  for (const auto& [text, what] : mistakes) {
    try {
      read_puzzle(text, "mine");
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(error.hint(), "");
    }
  }
}

TEST(PuzzleFile, ExtremeSizesAreRefused) {
  for (const char* steps : {"0", "1e9", "-1", "99999999999999999999", "2000, \"ranks\": 4096"}) {
    const std::string text =
        with("\"result\": \"mean\", \"measure\": \"outputs\"",
             std::string(
                 "\"measure\": \"loss\", \"train\": {\"loss\": \"mean\", \"optimizer\": \"sgd\", "
                 "\"steps\": ") +
                 steps + "}");
    EXPECT_THROW(read_puzzle(text, "mine"), Error) << steps;
  }
}

TEST(PuzzleFile, DamagedFilesAreRefusedOrRead) {
  constexpr std::string_view kSigns = "{}[]\":,0123456789-eE.xyz \\u\n";
  int refused = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string text = kLevel;
    for (uint64_t edit = 0; edit <= random_word(i, 0) % 3; ++edit) {
      const size_t at = random_word(i, 2 * edit + 1) % text.size();
      const uint64_t what = random_word(i, 2 * edit + 2);
      if (what % 3 == 0) {
        text.erase(at, 1 + what / 3 % 12);
      } else {
        text.insert(at, 1, kSigns[what / 3 % kSigns.size()]);
      }
    }
    try {
      read_puzzle(text, "damaged");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
  EXPECT_LT(refused, 3000) << "blanks and texts may change";
}

/// x [2, 3] times w [3, 4].
Model product() {
  Model model;
  const ValueId x = model.graph.add_input("x", {2, 3});
  const ValueId w = model.graph.add_variable("w", {3, 4}, {});
  const ValueId y = model.graph.add1("MatMul", "y", {x, w});
  model.input = x;
  model.outputs.push_back({"y", y});
  return model;
}

TEST(PuzzleBits, AreCountedByHand) {
  const auto bits = [](const char* plan) {
    return bits_per_step(lower_inference(product(), preset_plan(plan).value()), 1);
  };
  // Operands of 6 and 12 elements, 8 results and their 8 accumulators.
  EXPECT_EQ(bits("float32"), 32 * (6 + 12 + 8 + 8));
  EXPECT_EQ(bits("mixed_float16"), 16 * (6 + 12 + 8) + 32 * 8);
  // e4m3 operands, bf16 results.
  EXPECT_EQ(bits("fp8_current") - bits("float32"), -(24 * 18 + 16 * 8) + 2 * 32) << "two scales";
}

TEST(PuzzleDesk, StopsWhenItIsTold) {
  const Puzzle& puzzle = puzzles()[6];
  ASSERT_TRUE(puzzle.which.make().trains);
  std::atomic<bool> stop{false};
  PuzzleDesk desk(puzzle, backends(), &stop);
  EXPECT_FALSE(desk.answer(0).solved);
  stop = true;
  EXPECT_FALSE(desk.answer(0).solved) << "known answers stay";
  EXPECT_THROW(desk.answer(1), Error) << "stopped, which is not an answer";
  EXPECT_THROW(PuzzleDesk(puzzle, backends(), &stop), Error);
  stop = false;
  EXPECT_TRUE(desk.answer(1).refused.empty());
  EXPECT_EQ(desk.answer(1).losses.size(), desk.right_losses().size());
}

TEST(PuzzleHtml, ContainsEveryAnswerAndNoWayOut) {
  const Puzzle evil = read_puzzle(with("\"title\": \"t\"", "\"title\": \"</script><b>x\""), "evil");
  const std::string page = puzzle_html(std::vector<Puzzle>{evil}, backends(), "1.2.3");
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003cb>x"));
  EXPECT_THAT(page, HasSubstr("\"verdict\":\"This is the cheapest answer: 16 extra bits (par).\""));
  EXPECT_THAT(page, HasSubstr("\"version\":\"1.2.3\""));
  EXPECT_EQ(page.find("http"), page.find("http://www.w3.org/2000/svg")) << "loads nothing";
}

}  // namespace
}  // namespace halfscope::lab
