// SPDX-License-Identifier: MIT
// Recommendations: actions with their evidence, and switches that put them into the edited plan.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/proof/cost.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"
#include "gui/panels/cause.h"
#include "gui/panels/panel.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kFooterBeside = 640.0f;  ///< wider panels put the estimate next to the buttons

/// One line of the table: a change that can be switched on, or a finding without one.
struct Row {
  std::string layer{};  ///< "" for the whole lane
  std::string action{}, evidence{}, rule{};
  Severity severity = Severity::info;
  const Finding* finding = nullptr;
  PlanEdit edit{};  ///< of one member, or empty
};

/// Returns the text for a finding without an action: an earlier row may fix its cause.
std::string without_action(const std::vector<Row>& rows, const Finding& finding) {
  const bool above =
      !finding.layer.empty() && std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
        return row.layer == finding.layer && !row.edit.empty();
      });
  return above ? "Same cause as above." : "-";
}

std::vector<Row> rows_of(const Frame& frame, const Report& report) {
  std::vector<Row> rows;
  std::set<std::string> kept;
  bool scale_named = false;
  for (const Finding& finding : report.findings) {
    // The verdict reports the harm itself; this list has its causes and actions.
    if (finding.lane != frame.at.lane || (finding.rule == "harm" && finding.action.text.empty()))
      continue;
    const Action& action = finding.action;
    Row row{.layer = finding.layer,
            .action = action.text.empty() ? without_action(rows, finding) : action.text,
            .evidence = finding.mechanism.empty() ? finding.text : finding.mechanism,
            .rule = finding.rule,
            .severity = finding.severity,
            .finding = &finding};
    for (const std::string& layer : action.edit.fp32_layers()) {
      if (!kept.insert(layer).second) continue;
      row.layer = layer;
      row.action = "Keep in fp32.";
      row.edit = PlanEdit::in_fp32({layer});
      rows.push_back(row);
    }
    if (!action.edit.fp32_layers().empty()) continue;
    row.edit.set(FixKind::weights_fp32, action.edit.has(FixKind::weights_fp32));
    if (const std::optional<Change> reduces = action.edit.reduction_change())
      row.edit.add(*reduces);
    const bool scales = !frame.run.view().info().inference;
    if (scales && action.edit.loss_scale() && !scale_named) {
      row.edit.set_loss_scale(action.edit.loss_scale());
      scale_named = true;
    }
    rows.push_back(row);
  }
  for (const std::string& layer : frame.view.edits.fp32_layers()) {
    if (kept.contains(layer)) continue;
    rows.push_back({.layer = layer,
                    .action = "Keep in fp32.",
                    .evidence = "Your choice. No rule recommends it.",
                    .rule = "-",
                    .edit = PlanEdit::in_fp32({layer})});
  }
  return rows;
}

void draw_switch(const Frame& frame, const Row& row, const std::string& path) {
  PlanEdit& edits = frame.view.edits;
  if (!row.edit.fp32_layers().empty()) {
    bool on = edits.keeps(row.layer);
    if (ui::checkbox(path + "/what_if", "", &on)) edits.keep(row.layer, on);
    ui::tip("Adds this change to the edited plan. Nothing runs until you try or save the plan.");
  } else if (row.edit.has(FixKind::weights_fp32)) {
    bool on = edits.has(FixKind::weights_fp32);
    if (ui::checkbox(path + "/what_if", "", &on)) edits.set(FixKind::weights_fp32, on);
    ui::tip("Keeps the variables and the optimizer state in fp32 (master weights).");
  } else if (const std::optional<Change> reduces = row.edit.reduction_change()) {
    bool on = edits.reduction() == row.edit.reduction();
    if (ui::checkbox(path + "/what_if", "", &on)) {
      if (const auto before = edits.reduction_change()) std::erase(edits.changes, *before);
      if (on) edits.add(*reduces);
    }
    ui::tip("Sums the gradients of all ranks this way.");
  } else if (row.edit.loss_scale()) {
    bool on = edits.loss_scale() == row.edit.loss_scale();
    if (ui::checkbox(path + "/what_if", "", &on)) {
      edits.set_loss_scale(on ? row.edit.loss_scale() : std::nullopt);
    }
    ui::tip("Trains with this static loss scale instead of the lane's own scaling.");
  }
}

