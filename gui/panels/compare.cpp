// SPDX-License-Identifier: MIT
// Compares this run with another one: how every lane ended, and which layers got better or worse.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"
#include "analysis/run_rates.h"
#include "gui/panels/panel.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

std::string number(const std::optional<double>& value) {
  if (!value) return "-";
  if (std::isnan(*value)) return "NaN";
  if (std::isinf(*value)) return *value > 0.0 ? "Inf" : "-Inf";
  return short_number(*value);
}

/// "22%", "22%, NaN / Inf", or the latter alone where nothing else is lost.
std::string rate_text(double share, bool broken) {
  if (!broken) return percent(share);
  return share == 0.0 ? "NaN / Inf" : percent(share) + ", NaN / Inf";
}

std::string name_of(const RunModel& run) {
  const size_t slash = run.file().rfind('/');
  return slash == std::string::npos ? run.file() : run.file().substr(slash + 1);
}

/// Returns the scores that a lane of either run has.
std::vector<Score> scores_of_both(const RunModel& run, const RunModel& other) {
  std::vector<Score> scores;
  for (const Report* report : {run.report(), other.report()}) {
    if (report == nullptr) continue;
    for (const Score& score : scores_of(*report)) {
      const bool known = std::any_of(scores.begin(), scores.end(),
                                     [&](const Score& each) { return each.value == score.value; });
      if (!known) scores.push_back(score);
    }
  }
  return scores;
}

void draw_lanes(const Frame& frame, const RunModel& run, const std::vector<Score>& scores,
                const char* which) {
  const Report* report = run.report();
  if (report == nullptr) return;
  const char* const averages = run.view().info().evaluates_averages ? " (averages)" : "";
  for (size_t i = 0; i < report->lanes.size(); ++i) {
    const LaneReport& lane = report->lanes[i];
    const std::string path = fmt::format("compare/{}/{}", which, lane.name);
    ImGui::TableNextRow();
    const auto cell = [&](const char* name, const std::string& text) {
      ImGui::TableNextColumn();
      ui::text(path + "/" + name, text);
    };
    cell("run", name_of(run));
    cell("lane", lane.name);
    ImGui::TableNextColumn();
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.verdict(lane.state));
    std::string state = lane_verdict(lane);
    const bool early = lane.state == Verdict::State::healthy && lane.steps < kFewSteps;
    if (early && !lane.reference) state += " so far";
    ui::text(path + "/state", state);
    ImGui::PopStyleColor();
    cell("steps", std::to_string(lane.steps));
    cell("loss", number(lane.last_loss));
    cell("skipped", std::to_string(lane.skipped));
    for (const Score& score : scores) {
      cell(score.name, score.text(lane) + (lane.*score.value ? averages : ""));
    }
  }
}

/// Returns the largest share over the whole run among a layer's tensors.
double worst_share(const RunModel& run, int lane, int layer, const ViewState& view) {
  const int site = run.worst_site(lane, layer, view.role, view.metric, -1);
  if (site < 0) return 0.0;
  return metric_share(run_rates(run.view(), lane, site), view.metric);
}

bool holds_non_finite(const RunModel& run, int lane, int layer, const ViewState& view) {
  const std::vector<int>& sites = run.lane(lane).layers[static_cast<size_t>(layer)].sites;
  return std::any_of(sites.begin(), sites.end(), [&](int site) {
    return shows(view.role, run.view().lane(lane).sites[static_cast<size_t>(site)].role) &&
           run_rates(run.view(), lane, site).non_finite() > 0.0;
  });
}

