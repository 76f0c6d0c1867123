// SPDX-License-Identifier: MIT
#include "cli/tasks/puzzle_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/terminal/lane_summary.h"  // aligned
#include "core/error.h"
#include "core/lab/puzzle_text.h"
#include "core/number_text.h"

namespace halfscope::lab {
namespace {

std::string chosen(const Puzzle& puzzle, uint32_t choices) {
  std::string text;
  for (size_t i = 0; i < puzzle.choices.size(); ++i) {
    if ((choices >> i & 1) == 0) continue;
    text += fmt::format("  {}  {}\n", static_cast<char>('a' + i), puzzle.choices[i].text);
  }
  return text;
}

std::string paragraphs(const std::vector<std::string>& list, const TextStyle& style) {
  std::string text;
  for (const std::string& each : list) text += paragraph(each, style, 0, 0) + "\n";
  return text;
}

std::string indented(const std::string& lines) {
  std::string text;
  for (const char c : lines) {
    if (text.empty() || text.back() == '\n') text += "  ";
    text += c;
  }
  return text;
}

std::string letters(uint32_t choices) {
  std::string text;
  for (int i = 0; i < 32; ++i) {
    if ((choices >> i & 1) != 0) text += static_cast<char>('a' + i);
  }
  return text;
}

}  // namespace

uint32_t read_choices(const Puzzle& puzzle, const std::string& text) {
  uint32_t choices = 0;
  for (const char c : text) {
    if (c == ',' || c == ' ' || c == '+') continue;
    const int place = c - 'a';
    if (place < 0 || place >= static_cast<int>(puzzle.choices.size())) {
      throw usage_error(fmt::format("'{}' is not a choice of this level", c),
                        fmt::format("the choices are a to {}; combine them as in 'ab'",
                                    static_cast<char>('a' + puzzle.choices.size() - 1)));
    }
    choices |= uint32_t{1} << place;
  }
  if (choices == 0) throw usage_error("no choice given", "name one or several, as in 'a' or 'ab'");
  return choices;
}

std::string list_text(const PuzzleProgress& progress) {
  std::vector<std::vector<std::string>> rows{{"level", "", "your best"}};
  size_t number = 0, solved = 0;
  for (const Puzzle& each : puzzles()) {
    const auto found = progress.find(each.name);
    std::string best = "-";
    if (found != progress.end() && found->second.solved) {
      ++solved;
      best = score_text(found->second.bits, found->second.par);
    } else if (found != progress.end()) {
      best = fmt::format("not solved in {}", found->second.tries == 1
                                                 ? std::string("1 try")
                                                 : fmt::format("{} tries", found->second.tries));
    }
    rows.push_back({fmt::format("{}", ++number), each.title, best});
  }
  std::string text =
      "Precision puzzles: each run is broken. Repair it with as few bits as you can.\n\n" +
      aligned(rows, {true, false, false}) + "\n";
  text += fmt::format("Solved: {} of {}. ", solved, rows.size() - 1);
  text += "Look at a level with halfscope puzzle 1, and answer with halfscope puzzle 1 a.\n";
  return text;
}

std::string level_text(PuzzleDesk& desk, size_t number, const TextStyle& style) {
  const Puzzle& puzzle = desk.puzzle();
  std::string text =
      number > 0 ? fmt::format("Level {}: {}\n\n", number, puzzle.title) : puzzle.title + "\n\n";
  text += paragraphs(puzzle.story, style);
  text += indented(network_text(puzzle)) + "\n";
  text +=
      fmt::format("{}: {} (in double: {})\n\nChoices:\n", puzzle.number.text,
                  coloured(number_text(puzzle.number, desk.answer(0).number), Colour::red, style),
                  number_text(puzzle.number, desk.right_number()));
  for (size_t i = 0; i < puzzle.choices.size(); ++i) {
    text += fmt::format("  {}  {}\n", static_cast<char>('a' + i), puzzle.choices[i].text);
  }
  const std::string name = number > 0 ? fmt::format("{}", number) : puzzle.name + ".json";
  text +=
      fmt::format("\nAnswer with halfscope puzzle {} a, or several letters. --hint helps.\n", name);
  return text;
}

std::string answer_text(PuzzleDesk& desk, uint32_t choices, const TextStyle& style) {
  const Puzzle& puzzle = desk.puzzle();
  const PuzzleAnswer& broken = desk.answer(0);
  const PuzzleAnswer& answer = desk.answer(choices);
  std::string text = puzzle.title + "\n" + chosen(puzzle, choices) + "\n";
  text += aligned(
      {{"", "before", "now", "in double"},
       {puzzle.number.text, number_text(puzzle.number, broken.number),
        number_text(puzzle.number, answer.number), number_text(puzzle.number, desk.right_number())},
       {"error", error_text(broken.truth), error_text(answer.truth), ""},
       {"more bits", "", grouped(answer.bits), ""}},
      {false, true, true, true});
  text += "\n";
  if (!answer.solved) {
    return text + coloured("Not solved.", Colour::red, style) + " " + why_not(answer) + "\n";
  }
  const int64_t par = desk.par();
  text +=
      coloured("Solved.", Colour::green, style) + " " + verdict_of_bits(answer.bits, par) + "\n\n";
  return text + paragraphs(puzzle.lesson, style) +
         (puzzle.seen.empty() ? "" : "Seen in: " + puzzle.seen + "\n");
}

std::string solution_text(PuzzleDesk& desk) {
  const Puzzle& puzzle = desk.puzzle();
  const int64_t par = desk.par();
  std::vector<std::vector<std::string>> rows{
      {"answer", puzzle.number.text, "error", "more bits", "", ""}};
  std::vector<uint32_t> shown;
  for (size_t i = 0; i < puzzle.choices.size(); ++i) shown.push_back(uint32_t{1} << i);
  uint32_t best = 0;
  for (uint32_t choices = 1; choices < uint32_t{1} << puzzle.choices.size(); ++choices) {
    const PuzzleAnswer& each = desk.answer(choices);
    if (each.solved && each.bits == par && best == 0) best = choices;
  }
  if (best != 0 && std::find(shown.begin(), shown.end(), best) == shown.end())
    shown.push_back(best);
  for (const uint32_t choices : shown) {
    const PuzzleAnswer& each = desk.answer(choices);
    std::string what;
    for (size_t i = 0; i < puzzle.choices.size(); ++i) {
      if ((choices >> i & 1) != 0) what += (what.empty() ? "" : ", ") + puzzle.choices[i].text;
    }
    rows.push_back({letters(choices), number_text(puzzle.number, each.number),
                    error_text(each.truth), grouped(each.bits),
                    each.solved ? choices == best ? "par" : "solved" : "", what});
  }
  return puzzle.title + "\n\n" + aligned(rows, {false, true, true, true, false, false});
}

Json list_json(const PuzzleProgress& progress) {
  Json json{{"schema", "halfscope.puzzles/1"}, {"version", HALFSCOPE_VERSION}};
  json["levels"] = Json::array();
  for (const Puzzle& each : puzzles()) {
    const auto found = progress.find(each.name);
    const bool solved = found != progress.end() && found->second.solved;
    json["levels"].push_back({{"name", each.name},
                              {"title", each.title},
                              {"solved", solved},
                              {"bits", solved ? Json(found->second.bits) : Json()},
                              {"par", solved ? Json(found->second.par) : Json()}});
  }
  return json;
}

namespace {

Json answer_of(PuzzleDesk& desk, uint32_t choices) {
  const PuzzleAnswer& answer = desk.answer(choices);
  Json json{{"choices", letters(choices)},           {"solved", answer.solved},
            {"number", json_number(answer.number)},  {"error", json_number(answer.truth.error)},
            {"non_finite", answer.truth.non_finite}, {"bits", answer.bits}};
  return json;
}

Json head_of(PuzzleDesk& desk, const char* schema) {
  const Puzzle& puzzle = desk.puzzle();
  Json json{{"schema", schema},
            {"version", HALFSCOPE_VERSION},
            {"name", puzzle.name},
            {"title", puzzle.title},
            {"plan", puzzle.plan},
            {"number", puzzle.number.text},
            {"in_double", json_number(desk.right_number())}};
  json["broken"] = answer_of(desk, 0);
  return json;
}

}  // namespace

Json level_json(PuzzleDesk& desk) {
  Json json = head_of(desk, "halfscope.puzzle-level/1");
  json["story"] = desk.puzzle().story;
  json["choices"] = Json::array();
  for (const PuzzleChoice& each : desk.puzzle().choices) json["choices"].push_back(each.text);
  return json;
}

Json answer_json(PuzzleDesk& desk, uint32_t choices) {
  Json json = head_of(desk, "halfscope.puzzle-answer/1");
  json["answer"] = answer_of(desk, choices);
  json["par"] = desk.par() < 0 ? Json() : Json(desk.par());
  return json;
}

}  // namespace halfscope::lab
