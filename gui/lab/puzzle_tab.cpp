// SPDX-License-Identifier: MIT
// Puzzles: broken runs to repair. The list of levels, the level with its choices, and the tries.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/lab/puzzle_text.h"
#include "core/number_text.h"
#include "gui/lab/puzzle_parts.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

const char* state_name(const SolvedPuzzle* best) {
  return best == nullptr ? "unsolved" : best->bits <= best->par ? "at par" : "solved";
}

std::string letters_of(uint32_t choices) {
  std::string text;
  for (int i = 0; i < static_cast<int>(kMostChoices); ++i) {
    if ((choices >> i & 1) != 0) text += static_cast<char>('a' + i);
  }
  return text;
}

/// Draws one level of the list: a mark, its number, its title and its state.
void draw_level_row(const LabFrame& frame, size_t index, float width) {
  PuzzleStudy& study = frame.lab.puzzle;
  const Theme& theme = frame.theme;
  const SolvedPuzzle* const best = study.best(index);
  const std::string path = fmt::format("lab/puzzle/level/{}", index + 1);
  const std::string& title = puzzles()[index].title;
  const float height = font_size(*frame.fonts.text) + frame.px(9);
  ImGui::PushID(path.c_str());
  if (ImGui::Selectable("##level", study.shown() == index, ImGuiSelectableFlags_DontClosePopups,
                        {width, height})) {
    study.show(index);
  }
  ImGui::PopID();
  track_item(path, state_name(best));
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 min = ImGui::GetItemRectMin(), max = ImGui::GetItemRectMax();
  const float middle = (min.y + max.y) / 2, top = middle - font_size(*frame.fonts.text) / 2;
  const ImVec2 mark{min.x + frame.px(11), middle};
  if (best == nullptr) {
    list.AddCircle(mark, frame.px(4), theme.faint, 0, frame.px(1.4f));
  } else {
    list.AddCircleFilled(mark, frame.px(3.4f), theme.good);
    if (best->bits <= best->par) list.AddCircle(mark, frame.px(6), theme.good, 0, frame.px(1.4f));
  }
  ImFont* const font = frame.fonts.text;
  const std::string number = fmt::format("{}", index + 1);
  list.AddText(font, font_size(*font), {min.x + frame.px(40) - text_width(font, number), top},
               theme.soft, number.c_str());
  float right = max.x - frame.px(6);
  if (best != nullptr) {
    ImFont* const small = frame.fonts.small;
    right -= text_width(small, state_name(best));
    list.AddText(small, font_size(*small), {right, middle - font_size(*small) / 2}, theme.good,
                 state_name(best));
    right -= frame.px(8);
  }
  const float left = min.x + frame.px(48);
  const std::string shown = fitted(title, font, right - left);
  list.AddText(font, font_size(*font), {left, top}, theme.ink, shown.c_str());
  if (shown != title) ui::tip(title.c_str());
}

void draw_level_list(const LabFrame& frame, float width) {
  const size_t count = puzzles().size();
  label("lab/puzzle/solved", fmt::format("Solved: {} of {}", frame.lab.puzzle.solved(), count),
        frame.fonts.text, frame.theme.soft, width);
  for (size_t i = 0; i < count; ++i) draw_level_row(frame, i, width);
}

/// Draws the levels as a row of numbers, where there is no room for a list.
void draw_level_numbers(const LabFrame& frame) {
  PuzzleStudy& study = frame.lab.puzzle;
  for (size_t i = 0; i < puzzles().size(); ++i) {
    const SolvedPuzzle* const best = study.best(i);
    const std::string number = fmt::format("{}", i + 1);
    if (i > 0) {
      flow(text_width(frame.fonts.text, number) + 2 * ImGui::GetStyle().FramePadding.x,
           frame.px(3));
    }
    if (best != nullptr) ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.good);
    if (ui::segment("lab/puzzle/level/" + number, number.c_str(), study.shown() == i))
      study.show(i);
    if (best != nullptr) ImGui::PopStyleColor();
    ui::tip(fmt::format("{}: {}", puzzles()[i].title, state_name(best)).c_str());
  }
}