void draw_layers_beside(const Frame& frame, const RunModel& other, int other_lane) {
  struct Row {
    const std::string* path;
    double here, there;
    bool here_broken, there_broken;  ///< it contains NaN or Inf
    bool better() const noexcept {
      return here_broken != there_broken ? there_broken : here < there;
    }
    double difference() const noexcept { return std::abs(here - there); }
  };
  std::vector<Row> rows;
  const std::vector<LayerModel>& layers = frame.lane().layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    const int twin = other.find_layer(other_lane, layers[i].path);
    if (twin < 0) continue;
    const double here = worst_share(frame.run, frame.at.lane, static_cast<int>(i), frame.view);
    const double there = worst_share(other, other_lane, twin, frame.view);
    const bool here_broken =
        holds_non_finite(frame.run, frame.at.lane, static_cast<int>(i), frame.view);
    const bool there_broken = holds_non_finite(other, other_lane, twin, frame.view);
    if (here != there || here_broken != there_broken) {
      rows.push_back({&layers[i].path, here, there, here_broken, there_broken});
    }
  }
  // Among equal differences, layers with NaN or Inf in only one run come first.
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    if (a.difference() != b.difference()) return a.difference() > b.difference();
    return (a.here_broken != a.there_broken) && (b.here_broken == b.there_broken);
  });
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ui::text_wrapped("compare/what",
                   fmt::format("{} rate over the whole run. This run: {}. Other run: {}.",
                               metric_name(frame.view.metric), frame.lane_info().name,
                               other.view().lane(other_lane).name));
  ImGui::PopStyleColor();
  if (frame.run.view().info().model != other.view().info().model) {
    ui::text("compare/models", "The runs have different models: layers are matched by name.");
  }
  if (rows.empty()) {
    ui::text("compare/same", "No layer differs.");
    return;
  }
  if (!ImGui::BeginTable("layers", 4, ImGuiTableFlags_RowBg | ImGuiTableFlags_SizingFixedFit)) {
    return;
  }
  for (const char* name : {"Layer", "This run", "Other run", "Change"})
    ImGui::TableSetupColumn(name);
  ImGui::TableHeadersRow();
  constexpr size_t kShown = 100;
  for (size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
    const Row& row = rows[i];
    const std::string path = "compare/layer/" + *row.path;
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    if (ui::selectable(path, row.path->c_str(), *row.path == frame.view.layer, {0, 0},
                       ImGuiSelectableFlags_SpanAllColumns)) {
      frame.view.layer = *row.path;
      frame.view.site.clear();
    }
    ImGui::TableNextColumn();
    ui::text(path + "/here", rate_text(row.here, row.here_broken));
    ImGui::TableNextColumn();
    ui::text(path + "/there", rate_text(row.there, row.there_broken));
    ImGui::TableNextColumn();
    const bool better = row.better();
    ImGui::PushStyleColor(ImGuiCol_Text, better ? frame.theme.good : frame.theme.bad);
    ui::text(path + "/sign", better ? "better" : "worse");
    ImGui::PopStyleColor();
  }
  ImGui::EndTable();
}

}  // namespace

void draw_compare(const Frame& frame) {
  if (frame.baseline == nullptr) {
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
    ui::text_wrapped("compare/empty",
                     "Open a second run to compare it with this one. When you try an edited plan, "
                     "its run is compared automatically.");
    ImGui::PopStyleColor();
    if (ui::button("compare/open", "Open a run to compare with ...")) {
      frame.ask(Request::Kind::choose_baseline);
    }
    return;
  }
  if (ui::small_button("compare/swap", "Swap")) frame.ask(Request::Kind::swap_runs);
  ui::tip("Swaps this run and the other run.");
  ImGui::SameLine();
  if (ui::small_button("compare/close", "Close the other run")) {
    frame.ask(Request::Kind::close_baseline);
  }
  ImGui::PushStyleColor(ImGuiCol_ChildBg, 0);
  // Put the tables side by side if they fit: the lower one would be out of sight.
  const bool beside = ImGui::GetContentRegionAvail().x > 1000 * frame.scale;
  const float width = beside ? std::round(ImGui::GetContentRegionAvail().x * 0.5f) : 0.0f;
  ImGui::BeginChild("compare", {width, 0}, false, ImGuiWindowFlags_HorizontalScrollbar);
  const ImGuiTableFlags flags = ImGuiTableFlags_RowBg | ImGuiTableFlags_SizingFixedFit;
  const std::vector<Score> scores = scores_of_both(frame.run, *frame.baseline);
  if (ImGui::BeginTable("lanes", 6 + static_cast<int>(scores.size()), flags)) {
    for (const char* name : {"Run", "Lane", "Verdict", "Steps", "Last loss", "Skipped"}) {
      ImGui::TableSetupColumn(name);
    }
    for (const Score& score : scores) {
      ImGui::TableSetupColumn(fmt::format("Test {}", score.name).c_str());
    }
    ImGui::TableHeadersRow();
    draw_lanes(frame, frame.run, scores, "this");
    draw_lanes(frame, *frame.baseline, scores, "other");
    ImGui::EndTable();
  }
  if (beside) {
    ImGui::EndChild();
    ImGui::SameLine(0, 16 * frame.scale);
    ImGui::BeginChild("compare/layers", {0, 0}, false);
  }
  const int other_lane = frame.baseline->view()
                             .find_lane(frame.lane_info().name)
                             .value_or(frame.baseline->first_lane());
  if (other_lane >= 0) draw_layers_beside(frame, *frame.baseline, other_lane);
  ImGui::EndChild();
  ImGui::PopStyleColor();
}

}  // namespace halfscope::gui
