// SPDX-License-Identifier: MIT
// The texts of a study's page: the selected trial, and which layers overflow first.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"
#include "analysis/study/study_words.h"
#include "gui/study/study_page.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

/// Draws a value under its name, on a half of the window or on all of it.
enum class Half : uint8_t { left, right, both };
void draw_value(const StudyFrame& frame, const char* path, const char* name,
                const std::string& value, ImU32 color, Half place) {
  const float half = ImGui::GetWindowContentRegionMax().x / 2;
  if (place == Half::right) ImGui::SameLine(half);
  ImGui::BeginGroup();
  const float width = place == Half::both ? 0.0f : half - 12 * frame.scale;
  label(std::string(path) + "/name", name, frame.fonts.small, frame.theme.soft, width);
  label(path, value, frame.fonts.bold, color, width);
  ImGui::EndGroup();
}

/// Returns the color of a trial's result in text.
ImU32 result_color(const StudyFrame& frame, const TrialRow& trial) {
  if (trial.status == TrialStatus::waiting) return frame.theme.soft;
  if (trial.status == TrialStatus::failed) return frame.theme.warn;
  return trial.fails ? frame.theme.bad : frame.theme.good;
}

std::string result_text(const StudyFrame& frame, const TrialRow& trial) {
  const bool unicode = frame.fonts.unicode;
  const char* mark = !trial.done() ? ""
                     : trial.fails ? (unicode ? "\u2718 " : "x ")
                                   : (unicode ? "\u2713 " : "");
  return std::string(mark) + trial_word(trial);
}

void draw_wrapped(const char* path, const std::string& text, ImU32 color) {
  if (text.empty()) return;
  ImGui::PushStyleColor(ImGuiCol_Text, color);
  ui::text_wrapped(path, text);
  ImGui::PopStyleColor();
}

void draw_group_facts(const StudyFrame& frame, const StudyGroup& group) {
  label("study/group", group.name, frame.fonts.bold, frame.theme.ink);
  const std::string share =
      group.finished == 0
          ? fmt::format("None of {} finished.", counted(group.planned, frame.facts().unit()))
          : fmt::format("{} fail: {}.", seeds_text(frame.facts(), group.failing, group.finished),
                        study_words::share_text(group));
  draw_wrapped("study/group/share", share, frame.theme.soft);
  draw_wrapped("study/group/why", study_words::reasons_text(group), frame.theme.soft);
}

}  // namespace

void draw_study_trial(const StudyFrame& frame) {
  const int selected = frame.selected();
  if (selected < 0) return;
  const TrialRow& trial = frame.trial(selected);
  const Theme& theme = frame.theme;
  label("study/trial/title", trial_name(frame.study.view(), frame.facts(), trial), frame.fonts.bold,
        theme.ink);
  label("study/trial/result", result_text(frame, trial), frame.fonts.bold,
        result_color(frame, trial));
  if (trial.fails) draw_wrapped("study/trial/why", fail_reason(trial), theme.ink);
  draw_wrapped("study/trial/error", trial.error, theme.warn);
  if (trial.status == TrialStatus::waiting) {
    draw_wrapped("study/trial/waiting",
                 "This trial has not finished. The page follows the study and shows it then.",
                 theme.soft);
  }
  if (trial.done()) {
    draw_wrapped("study/trial/headline", plain_text(trial.headline), theme.soft);
    ImGui::Dummy({0, 2 * frame.scale});
    const auto value = [&](const char* path, const char* name, const std::string& text,
                           Half place) { draw_value(frame, path, name, text, theme.ink, place); };
    value("study/trial/loss", "loss", short_number(trial.loss), Half::left);
    value("study/trial/gap", "gap to the baseline",
          trial.baseline ? "-" : study_gap_text(trial_gap(trial)), Half::right);
    value("study/trial/accuracy", "accuracy",
          std::isnan(trial.accuracy) ? "-" : percent(trial.accuracy), Half::left);
    value("study/trial/steps", "steps, skipped",
          fmt::format("{}, {}", grouped(trial.steps), grouped(trial.skipped)), Half::right);
    const std::string first = trial.first_bad
                                  ? fmt::format("{} ({}), step {}", trial.first_bad->layer,
                                                trial.first_bad->role, trial.first_bad->step)
                                  : std::string("none");
    value("study/trial/first", "first overflow", first, Half::both);
  }
  ImGui::Dummy({0, 3 * frame.scale});
  if (trial.done()) {
    if (ui::button("study/open", "Open run")) frame.open(selected);
    ui::tip("Opens this trial's run (Enter, or a double click on its cell).");
    ImGui::SameLine();
  }
  if (ui::button("study/copy", "Copy command")) {
    frame.requests.push_back({.kind = Request::Kind::copy, .text = trial.command});
  }
  ui::tip(("Repeats the trial in the study's folder:\n" + trial.command).c_str());
  ImGui::Separator();
  if (const int group = frame.selected_group(); group >= 0) {
    draw_group_facts(frame, frame.group(group));
  }
}