/// Draws one of the three numbers, with its name above it.
void draw_number(const LabFrame& frame, float gap, const char* name, const std::string& value,
                 ImU32 color, const std::string& below) {
  const std::string path = std::string("lab/puzzle/number/") + name;
  flow(std::max(text_width(frame.fonts.large, value), text_width(frame.fonts.small, below)), gap);
  ImGui::BeginGroup();
  label(path + "/name", name, frame.fonts.small, frame.theme.soft, frame.px(200));
  label(path, value, frame.fonts.large, color, frame.px(200));
  if (!below.empty())
    label(path + "/error", below, frame.fonts.small, frame.theme.soft, frame.px(200));
  ImGui::EndGroup();
}

void draw_numbers(const LabFrame& frame, const Puzzle& puzzle, const PuzzleLevel& level,
                  float width) {
  const Theme& theme = frame.theme;
  const auto text = [&](double value) { return lab::number_text(puzzle.number, value); };
  // The error is the number of some levels.
  const bool errors = puzzle.number.of != PuzzleNumber::Of::error;
  const auto error = [&](const PuzzleAnswer& answer) {
    return errors && answer.refused.empty() ? "error " + error_text(answer.truth) : "";
  };
  ImGui::PushFont(frame.fonts.bold);
  lab_sentence("lab/puzzle/number", puzzle.number.text, theme.ink, width);
  ImGui::PopFont();
  const float gap = frame.px(32);
  ImGui::Dummy({0, 0});
  draw_number(frame, 0.0f, "broken", text(level.broken.number), theme.bad, error(level.broken));
  const PuzzleAnswer* const own = level.answer();
  if (own == nullptr) {
    draw_number(frame, gap, "your change", "-", theme.soft, "");
  } else {
    draw_number(frame, gap, "your change", own->refused.empty() ? text(own->number) : "-",
                own->solved ? theme.good : theme.bad, error(*own));
  }
  draw_number(frame, gap, "in double", text(level.right_number), theme.ink, "");
}

void draw_choices(const LabFrame& frame, const Puzzle& puzzle, PuzzleLevel& level, float width) {
  for (size_t i = 0; i < puzzle.choices.size(); ++i) {
    const std::string letter(1, static_cast<char>('a' + i));
    const uint32_t bit = uint32_t{1} << i;
    bool on = (level.chosen & bit) != 0;
    if (ui::checkbox("lab/puzzle/choice/" + letter, letter.c_str(), &on)) level.chosen ^= bit;
    ImGui::SameLine(0, frame.px(10));
    ImGui::AlignTextToFramePadding();
    const float left = width - frame.px(50);
    lab_sentence("lab/puzzle/choice/" + letter + "/text", puzzle.choices[i].text, frame.theme.ink,
                 left);
    if (ImGui::IsItemClicked()) level.chosen ^= bit;
  }
}

/// Draws the one sentence about the last answer, or what is running.
void draw_verdict(const LabFrame& frame, const PuzzleStudy& study, float width) {
  const PuzzleLevel& level = study.level();
  const Theme& theme = frame.theme;
  const PuzzleAnswer* const own = level.answer();
  std::string text;
  ImU32 color = theme.soft;
  if (study.answering()) {
    text = "running ...";
    color = theme.accent;
  } else if (own == nullptr) {
    text = "Choose one or several changes, then run.";
  } else if (!own->solved) {
    text = "Not solved. " + why_not(*own);
    color = theme.bad;
  } else {
    text = "Solved. " + (level.par ? verdict_of_bits(own->bits, *level.par)
                                   : "Running all other answers to compare ...");
    color = theme.good;
  }
  lab_sentence("lab/puzzle/verdict", text, color, width);
}

