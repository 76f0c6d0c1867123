// SPDX-License-Identifier: MIT
#include "gui/panels/float_lab.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <string>

#include "gui/lab/lab_tabs.h"
#include "gui/panels/panel.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

struct TabEntry {
  LabTab tab;
  const char* name;
  const char* path;
  void (*draw)(const LabFrame& frame);
  const char* tip;
  const char* task;  ///< what to try, in one sentence
};

constexpr std::array kLabTabs{
    TabEntry{LabTab::bits, "Bits", "lab/tab/bits", draw_bits_tab,
             "The bits of a number, and all its digits.",
             "Click a bit, or drag over several, and see which number they make."},
    TabEntry{LabTab::rounding, "Rounding", "lab/tab/rounding", draw_rounding_tab,
             "One value, rounded in every mode.",
             "Drag the triangle between its two neighbors and see where each mode rounds to."},
    TabEntry{LabTab::stochastic, "Stochastic", "lab/tab/stochastic", draw_stochastic_tab,
             "Stochastic rounding as balls that fall left or right.",
             "Drop 1000 balls: each one rounds the same value at random, and their mean finds it."},
    TabEntry{LabTab::line, "Number line", "lab/tab/line", draw_line_tab,
             "The numbers that each format can represent.",
             "Turn the wheel to zoom towards zero and see the gaps halve, until they stop."},
    TabEntry{LabTab::same_number, "All formats", "lab/tab/same_number", draw_same_number_tab,
             "One number in every format.",
             "Drag the number along the axis and see which formats lose it."},
    TabEntry{LabTab::arithmetic, "Arithmetic", "lab/tab/arithmetic", draw_arithmetic_tab,
             "One operation, exact and rounded.",
             "Enter two numbers, choose an operation, and compare the exact result with the "
             "rounded one."},
    TabEntry{LabTab::walk, "Step through", "lab/tab/walk", draw_walk_tab,
             "An fma, a tensor core or a dot product, step by step.",
             "Press Next and watch which bits each step throws away."},
    TabEntry{LabTab::accumulate, "Accumulate", "lab/tab/accumulate", draw_accumulate_tab,
             "Sums that stall.",
             "Drag through the chart: the bins on the left show why the sum stops growing."},
    TabEntry{LabTab::blocks, "Blocks", "lab/tab/blocks", draw_blocks_tab,
             "32 values that share a scale: MXFP and NVFP4.",
             "Drag a bar up: the shared scale follows the largest one, and small values vanish."},
    TabEntry{LabTab::formats, "Formats", "lab/tab/formats", draw_formats_tab,
             "Range and precision of every format, and all codes of small formats.",
             "Click a small format, such as e4m3fn, to see all of its numbers."},
    TabEntry{LabTab::builder, "Build", "lab/tab/builder", draw_builder_tab, "A format of your own.",
             "Move a bit from fraction to exponent: the range grows and the precision drops."},
    TabEntry{LabTab::step, "Training step", "lab/tab/step", draw_microscope_tab,
             "One weight of a small network, followed through one training step.",
             "Click a station to see the bits that it throws away, then change the format."},
    TabEntry{LabTab::puzzles, "Puzzles", "lab/tab/puzzles", draw_puzzle_tab,
             "Twelve broken runs to repair.",
             "Each run is broken. Choose changes and run it again, with as few bits as you can."}};

constexpr std::string_view kTabPath = "lab/tab/";

/// A list of examples, after the tabs.
void draw_presets(const LabFrame& frame) {
  const float width = frame.px(190);
  flow(width, frame.px(16));
  ImGui::SetNextWindowSizeConstraints({0, 0}, {FLT_MAX, ImGui::GetIO().DisplaySize.y});
  if (!ui::begin_combo("lab/preset", "Examples", width)) {
    ui::tip("Opens a tab with numbers that show something.");
    return;
  }
  int index = 0;
  for (const LabPreset& preset : lab_presets()) {
    if (ui::selectable("lab/preset/" + std::to_string(index++), preset.name, false)) {
      preset.apply(frame.lab);
    }
    ui::tip(preset.tip);
  }
  ImGui::EndCombo();
}

}  // namespace

