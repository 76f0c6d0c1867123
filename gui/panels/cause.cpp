// SPDX-License-Identifier: MIT
#include "gui/panels/cause.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/rules/text.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

void soft_text(const Frame& frame, const std::string& path, const std::string& text) {
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ui::text(path, text);
  ImGui::PopStyleColor();
}

/// Stays on the line if `width` fits after the gap.
void next_to(float width, float gap) {
  const float right = ImGui::GetWindowPos().x + ImGui::GetWindowContentRegionMax().x;
  if (ImGui::GetItemRectMax().x + gap + width <= right) ImGui::SameLine(0, gap);
}

void draw_hop(const Frame& frame, const Hop& hop, size_t index) {
  const std::string path = fmt::format("cause/hop/{}", index);
  const char* arrow = frame.fonts.unicode ? "\u2192" : "->";
  const std::string before = index == 0 ? "" : arrow;
  const float padding = 2 * ImGui::GetStyle().FramePadding.x + 3 * ImGui::GetStyle().ItemSpacing.x;
  const float width = ImGui::CalcTextSize((before + hop.layer + hop.text).c_str()).x + padding;
  if (index > 0) {
    next_to(width, ImGui::GetStyle().ItemSpacing.x);
    soft_text(frame, path + "/arrow", before);
    ImGui::SameLine();
  }
  const bool is_selected = frame.view.layer == hop.layer;
  if (is_selected) ImGui::PushStyleColor(ImGuiCol_Button, frame.theme.selection);
  if (ui::small_button(path, hop.layer.c_str())) {
    frame.view.layer = hop.layer;
    frame.view.site = hop.site;
  }
  if (is_selected) ImGui::PopStyleColor();
  if (ImGui::IsItemHovered()) frame.view.hovered_layer = hop.layer;
  std::string tip = "Selects " + hop.site + ".";
  const bool is_empty = !hop.error && hop.largest == 0.0;  // nothing in it is finite
  if (hop.largest && !is_empty) {
    tip += fmt::format(" Its largest magnitude: {}", short_number(*hop.largest));
    if (hop.reference) tip += fmt::format(", in fp32 {}", short_number(*hop.reference));
    tip += ".";
  }
  ui::tip(tip.c_str());
  if (hop.text.empty()) return;
  ImGui::SameLine();
  ImGui::PushStyleColor(ImGuiCol_Text, index == 0 ? frame.theme.bad : frame.theme.soft);
  ui::text(path + "/text", hop.text);
  ImGui::PopStyleColor();
}

bool is_on(const PlanEdit& edits, const Change& change) {
  if (change.kind == FixKind::loss_scale) return edits.loss_scale() == change.value;
  return std::find(edits.changes.begin(), edits.changes.end(), change) != edits.changes.end();
}

void draw_fix(const Frame& frame, const Diagnosis& diagnosis) {
  if (diagnosis.fix.empty()) return;
  ImGui::AlignTextToFramePadding();
  soft_text(frame, "cause/fix/title", "Fix");
  ImGui::SameLine();
  draw_edit_switch(frame, diagnosis.fix, "cause/fix");
  ImGui::PushFont(frame.fonts.bold);
  ui::text_wrapped("cause/fix", plain_text(diagnosis.fix_text));
  ImGui::PopFont();
  const std::string proof = proof_words(diagnosis);
  next_to(ImGui::CalcTextSize(proof.c_str()).x, 10 * frame.scale);
  ImGui::PushStyleColor(ImGuiCol_Text, diagnosis.verified ? frame.theme.good : frame.theme.warn);
  ui::text("cause/proof", proof);
  ImGui::PopStyleColor();
  const std::string cost = cost_words(diagnosis.fix_cost);
  if (!cost.empty()) ui::text_wrapped("cause/cost", "Cost: " + cost + ".");
  std::string reasons;
  for (const std::string& reason : diagnosis.reasons) {
    reasons += (reasons.empty() ? "" : "\n") + plain_text(reason);
  }
  ui::tip(
      fmt::format("Confidence: {}.\n{}", confidence_name(diagnosis.confidence), reasons).c_str());
  for (size_t i = 0; i < diagnosis.alternatives.size(); ++i) {
    const std::string path = fmt::format("cause/or/{}", i);
    const std::string text =
        "or, just as small: " + plain_text(edit_sentence(diagnosis.alternatives[i]));
    next_to(2 * ImGui::GetFrameHeight() + ImGui::CalcTextSize(text.c_str()).x, 24 * frame.scale);
    ImGui::AlignTextToFramePadding();
    draw_edit_switch(frame, diagnosis.alternatives[i], path);
    ui::text_wrapped(path, text);
  }
}

}  // namespace

bool can_be_tried(const Frame& frame, const PlanEdit& edit) {
  const bool scales = !frame.run.view().info().inference;
  return std::all_of(edit.changes.begin(), edit.changes.end(), [&](const Change& each) {
    return each.can_be_tried() && (scales || each.kind != FixKind::loss_scale);
  });
}

void draw_edit_switch(const Frame& frame, const PlanEdit& edit, const std::string& path) {
  PlanEdit& edits = frame.view.edits;
  if (!can_be_tried(frame, edit)) return;
  bool on = std::all_of(edit.changes.begin(), edit.changes.end(),
                        [&](const Change& change) { return is_on(edits, change); });
  if (ui::checkbox(path + "/what_if", "", &on)) {
    for (const Change& change : edit.changes) {
      if (change.kind == FixKind::loss_scale) {
        edits.set_loss_scale(on ? std::optional<double>(change.value) : std::nullopt);
      } else if (on) {
        edits.add(change);
      } else {
        std::erase(edits.changes, change);
      }
    }
  }
  ui::tip(
      "Adds all of these changes to the edited plan. Nothing runs until you try or save the plan.");
  ImGui::SameLine();
}

void draw_cause(const Frame& frame, const Report& report) {
  if (!report.diagnosis || report.diagnosis->lane != frame.at.lane) return;
  const Diagnosis& diagnosis = *report.diagnosis;
  soft_text(frame, "cause/title", "Cause");
  ImGui::SameLine();
  ui::text_wrapped("cause/text", diagnosis.cause.empty() ? "No recorded tensor shows the cause."
                                                         : plain_text(cause_sentence(diagnosis)));
  ui::tip(fmt::format("Mechanism: {}.\nWhere: {}.", mechanism_text(diagnosis.mechanism),
                      places_text(diagnosis.root))
              .c_str());
  if (diagnosis.chain.size() > 1) {
    for (size_t i = 0; i < diagnosis.chain.size(); ++i) draw_hop(frame, diagnosis.chain[i], i);
  } else if (diagnosis.chain.empty() && !diagnosis.root.empty()) {
    soft_text(frame, "cause/where", "Where: " + places_text(diagnosis.root));
  }
  draw_fix(frame, diagnosis);
  ImGui::Dummy({0, 4 * frame.scale});
}

}  // namespace halfscope::gui