void draw_buttons(const LabFrame& frame, bool solved) {
  PuzzleStudy& study = frame.lab.puzzle;
  PuzzleLevel& level = study.level();
  const bool waits = level.chosen == 0 || study.answering();
  ImGui::BeginDisabled(waits);
  ImGui::PushStyleColor(ImGuiCol_Button, vec(frame.theme.selection));
  if (ui::button("lab/puzzle/run", "Run again")) study.run();
  ImGui::PopStyleColor();
  ImGui::EndDisabled();
  if (!study.puzzle().hint.empty()) {
    if (lab_button(frame, "lab/puzzle/hint", level.hint ? "Hide the hint" : "Hint"))
      level.hint = !level.hint;
  }
  if (solved && study.shown() + 1 < puzzles().size() &&
      lab_button(frame, "lab/puzzle/next", "Next level")) {
    study.show(study.shown() + 1);
  }
}

void draw_lesson(const LabFrame& frame, const Puzzle& puzzle, float width) {
  const float indent = frame.px(12);
  const ImVec2 from = ImGui::GetCursorScreenPos();
  ImGui::Indent(indent);
  for (size_t i = 0; i < puzzle.lesson.size(); ++i) {
    lab_sentence(fmt::format("lab/puzzle/lesson/{}", i), puzzle.lesson[i], frame.theme.ink,
                 width - indent);
  }
  if (!puzzle.seen.empty()) {
    lab_sentence("lab/puzzle/seen", "Seen in: " + puzzle.seen, frame.theme.soft, width - indent);
  }
  ImGui::Unindent(indent);
  const float end = ImGui::GetItemRectMax().y;
  ImGui::GetWindowDrawList()->AddRectFilled(from, {from.x + frame.px(3), end}, frame.theme.good);
}

void draw_network(const LabFrame& frame, const PuzzleLevel& level, float width) {
  label("lab/puzzle/network/title", "Network", frame.fonts.bold, frame.theme.ink, width);
  const int64_t lines = std::count(level.network.begin(), level.network.end(), '\n');
  // Long ones scroll.
  constexpr int64_t kMost = 11;
  const float height = font_size(*frame.fonts.mono) * static_cast<float>(std::min(lines, kMost)) +
                       ImGui::GetStyle().ScrollbarSize + frame.px(4);
  ImGui::PushFont(frame.fonts.mono);
  ImGui::BeginChild("lab/puzzle/network", {width, height}, false,
                    ImGuiWindowFlags_HorizontalScrollbar);
  ImGui::TextUnformatted(level.network.c_str());
  ImGui::EndChild();
  track_item("lab/puzzle/network", level.network);
  ImGui::PopFont();
}

void draw_tries(const LabFrame& frame, const Puzzle& puzzle, PuzzleLevel& level, float width) {
  if (level.tries.empty()) return;
  label("lab/puzzle/tries/title", "Your tries", frame.fonts.bold, frame.theme.ink, width);
  // The error is the number of some levels.
  const bool errors = puzzle.number.of != PuzzleNumber::Of::error;
  if (!ImGui::BeginTable("lab/puzzle/tries", errors ? 5 : 4, ImGuiTableFlags_SizingStretchProp,
                         {width, 0})) {
    return;
  }
  ImGui::TableSetupColumn("answer");
  if (errors) ImGui::TableSetupColumn("number");
  for (const char* name : {"error", "more bits", "result"}) ImGui::TableSetupColumn(name);
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ImGui::TableHeadersRow();
  ImGui::PopStyleColor();
  for (size_t i = 0; i < level.tries.size(); ++i) {
    const PuzzleAnswer& each = level.tries[i];
    const std::string path = fmt::format("lab/puzzle/try/{}", i + 1);
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    if (ui::selectable(path, letters_of(each.choices).c_str(), level.shown == i, {0, 0}, kLabRow)) {
      level.shown = i;
      level.chosen = each.choices;
    }
    const bool ran = each.refused.empty();
    if (errors) {
      ImGui::TableNextColumn();
      ui::text(path + "/number", ran ? lab::number_text(puzzle.number, each.number) : "-");
    }
    ImGui::TableNextColumn();
    ui::text(path + "/error", ran ? error_text(each.truth) : "-");
    ImGui::TableNextColumn();
    ui::text(path + "/bits", ran ? grouped(each.bits) : "-");
    ImGui::TableNextColumn();
    const bool at_par = each.solved && level.par && each.bits <= *level.par;
    ImGui::PushStyleColor(ImGuiCol_Text, each.solved ? frame.theme.good : frame.theme.bad);
    ui::text(path + "/result", at_par ? "at par" : each.solved ? "solved" : "not solved");
    ImGui::PopStyleColor();
  }
  ImGui::EndTable();
}

