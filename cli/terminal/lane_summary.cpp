// SPDX-License-Identifier: MIT
#include "cli/terminal/lane_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/rules/lane_facts.h"
#include "analysis/rules/text.h"
#include "core/utf8.h"

namespace halfscope {

void LaneSummary::add(const StepRow& row) {
  last = row;
  ++steps;
  skipped += row.skipped ? 1 : 0;
  ms += row.ms;
}

double LaneSummary::ms_per_step() const {
  return steps > 0 ? ms / static_cast<double>(steps) : std::numeric_limits<double>::quiet_NaN();
}

std::string LaneSummary::problem() const {
  if (lost) {
    return fmt::format("lost at {} {}: {}", inference ? "batch" : "step", lost->step, lost->why);
  }
  if (steps > 0 && !inference && !std::isfinite(last.loss)) return "the last loss is not finite";
  if (steps > 0 && skipped == steps) return "every update was skipped";
  return "";
}

std::string LaneSummary::last_loss_text() const {
  if (steps == 0 || inference) return "-";
  // Spelt out here: a loss of NaN is a result, and the one that matters most.
  return std::isnan(last.loss) ? "nan" : table_number(last.loss);
}

std::string LaneSummary::accuracy_text() const {
  return eval ? percentage(eval->accuracy) + (averages ? " (averages)" : "") : "-";
}

std::string LaneSummary::auc_text() const {
  return eval ? area_text(eval->auc) + (averages ? " (averages)" : "") : "-";
}

std::string LaneSummary::mean_iou_text() const {
  return eval ? percentage(eval->mean_iou) + (averages ? " (averages)" : "") : "-";
}

std::string LaneSummary::test_loss_text() const {
  if (!eval || inference) return "-";
  const std::string loss = std::isnan(eval->loss) ? "nan" : table_number(eval->loss);
  return loss + (averages ? " (averages)" : "");
}

std::vector<LaneSummary> untrained_lanes(const RunInfo& info) {
  const int reference = reference_lane(RunView(info, RunStatus::running));
  std::vector<LaneSummary> lanes;
  for (const LaneInfo& lane : info.lanes) {
    LaneSummary summary;
    summary.name = lane.name;
    summary.backend = lane.backend;
    summary.loss_scale = lane.loss_scale;
    summary.inference = info.inference;
    summary.detects = info.detects;
    summary.averages = info.evaluates_averages;
    summary.reference = static_cast<int>(lanes.size()) == reference;
    lanes.push_back(std::move(summary));
  }
  return lanes;
}

std::vector<LaneSummary> lane_summaries(const RunView& run) {
  std::vector<LaneSummary> lanes = untrained_lanes(run.info());
  for (size_t i = 0; i < lanes.size(); ++i) {
    const int lane = static_cast<int>(i);
    for (const StepRow& row : run.steps(lane)) lanes[i].add(row);
    if (!run.evals(lane).empty()) lanes[i].eval = run.evals(lane).back();
    lanes[i].lost = run.lost(lane);
  }
  return lanes;
}

Json to_json(std::span<const LaneSummary> lanes) {
  Json array = Json::array();
  for (const LaneSummary& lane : lanes) {
    const bool trained = lane.steps > 0;
    const bool has_loss = trained && !lane.inference, has_test = lane.eval && !lane.inference;
    const auto score = [&](double EvalRow::*value) {
      const bool measured = lane.eval && !std::isnan((*lane.eval).*value);
      return measured ? json_number((*lane.eval).*value) : Json(nullptr);
    };
    const Json quality = score(&EvalRow::accuracy);
    const std::string problem = lane.problem();
    Json json;
    json["name"] = lane.name;
    json["backend"] = lane.backend;
    json["reference"] = lane.reference;
    json["loss_scale"] = lane.loss_scale.empty() ? Json(nullptr) : Json(lane.loss_scale);
    json["steps"] = lane.steps;
    json["skipped"] = lane.skipped;
    json["last_loss"] = has_loss ? json_number(lane.last.loss) : Json(nullptr);
    json["last_loss_scale"] = trained ? json_number(lane.last.loss_scale) : Json(nullptr);
    json["test_loss"] = has_test ? json_number(lane.eval->loss) : Json(nullptr);
    json["test_accuracy"] = lane.detects ? Json(nullptr) : quality;
    json["test_map50"] = lane.detects ? quality : Json(nullptr);
    json["test_auc"] = score(&EvalRow::auc);
    json["test_mean_iou"] = score(&EvalRow::mean_iou);
    json["ms_per_step"] = trained ? json_number(lane.ms_per_step()) : Json(nullptr);
    json["problem"] = problem.empty() ? Json(nullptr) : Json(problem);
    array.push_back(std::move(json));
  }
  return array;
}

std::string aligned(const std::vector<std::vector<std::string>>& rows,
                    const std::vector<bool>& to_the_right, size_t width) {
  constexpr size_t kGap = 2;
  // Columns of a terminal: bytes that continue a character take none.
  const auto columns = [](std::string_view cell) {
    return static_cast<size_t>(std::count_if(cell.begin(), cell.end(), begins_character));
  };
  std::vector<size_t> widths(to_the_right.size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  size_t others = 0;
  for (size_t i = 1; i < widths.size(); ++i) others += kGap + widths[i];
  const size_t room = width > others ? width - others : 0;
  if (width > 0 && !widths.empty() && widths[0] > room) {
    widths[0] = 0;
    for (const auto& row : rows) {
      if (columns(row[0]) <= room) widths[0] = std::max(widths[0], columns(row[0]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool alone = i == 0 && columns(row[i]) > widths[i];
      if (alone) text += row[i] + "\n";
      const std::string_view cell = alone ? std::string_view() : row[i];
      const std::string pad(widths[i] - std::min(widths[i], columns(cell)), ' ');
      line.append(to_the_right[i] ? pad : "").append(cell).append(to_the_right[i] ? "" : pad);
      line.append(kGap, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace halfscope
