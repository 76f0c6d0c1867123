// SPDX-License-Identifier: MIT
// baseline: checks whether the full-precision lane itself diverges, which is not a precision
// problem.
#include "analysis/rules/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/loss_gap.h"
#include "analysis/rules/harm.h"
#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

constexpr double kDiverged = 0.5;
/// Batches of an untrained network differ by no more than this part of their loss.
constexpr double kBatches = 0.1;
/// A loss that was this many times the first one has lost whatever was learned.
constexpr double kExploded = 100.0;

bool has_exploded(std::span<const StepRow> rows, double sign) {
  return std::any_of(rows.begin(), rows.end(), [&](const StepRow& row) {
    return sign * row.loss > kExploded * std::fabs(rows.front().loss);
  });
}

size_t fifth(std::span<const StepRow> rows) {
  return std::min(rows.size(), std::max<size_t>(rows.size() / 5, 4));
}

std::vector<double> losses_of(std::span<const StepRow> rows) {
  std::vector<double> losses;
  for (const StepRow& row : rows) losses.push_back(row.loss);
  return losses;
}

void find_baseline(const LaneFacts& lane, std::vector<Finding>& findings) {
  const std::span<const StepRow> rows = lane.steps();
  if (!lane.has_loss() || !is_reference(lane.run(), lane.lane())) return;
  if (static_cast<int64_t>(rows.size()) < kLeastSteps ||
      !has_diverged(rows, loss_sign(lane.run().info())))
    return;
  // A cause outside the optimizer says more than the loss.
  const bool known = std::any_of(findings.begin(), findings.end(), [](const Finding& each) {
    return each.severity == Severity::error &&
           (each.cause == Mechanism::bad_data || each.cause == Mechanism::invalid_result);
  });
  if (known) return;
  Finding finding;
  finding.rule = "baseline";
  finding.lane = lane.lane();
  finding.severity = Severity::error;
  finding.mechanism = fmt::format("its loss goes from {} to {}", short_number(rows.front().loss),
                                  short_number(median(last_losses(rows))));
  finding.action.text = "Lower the learning rate or fix the setup before comparing formats.";
  finding.text = fmt::format("{}'s loss goes from {} to {}, so this is not a precision problem. {}",
                             lane.info().name, short_number(rows.front().loss),
                             short_number(median(last_losses(rows))), finding.action.text);
  finding.evidence = {{"first_loss", rows.front().loss}, {"last_loss", rows.back().loss}};
  findings.push_back(std::move(finding));
}

}  // namespace

std::vector<double> first_losses(std::span<const StepRow> rows) {
  return losses_of(rows.first(fifth(rows)));
}

std::vector<double> last_losses(std::span<const StepRow> rows) {
  return losses_of(rows.last(fifth(rows)));
}

bool all_losses_finite(const std::vector<double>& losses) {
  return std::all_of(losses.begin(), losses.end(), [](double x) { return std::isfinite(x); });
}

double skipped_share(std::span<const StepRow> rows, std::span<const StepRow> reference) {
  double all[2] = {}, lost[2] = {};
  for (size_t i = 0; i < std::min(rows.size(), reference.size()); ++i) {
    const StepRow& row = reference[i];
    const double rate = std::isfinite(row.learning_rate) ? row.learning_rate : 1.0;
    const double lengths[2] = {rate, std::isfinite(row.grad_norm) ? rate * row.grad_norm : 0.0};
    for (size_t k = 0; k < 2; ++k) {
      all[k] += lengths[k];
      if (rows[i].skipped) lost[k] += lengths[k];
    }
  }
  double share = 0.0;
  for (size_t k = 0; k < 2; ++k) {
    if (all[k] > 0.0) share = std::max(share, lost[k] / all[k]);
  }
  return share;
}

double loss_sign(const RunInfo& info) {
  const std::optional<Optimizer> optimizer = recorded_optimizer(info);
  return optimizer && optimizer->maximize ? -1.0 : 1.0;
}

bool has_learned(std::span<const StepRow> rows, double sign) {
  if (rows.empty() || !all_losses_finite(last_losses(rows))) return false;
  // A loss that jumps up in the first steps and comes down again has won nothing.
  const double first = sign * rows.front().loss, end = sign * median(last_losses(rows));
  if (has_exploded(rows, sign)) return end < first - kBatches * std::fabs(first);
  const double start =
      std::clamp(sign * median(first_losses(rows)), first, first + kBatches * std::fabs(first));
  return end < start - kLearnedPart * std::fabs(start);
}

bool has_risen(std::span<const StepRow> rows, double sign) {
  if (rows.empty()) return false;
  const double first = sign * rows.front().loss, end = sign * median(last_losses(rows));
  return has_exploded(rows, sign) || !(end <= first + kBatches * std::fabs(first));
}

bool has_diverged(std::span<const StepRow> rows, double sign) {
  const std::vector<double> end = last_losses(rows);
  if (!all_losses_finite(end)) return true;
  const double first = sign * rows.front().loss;
  return sign * median(end) > first + kDiverged * std::fabs(first);
}

const Rule rule::baseline{.id = "baseline", .run = find_baseline};

}  // namespace halfscope