void lab_format(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  if (format_combo("lab/format", &lab.format, nullptr, frame.px(120), frame.theme)) {
    lab.format_edited();
  }
  ui::tip("Choose a format, or type any eXmY.");
  const std::string problem = lab.format_problem();
  if (problem.empty()) return;
  ImGui::SameLine();
  label("lab/format/problem/line", problem, frame.fonts.text, frame.theme.bad, frame.px(300));
}

void lab_fact(const LabFrame& frame, std::string_view path, const char* name,
              const std::string& value, const char* tip) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ImGui::TextUnformatted(name);
  ImGui::PopStyleColor();
  if (tip != nullptr) ui::tip(tip);
  ImGui::TableNextColumn();
  ImGui::PushFont(frame.fonts.mono);
  ui::text_wrapped(path, value);
  ImGui::PopFont();
}

bool lab_field(const LabFrame& frame, std::string_view path, const char* name, std::string* text,
               float width, float gap) {
  if (gap > 0) flow(text_width(frame.fonts.text, name) + frame.px(6) + width, gap);
  ImGui::AlignTextToFramePadding();
  label(std::string(path) + "/label", name, frame.fonts.text, frame.theme.soft);
  ImGui::SameLine(0, frame.px(6));
  return ui::input_text(path, "", text, width);
}

float lab_room(const LabFrame& frame, float least, float below) {
  return std::max(std::floor(ImGui::GetContentRegionAvail().y - below), frame.px(least));
}

void lab_centered(ImFont* font, float x, float y, ImU32 color, std::string_view text) {
  ImGui::GetWindowDrawList()->AddText(font, font_size(*font),
                                      {std::round(x - text_width(font, text) / 2), std::round(y)},
                                      color, text.data(), text.data() + text.size());
}

void lab_sentence(std::string_view path, std::string_view text, ImU32 color, float width) {
  ImGui::PushStyleColor(ImGuiCol_Text, color);
  ImGui::PushTextWrapPos(width > 0.0f ? ImGui::GetCursorPosX() + width : 0.0f);
  ImGui::TextUnformatted(text.data(), text.data() + text.size());
  ImGui::PopTextWrapPos();
  ImGui::PopStyleColor();
  track_item(path, text);
}

bool lab_button(const LabFrame& frame, std::string_view path, const char* name) {
  flow(text_width(frame.fonts.text, name) + 2 * ImGui::GetStyle().FramePadding.x, frame.px(8));
  return ui::button(path, name);
}

void draw_float_lab(FloatLab& lab, const Theme& theme, const Fonts& fonts, float scale) {
  const LabFrame frame{lab, theme, fonts, scale};
  lab.moving = false;
  for (const TabEntry& entry : kLabTabs) {
    const float width = text_width(fonts.text, entry.name) + 2 * ImGui::GetStyle().FramePadding.x;
    if (entry.tab != kLabTabs.front().tab) flow(width, frame.px(2));
    if (ui::segment(entry.path, entry.name, lab.tab == entry.tab)) {
      if (lab.tab != entry.tab) lab.note.clear();
      lab.tab = entry.tab;
    }
    ui::tip(entry.tip);
  }
  draw_presets(frame);
  ImGui::Dummy({0, frame.px(2)});
  for (const TabEntry& entry : kLabTabs) {
    if (entry.tab == lab.tab && lab.note.empty()) lab_sentence("lab/try", entry.task, theme.accent);
  }
  if (!lab.note.empty()) lab_sentence("lab/note", lab.note, theme.accent);
  ImGui::Dummy({0, frame.px(2)});
  for (const TabEntry& entry : kLabTabs) {
    if (entry.tab == lab.tab) entry.draw(frame);
  }
}

std::string_view lab_tab_name(LabTab tab) noexcept {
  for (const TabEntry& entry : kLabTabs) {
    if (entry.tab == tab) return std::string_view(entry.path).substr(kTabPath.size());
  }
  return "";
}

std::optional<LabTab> parse_lab_tab(std::string_view name) noexcept {
  for (const TabEntry& entry : kLabTabs) {
    if (name == lab_tab_name(entry.tab)) return entry.tab;
  }
  return std::nullopt;
}

void draw_float_lab(const Frame& frame) {
  if (frame.lab != nullptr) draw_float_lab(*frame.lab, frame.theme, frame.fonts, frame.scale);
}

}  // namespace halfscope::gui
