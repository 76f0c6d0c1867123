// SPDX-License-Identifier: MIT
#include "core/lab/puzzle_html.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/lab/puzzle_text.h"

namespace halfscope::lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPage =
#include "puzzle_page.inc"
    ;

Json losses_json(const std::vector<double>& losses) {
  Json list = Json::array();
  for (const double each : losses) list.push_back(std::isfinite(each) ? Json(each) : Json());
  return list;
}

Json answer_json(PuzzleDesk& desk, uint32_t choices) {
  const PuzzleAnswer& answer = desk.answer(choices);
  return {{"number", number_text(desk.puzzle().number, answer.number)},
          {"error", answer.refused.empty() ? error_text(answer.truth) : "-"},
          {"bits", answer.bits},
          {"solved", answer.solved},
          {"verdict", answer.solved ? verdict_of_bits(answer.bits, desk.par()) : why_not(answer)},
          {"losses", losses_json(answer.losses)}};
}

Json level_json(const Puzzle& puzzle, zoo::Backends backends) {
  PuzzleDesk desk(puzzle, backends);
  Json level{{"name", puzzle.name},
             {"title", puzzle.title},
             {"story", puzzle.story},
             {"plan", puzzle.plan},
             {"what", puzzle.number.text},
             {"right", number_text(puzzle.number, desk.right_number())},
             {"network", network_text(puzzle)},
             {"hint", puzzle.hint},
             {"lesson", puzzle.lesson},
             {"seen", puzzle.seen},
             {"par", desk.par()},
             {"losses", losses_json(desk.right_losses())},
             {"choices", Json::array()},
             {"answers", Json::array()}};
  for (const PuzzleChoice& each : puzzle.choices) level["choices"].push_back(each.text);
  for (uint32_t choices = 0; choices < uint32_t{1} << puzzle.choices.size(); ++choices) {
    level["answers"].push_back(answer_json(desk, choices));
  }
  return level;
}

}  // namespace

std::string puzzle_html(std::span<const Puzzle> levels, zoo::Backends backends,
                        const std::string& version) {
  Json data{{"version", version}, {"levels", Json::array()}};
  for (const Puzzle& each : levels) data["levels"].push_back(level_json(each, backends));
  // Inside a script element, "</" could end it and "<!--" could hide its end.
  std::string text;
  for (const char c : data.dump()) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  constexpr std::string_view kPlace = "{DATA}";
  std::string page(kPage);
  return page.replace(page.find(kPlace), kPlace.size(), text);
}

}  // namespace halfscope::lab
