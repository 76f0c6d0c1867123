// SPDX-License-Identifier: MIT
#include "gui/panels/float_lab.h"

#include <array>
#include <string>

#include "gui/lab/lab_tabs.h"
#include "gui/panels/panel.h"
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
};

constexpr std::array<TabEntry, 7> kLabTabs{
    TabEntry{LabTab::bits, "Bits", "lab/tab/bits", draw_bits_tab,
             "The bits of a number, and all its digits."},
    TabEntry{LabTab::rounding, "Rounding", "lab/tab/rounding", draw_rounding_tab,
             "One value, rounded in every mode."},
    TabEntry{LabTab::line, "Number line", "lab/tab/line", draw_line_tab,
             "The numbers that each format can represent."},
    TabEntry{LabTab::arithmetic, "Arithmetic", "lab/tab/arithmetic", draw_arithmetic_tab,
             "One operation, exact and rounded."},
    TabEntry{LabTab::accumulate, "Accumulate", "lab/tab/accumulate", draw_accumulate_tab,
             "Sums that stall."},
    TabEntry{LabTab::formats, "Formats", "lab/tab/formats", draw_formats_tab,
             "Range and precision of every format, and all codes of small formats."},
    TabEntry{LabTab::step, "Training step", "lab/tab/step", draw_microscope_tab,
             "One weight of a small network, followed through one training step."}};

/// Behind the tabs, and on in the next line where the row would be too long.
void draw_presets(const LabFrame& frame) {
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  float gap = frame.px(20);
  int index = 0;
  for (const LabPreset& preset : lab_presets()) {
    const float width =
        text_width(frame.fonts.text, preset.name) + 2 * ImGui::GetStyle().FramePadding.x;
    flow(width, gap);
    gap = frame.px(4);
    if (ui::button("lab/preset/" + std::to_string(index++), preset.name)) preset.apply(frame.lab);
    ui::tip(preset.tip);
  }
  ImGui::PopStyleColor();
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

bool lab_button(const LabFrame& frame, std::string_view path, const char* name) {
  flow(text_width(frame.fonts.text, name) + 2 * ImGui::GetStyle().FramePadding.x, frame.px(8));
  return ui::button(path, name);
}

void draw_float_lab(FloatLab& lab, const Theme& theme, const Fonts& fonts, float scale) {
  const LabFrame frame{lab, theme, fonts, scale};
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
  if (!lab.note.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, theme.accent);
    ui::text_wrapped("lab/note", lab.note);
    ImGui::PopStyleColor();
    ImGui::Dummy({0, frame.px(2)});
  }
  for (const TabEntry& entry : kLabTabs) {
    if (entry.tab == lab.tab) entry.draw(frame);
  }
}

void draw_float_lab(const Frame& frame) {
  if (frame.lab != nullptr) draw_float_lab(*frame.lab, frame.theme, frame.fonts, frame.scale);
}

}  // namespace halfscope::gui
