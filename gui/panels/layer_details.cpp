// SPDX-License-Identifier: MIT
// Everything about the selected layer at the cursor: formats, neighbours, every tensor's counters.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/proof/cost.h"
#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "core/numeric/formats/float_format.h"
#include "gui/panels/plan_paint.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

/// Returns "2^-3.2"; "-" for zero and non-finite values.
std::string log2_text(double value) {
  if (!(value > 0.0) || !std::isfinite(value)) return "-";
  return power_text(std::log2(value));
}

std::string cell_rate(double rate) { return rate == 0.0 ? "0" : percent(rate); }

/// Returns "25,600 weights", including constants used as weights, or "no weights".
std::string weights_text(const Frame& frame, const LayerModel& layer) {
  int64_t recorded = 0;
  for (const int site : layer.sites) {
    recorded += weights_in(frame.lane_info().sites[static_cast<size_t>(site)]);
  }
  const int64_t read = layer.info == nullptr ? 0 : layer.info->parameters;
  const int64_t weights = parameters_of(recorded, read);
  if (weights == 0) return "no weights";
  return grouped(weights) + (weights == 1 ? " weight" : " weights");
}

void column(const char* name, const char* meaning) {
  ImGui::TableNextColumn();
  ImGui::TableHeader(name);
  ui::tip(meaning);
}

void draw_tensors(const Frame& frame, const LayerModel& layer) {
  constexpr int kColumns = 11;
  const ImGuiTableFlags flags = ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollY |
                                ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_BordersInnerV;
  if (!ImGui::BeginTable("tensors", kColumns, flags)) return;
  ImGui::TableSetupScrollFreeze(1, 1);
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  column("Tensor", "Role of the tensor in its layer. Click to select it.");
  column("Format", "The format of the stored tensor. The rates refer to it.");
  column("Shape", "Shape in one step.");
  column("Zero", "Share of all values that are zero before rounding.");
  column("Overflow", metric_meaning(Metric::overflow));
  column("NaN/Inf", metric_meaning(Metric::non_finite));
  column("Underflow*", metric_meaning(Metric::underflow));
  column("Subnormal*", metric_meaning(Metric::subnormal));
  column("Lost*", metric_meaning(Metric::lost_updates));
  column("Largest", "The largest finite magnitude.");
  column("RMS", "Root mean square of the finite elements.");
  for (const int site : layer.sites) {
    const SiteInfo& info = frame.lane_info().sites[static_cast<size_t>(site)];
    const std::string path = "details/tensor/" + info.tensor;
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    if (ui::selectable(path, info.tensor.c_str(), site == frame.at.site, {0, 0},
                       ImGuiSelectableFlags_SpanAllColumns)) {
      frame.select_site(site);
    }
    if (ImGui::IsItemHovered()) frame.view.hovered_site = info.name();
    const auto cell = [&](const char* name, const std::string& text) {
      ImGui::TableNextColumn();
      ui::text(path + "/" + name, text);
    };
    cell("format", format_name(info.format));
    cell("shape", to_string(info.shape));
    const std::optional<TensorStats> stats = frame.run.stats(frame.at.lane, site, frame.at.column);
    if (!stats) {
      for (int i = 3; i < kColumns; ++i) {
        ImGui::TableNextColumn();
        ImGui::TextDisabled("-");
      }
      continue;
    }
    const Rates rates = rates_of(*stats, info.format);
    cell("zero", cell_rate(rates.zero));
    cell("overflow", cell_rate(rates.overflow));
    cell("non_finite", cell_rate(rates.non_finite()));
    cell("underflow", cell_rate(rates.underflow));
    cell("subnormal", cell_rate(rates.subnormal));
    cell("lost", info.role == Role::update ? cell_rate(rates.lost) : "");
    cell("largest", log2_text(stats->max_abs));
    const int64_t finite = stats->n - stats->non_finite();
    cell("rms",
         finite > 0 ? log2_text(std::sqrt(stats->sum_sq / static_cast<double>(finite))) : "-");
  }
  ImGui::EndTable();
}

/// Says why the layer has its formats, and what the other lane does.
void draw_reason(const Frame& frame, const LayerModel& layer) {
  const NodeDecision* decision = decision_of(frame, layer);
  if (decision == nullptr) return;
  std::string formats = decision_text(*decision);
  std::replace(formats.begin(), formats.end(), '\n', ' ');
  ui::text_wrapped("details/plan", formats);
  if (const NodeDecision* other = differing_decision(frame, layer)) {
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.warn);
    ui::text_wrapped("details/differs", difference_text(frame, *other));
    ImGui::PopStyleColor();
  }
}

}  // namespace

void draw_layer_details(const Frame& frame) {
  const LayerModel* layer = frame.layer();
  if (layer == nullptr) {
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
    ui::text("details/empty", "Select a layer on the left, or a row of the heatmap.");
    ImGui::PopStyleColor();
    return;
  }
  const int count = static_cast<int>(frame.lane().layers.size());
  if (ui::small_button("details/previous", "< previous") && frame.at.layer > 0) {
    frame.select_layer(frame.at.layer - 1);
  }
  ImGui::SameLine();
  if (ui::small_button("details/next", "next >") && frame.at.layer + 1 < count) {
    frame.select_layer(frame.at.layer + 1);
  }
  ImGui::SameLine(0, 16 * frame.scale);
  ImGui::PushFont(frame.fonts.bold);
  ui::text("details/layer", layer->path);
  ImGui::PopFont();
  ImGui::SameLine();
  std::string facts = layer->op;
  if (layer->info != nullptr) {
    const LayerInfo& info = *layer->info;
    facts += fmt::format("   {}   {}", weights_text(frame, *layer),
                         info.inputs.empty() ? "no inputs" : "after " + name_list(info.inputs));
  } else {
    facts += "   " + weights_text(frame, *layer);
  }
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ui::text("details/facts", facts);
  ImGui::SameLine(0, 16 * frame.scale);
  const Column window =
      frame.at.column >= 0 ? frame.run.columns()[static_cast<size_t>(frame.at.column)] : Column{};
  ui::text("details/window",
           frame.at.column < 0 ? std::string("nothing recorded")
           : window.step_count == 1
               ? fmt::format("{}: shares of all values (* of non-zero values)",
                             steps_text(window.step, window.last()))
               : fmt::format("{} merged: shares of all values (* of non-zero values)",
                             steps_text(window.step, window.last())));
  ImGui::PopStyleColor();
  draw_reason(frame, *layer);
  if (const Report* report = frame.run.report()) {
    for (const int finding : layer->findings) {
      const Finding& each = report->findings[static_cast<size_t>(finding)];
      ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.severity(each.severity));
      ui::text_wrapped(fmt::format("details/finding/{}", finding),
                       fmt::format("{}: {}", severity_name(each.severity), each.text));
      ImGui::PopStyleColor();
    }
  }
  draw_tensors(frame, *layer);
}

}  // namespace halfscope::gui
