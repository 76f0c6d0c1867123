// SPDX-License-Identifier: MIT
#include "analysis/loss_gap.h"

#include <algorithm>
#include <cmath>

namespace halfscope {
namespace {

std::vector<double> losses_of(std::span<const StepRow> rows) {
  std::vector<double> losses;
  for (const StepRow& row : rows) losses.push_back(row.loss);
  return losses;
}

/// Returns `distance` divided by the final loss of the reference.
double in_losses(double distance, std::span<const StepRow> reference) {
  if (distance == 0.0) return 0.0;
  const double first = reference.front().loss;
  const double learned = std::isfinite(first) ? kLearnedShare * std::fabs(first) : 0.0;
  const double size = std::max(std::fabs(end_loss(reference)), learned);
  return size > 0.0 ? distance / size : INFINITY;
}

}  // namespace

double median(std::vector<double> values) {
  const auto upper = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), upper, values.end());
  if (values.size() % 2 == 1) return *upper;
  const double lower = *std::max_element(values.begin(), upper);
  return lower + 0.5 * (*upper - lower);
}

std::span<const StepRow> compared_steps(std::span<const StepRow> rows) {
  const auto share = static_cast<size_t>(kComparedShare * static_cast<double>(rows.size()));
  return rows.last(std::min(rows.size(), std::max<size_t>(1, share)));
}

double end_loss(std::span<const StepRow> rows) {
  const std::vector<double> losses = losses_of(compared_steps(rows));
  const bool finite =
      std::all_of(losses.begin(), losses.end(), [](double loss) { return std::isfinite(loss); });
  return losses.empty() || !finite ? std::nan("") : median(losses);
}

double loss_gap(std::span<const StepRow> rows, std::span<const StepRow> reference) {
  if (reference.empty() || rows.size() != reference.size()) return INFINITY;
  if (std::isnan(end_loss(rows)) || std::isnan(end_loss(reference))) return INFINITY;
  std::vector<double> gaps;
  for (size_t i = rows.size() - compared_steps(rows).size(); i < rows.size(); ++i) {
    gaps.push_back(rows[i].loss - reference[i].loss);
  }
  return in_losses(std::fabs(median(std::move(gaps))), reference);
}

bool is_better(std::span<const StepRow> rows, std::span<const StepRow> reference, double sign) {
  return sign * end_loss(rows) < sign * end_loss(reference);
}

double delay_gap(std::span<const StepRow> reference, int64_t steps) {
  const size_t window = compared_steps(reference).size();
  if (steps <= 0 || window + static_cast<size_t>(steps) > reference.size()) return 0.0;
  const std::span<const StepRow> earlier =
      reference.first(reference.size() - static_cast<size_t>(steps)).last(window);
  const double end = end_loss(reference), before = median(losses_of(earlier));
  return std::isfinite(before - end) ? in_losses(std::fabs(before - end), reference) : 0.0;
}

double loss_scatter(std::span<const StepRow> rows) {
  const double end = end_loss(rows);
  if (std::isnan(end)) return rows.empty() ? 0.0 : INFINITY;
  std::vector<double> distances;
  for (const double loss : losses_of(compared_steps(rows))) {
    distances.push_back(std::fabs(loss - end));
  }
  return in_losses(median(std::move(distances)), rows);
}

}  // namespace halfscope
