// SPDX-License-Identifier: MIT
#include "analysis/study/trial_summary.h"

#include <algorithm>
#include <cmath>

#include "analysis/loss_gap.h"
#include "analysis/rules/rules.h"
#include "core/backend/loss_scaler.h"
#include "core/tensor.h"

namespace halfscope {
namespace {

double mean_loss(std::span<const StepRow> rows) {
  double sum = 0.0;
  for (const StepRow& row : rows) sum += row.loss;
  const double mean = sum / static_cast<double>(rows.size());
  return std::isfinite(mean) ? mean : std::nan("");
}

/// Returns whether the lane stopped because its loss scaler raised the error of its framework,
/// which is how training fails there.
bool stopped_by_scaler(const LaneInfo& lane, const std::string& why) {
  const LossScalerConfig config = parse_loss_scale(lane.loss_scale);
  return why == stop_text(config, ScalerStop::at_minimum).what ||
         why == stop_text(config, ScalerStop::division_by_zero).what;
}

/// Returns the mean width of the recorded tensors' formats, by their elements.
double mean_bits(const LaneInfo& lane) {
  double bits = 0.0, elements = 0.0;
  for (const SiteInfo& site : lane.sites) {
    const auto count = static_cast<double>(element_count(site.shape));
    bits += count * site.format.bits();
    elements += count;
  }
  return elements > 0.0 ? bits / elements : std::nan("");
}

void set_cause(const RunView& run, TrialResult& result) {
  for (const Finding& finding : run_rules(run)) {
    if (finding.severity < Severity::warning) continue;
    result.cause = finding.rule;
    result.cause_layer = finding.layer;
    result.headline = finding.mechanism.empty() ? finding.text : finding.mechanism;
    return;  // the worst one comes first
  }
}

}  // namespace

std::vector<CurvePoint> loss_curve(std::span<const StepRow> rows) {
  const auto point = [](const StepRow& last, double loss) {
    return CurvePoint{static_cast<float>(last.step), static_cast<float>(loss)};
  };
  std::vector<CurvePoint> curve;
  if (rows.empty()) return curve;
  const size_t rest = rows.size() - 1, parts = std::min(rest, kMostCurvePoints - 1);
  curve.push_back(point(rows[0], rows[0].loss));
  for (size_t part = 0; part < parts; ++part) {
    const size_t first = 1 + part * rest / parts, end = 1 + (part + 1) * rest / parts;
    double sum = 0.0;
    for (size_t i = first; i < end; ++i) sum += rows[i].loss;
    curve.push_back(point(rows[end - 1], sum / static_cast<double>(end - first)));
  }
  return curve;
}

TrialResult summarize_trial(const RunView& run) {
  TrialResult result;
  const int lane = run.lane_count() - 1;
  if (lane < 0) return result;
  if (const std::optional<FailedLane>& lost = run.lost(lane)) {
    result.error = lost->why;
    result.status =
        stopped_by_scaler(run.lane(lane), lost->why) ? TrialStatus::done : TrialStatus::failed;
  } else if (run.status() == RunStatus::complete || run.status() == RunStatus::early_stop) {
    result.status = TrialStatus::done;
  }
  if (result.status != TrialStatus::done) return result;
  const std::span<const StepRow> rows = run.steps(lane);
  result.steps = static_cast<int64_t>(rows.size());
  result.skipped =
      std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.skipped; });
  if (!rows.empty()) result.loss = mean_loss(compared_steps(rows));
  if (!run.evals(lane).empty()) {
    result.test_loss = run.evals(lane).back().loss;
    result.accuracy = run.evals(lane).back().accuracy;
  }
  const auto bad =
      std::find_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.first_bad >= 0; });
  if (bad != rows.end()) {
    const SiteInfo& site = run.lane(lane).sites.at(static_cast<size_t>(bad->first_bad));
    result.first_bad = {bad->step, site.path, role_name(site.role)};
  }
  set_cause(run, result);
  result.bits = mean_bits(run.lane(lane));
  result.curve = loss_curve(rows);
  return result;
}

}  // namespace halfscope