void draw_row(const Frame& frame, const Row& row, size_t index) {
  const std::string path = fmt::format("advice/{}", index);
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  draw_switch(frame, row, path);
  ImGui::TableNextColumn();
  const std::string name = row.layer.empty() ? "(whole lane)" : row.layer;
  if (ui::selectable(path + "/layer", name.c_str(), false) && row.finding != nullptr) {
    if (!row.layer.empty()) {
      frame.view.layer = row.layer;
      frame.view.site = row.finding->layer == row.layer ? row.finding->site : "";
    }
    if (row.finding->step >= 0) frame.view.cursor = row.finding->step;
  }
  if (ImGui::IsItemHovered()) frame.view.hovered_layer = row.layer;
  ui::tip("Selects the layer, its tensor and the first step with this problem.");
  ImGui::TableNextColumn();
  ui::text_wrapped(path + "/action", row.action);
  ImGui::TableNextColumn();
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.severity(row.severity));
  ui::text(path + "/severity", severity_name(row.severity));
  ImGui::PopStyleColor();
  ImGui::TableNextColumn();
  ui::text_wrapped(path + "/evidence", row.evidence);
  if (row.finding != nullptr) ui::tip(row.finding->text.c_str());
  ImGui::TableNextColumn();
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ui::text(path + "/rule", row.rule);
  ImGui::PopStyleColor();
}

/// Estimates the effect of the edits from the recorded counters. It is only a bound: the effect on
/// later layers is unknown before training.
std::string predicted(const Frame& frame) {
  const PlanEdit& edits = frame.view.edits;
  int64_t overflow = 0, underflow = 0, kept_overflow = 0, kept_underflow = 0;
  const std::vector<SiteInfo>& sites = frame.lane_info().sites;
  for (size_t site = 0; site < sites.size(); ++site) {
    const TensorStats& total = frame.run.view().total(frame.at.lane, static_cast<int>(site));
    overflow += total.overflow;
    underflow += total.underflow;
    if (!edits.keeps(sites[site].path)) continue;
    kept_overflow += total.overflow;
    kept_underflow += total.underflow;
  }
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? percent(static_cast<double>(part) / static_cast<double>(whole))
                     : std::string("none");
  };
  std::string text;
  if (!edits.fp32_layers().empty()) {
    text = fmt::format("Estimate: removes {} of the overflows and {} of the underflows.",
                       share(kept_overflow, overflow), share(kept_underflow, underflow));
    const Cost cost = cost_of_fp32(frame.lane_info(), edits.fp32_layers());
    text +=
        fmt::format(" Adds {} for weights ({} of them in fp32) and {} for a batch's activations",
                    bytes_text(cost.weight_bytes), percent(cost.weight_share),
                    bytes_text(cost.activation_bytes));
    if (cost.multiply_share) {
      text += fmt::format("; {} of the multiply-adds run in fp32", percent(*cost.multiply_share));
    }
    text += ".";
  }
  if (edits.has(FixKind::weights_fp32)) {
    const Cost cost = cost_of_fp32_storage(frame.lane_info());
    text += fmt::format("{}Variables in fp32 add {}.", text.empty() ? "" : " ",
                        bytes_text(cost.weight_bytes));
  }
  if (edits.loss_scale()) {
    text += fmt::format("{}Static loss scale {}.", text.empty() ? "" : " ",
                        scale_text(*edits.loss_scale()));
  }
  return text;
}