void draw_study_layers(const StudyFrame& frame) {
  label("study/layers/title", "Layers that overflow first", frame.fonts.bold, frame.theme.ink);
  ui::tip(
      "In how many trials this tensor was the first to overflow or to contain NaN or infinity, "
      "how many of these fail, and the median step. A few overflows at the start are normal "
      "with a dynamic loss scale. A click selects such a trial.");
  const StudyFacts& facts = frame.facts();
  const bool any = std::any_of(facts.groups.begin(), facts.groups.end(),
                               [](const StudyGroup& group) { return !group.first_layers.empty(); });
  if (!any) {
    return empty_note("study/layers/empty",
                      facts.finished == 0
                          ? "No trial has finished yet."
                          : "Nothing overflowed, and nothing became infinite or NaN, in any "
                            "finished trial.",
                      frame.theme);
  }
  const ImGuiTableFlags flags = ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollY |
                                ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_SizingStretchProp;
  if (!ImGui::BeginTable("first layers", 5, flags)) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableSetupColumn(facts.noun == "plan" ? "Plan" : "Combination",
                          ImGuiTableColumnFlags_WidthStretch, 1.3f);
  ImGui::TableSetupColumn("Tensor", ImGuiTableColumnFlags_WidthStretch, 1.6f);
  ImGui::TableSetupColumn("First in", ImGuiTableColumnFlags_WidthFixed, 62 * frame.scale);
  ImGui::TableSetupColumn("Failing", ImGuiTableColumnFlags_WidthFixed, 50 * frame.scale);
  ImGui::TableSetupColumn("Step", ImGuiTableColumnFlags_WidthFixed, 46 * frame.scale);
  ImGui::TableHeadersRow();
  const int selected = frame.selected_group();
  for (size_t g = 0; g < facts.groups.size(); ++g) {
    const StudyGroup& group = facts.groups[g];
    for (size_t i = 0; i < group.first_layers.size(); ++i) {
      const FirstLayer& layer = group.first_layers[i];
      const std::string path = fmt::format("study/layer/{}/{}", g, i);
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      const std::string name =
          fitted(group.name, frame.fonts.text, ImGui::GetContentRegionAvail().x);
      if (ui::selectable(path, name.c_str(), static_cast<int>(g) == selected, {0, 0},
                         ImGuiSelectableFlags_SpanAllColumns)) {
        const auto found = std::find_if(group.trials.begin(), group.trials.end(), [&](int index) {
          if (index < 0) return false;
          const TrialRow& trial = frame.trial(index);
          return trial.first_bad && trial.first_bad->layer == layer.layer &&
                 trial.first_bad->role == layer.role && (trial.fails || layer.failing == 0);
        });
        if (found != group.trials.end()) frame.select(*found);
      }
      ImGui::TableNextColumn();
      label(path + "/tensor", fmt::format("{} ({})", layer.layer, layer.role), frame.fonts.text,
            frame.theme.ink);
      ImGui::TableNextColumn();
      ui::text(path + "/trials", fmt::format("{} of {}", layer.trials, group.finished));
      ImGui::TableNextColumn();
      ImGui::PushStyleColor(ImGuiCol_Text, layer.failing > 0 ? frame.theme.bad : frame.theme.soft);
      ui::text(path + "/failing", std::to_string(layer.failing));
      ImGui::PopStyleColor();
      ImGui::TableNextColumn();
      ui::text(path + "/step", fmt::format("{:.4g}", layer.median_step));
    }
  }
  ImGui::EndTable();
}

}  // namespace halfscope::gui