void draw_level(const LabFrame& frame) {
  PuzzleStudy& study = frame.lab.puzzle;
  const Puzzle& puzzle = study.puzzle();
  PuzzleLevel& level = study.level();
  const Theme& theme = frame.theme;
  ImGui::PushFont(frame.fonts.large);
  lab_sentence("lab/puzzle/title", puzzle.title, theme.ink);
  ImGui::PopFont();
  const float room = ImGui::GetContentRegionAvail().x;
  const float lines = std::min(room, frame.px(820));
  for (size_t i = 0; i < puzzle.story.size(); ++i)
    lab_sentence(fmt::format("lab/puzzle/story/{}", i), puzzle.story[i], theme.ink, lines);
  ImGui::Dummy({0, frame.px(4)});
  if (!level.problem.empty()) {
    lab_sentence("lab/puzzle/problem", level.problem, theme.bad, lines);
    return;
  }
  if (!level.open) {
    lab_sentence("lab/puzzle/wait", "running ...", theme.accent, lines);
    return;
  }
  const bool beside = room > frame.px(700);
  const float gap = frame.px(28);
  const float width = beside ? std::floor((room - gap) / 2) : room;
  const bool solved = study.best(study.shown()) != nullptr || level.par.has_value();
  const ImVec2 start = ImGui::GetCursorPos();
  ImGui::BeginGroup();
  draw_numbers(frame, puzzle, level, width);
  ImGui::Dummy({0, frame.px(6)});
  draw_choices(frame, puzzle, level, width);
  ImGui::Dummy({0, frame.px(2)});
  draw_buttons(frame, solved);
  draw_verdict(frame, study, width);
  if (level.hint) lab_sentence("lab/puzzle/hint/text", puzzle.hint, theme.warn, width);
  if (solved) {
    ImGui::Dummy({0, frame.px(4)});
    draw_lesson(frame, puzzle, width);
  }
  ImGui::EndGroup();
  if (beside) {
    ImGui::SetCursorPos({start.x + width + gap, start.y});
  } else {
    ImGui::Dummy({0, frame.px(6)});
  }
  ImGui::BeginGroup();
  draw_network(frame, level, width);
  if (!level.right_losses.empty()) draw_puzzle_losses(frame, level, width, frame.px(190));
  draw_tries(frame, puzzle, level, width);
  ImGui::EndGroup();
}

}  // namespace

void draw_puzzle_tab(const LabFrame& frame) {
  PuzzleStudy& study = frame.lab.puzzle;
  study.update();
  // A result is drawn as soon as it is there.
  if (study.busy()) frame.lab.moving = true;
  const float room = ImGui::GetContentRegionAvail().x;
  const bool list = room > frame.px(960);
  if (list) {
    ImGui::BeginGroup();
    draw_level_list(frame, std::clamp(std::floor(room / 4), frame.px(290), frame.px(390)));
    ImGui::EndGroup();
    ImGui::SameLine(0, frame.px(26));
  } else {
    draw_level_numbers(frame);
    ImGui::Dummy({0, frame.px(4)});
  }
  ImGui::BeginGroup();
  draw_level(frame);
  ImGui::EndGroup();
}

}  // namespace halfscope::gui