void draw_footer(const Frame& frame) {
  PlanEdit& edits = frame.view.edits;
  const bool any = !edits.empty();
  ImGui::BeginDisabled(!any);
  if (ui::button("advice/try", "Try it")) frame.ask(Request::Kind::try_plan);
  ui::tip("Trains the edited plan in the background and shows it live next to this run.");
  ImGui::SameLine();
  if (ui::button("advice/save", "Save plan ...")) frame.ask(Request::Kind::save_plan);
  ImGui::SameLine();
  if (ui::button("advice/copy", "Copy command")) frame.ask(Request::Kind::copy_command);
  ui::tip("Copies the terminal command that trains the edited plan.");
  ImGui::SameLine();
  if (ui::button("advice/clear", "Clear")) edits = {};
  ImGui::EndDisabled();
  if (ImGui::GetContentRegionAvail().x >= kFooterBeside * frame.scale) {
    ImGui::SameLine(0, 16 * frame.scale);
  }
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ui::text_wrapped("advice/predicted",
                   any ? predicted(frame) : "Select a change to see its cost and its effect.");
  ImGui::PopStyleColor();
}

}  // namespace

size_t recommendation_count(const Frame& frame) {
  const Report* report = frame.run.report();
  return report == nullptr ? 0 : rows_of(frame, *report).size();
}

void draw_recommendations(const Frame& frame) {
  const Report* report = frame.run.report();
  if (report == nullptr) {
    ImGui::TextDisabled("Analyzing the run ...");
    return;
  }
  const std::vector<Row> rows = rows_of(frame, *report);
  const bool flows = ImGui::GetContentRegionAvail().x < kFooterBeside * frame.scale;
  const float footer =
      ImGui::GetFrameHeightWithSpacing() + (flows ? 3 : 1) * ImGui::GetTextLineHeight();
  ImGui::PushStyleColor(ImGuiCol_ChildBg, 0);
  ImGui::BeginChild("advice", {0, -footer}, false);
  draw_cause(frame, *report);
  if (rows.empty()) {
    const bool measured = !frame.run.columns().empty();
    ImGui::PushStyleColor(ImGuiCol_Text, measured ? frame.theme.good : frame.theme.soft);
    ui::text_wrapped(
        "advice/empty",
        measured ? fmt::format("No recommendations: the rules found no problems in {}.",
                               frame.lane_info().name)
                 : std::string("No statistics were recorded, so the rules have nothing to check."));
    ImGui::PopStyleColor();
  } else {
    const ImGuiTableFlags flags =
        ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_Resizable;
    if (ImGui::BeginTable("advice", 6, flags)) {
      const float unit = frame.scale;
      const float wide = ImGui::GetContentRegionAvail().x / unit;
      const auto from = [wide](float width) {  // in a narrow window the columns that say least go
        return wide < width ? ImGuiTableColumnFlags_Disabled : ImGuiTableColumnFlags_None;
      };
      ImGui::TableSetupColumn("What if", ImGuiTableColumnFlags_WidthFixed, 54 * unit);
      ImGui::TableSetupColumn("Layer", ImGuiTableColumnFlags_WidthStretch, 0.9f);
      ImGui::TableSetupColumn("Action", ImGuiTableColumnFlags_WidthStretch, 1.6f);
      ImGui::TableSetupColumn("Severity", ImGuiTableColumnFlags_WidthFixed | from(520), 68 * unit);
      ImGui::TableSetupColumn("Evidence", ImGuiTableColumnFlags_WidthStretch, 3.2f);
      ImGui::TableSetupColumn("Rule", ImGuiTableColumnFlags_WidthStretch | from(700), 1.0f);
      ImGui::TableHeadersRow();
      for (size_t i = 0; i < rows.size(); ++i) draw_row(frame, rows[i], i);
      ImGui::EndTable();
    }
  }
  ImGui::EndChild();
  ImGui::PopStyleColor();
  draw_footer(frame);
}

}  // namespace halfscope::gui
