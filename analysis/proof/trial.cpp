// SPDX-License-Identifier: MIT
#include "analysis/proof/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace halfscope {
namespace {

/// From 65536 to 2^-14, below which gradients of fp16 could not be told from zero.
constexpr int64_t kLongestCalibration = 30;

/// Of an even number of values: half way between the two in the middle.
double median(std::vector<double> values) {
  const auto upper = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), upper, values.end());
  if (values.size() % 2 == 1) return *upper;
  const double lower = *std::max_element(values.begin(), upper);
  return lower + 0.5 * (*upper - lower);
}

/// A scale that stays where it is after a skipped step does not look for a better one.
bool has_constant_scale(std::span<const StepRow> rows) {
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    if (rows[i].skipped && !(rows[i + 1].loss_scale < rows[i].loss_scale)) return true;
  }
  return false;
}

}  // namespace

double loss_gap(std::span<const StepRow> rows, std::span<const StepRow> reference) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (reference.empty() || rows.size() != reference.size()) return kInfinity;
  const size_t count =
      std::max<size_t>(1, static_cast<size_t>(kComparedShare * static_cast<double>(rows.size())));
  std::vector<double> gaps, losses;
  for (size_t i = rows.size() - count; i < rows.size(); ++i) {
    if (!std::isfinite(rows[i].loss) || !std::isfinite(reference[i].loss)) return kInfinity;
    gaps.push_back(rows[i].loss - reference[i].loss);
    losses.push_back(reference[i].loss);
  }
  const double first = reference.front().loss;
  const double learned = std::isfinite(first) ? kLearnedShare * first : 0.0;
  const double size = std::max(median(losses), learned);
  const double gap = std::fabs(median(gaps));
  if (gap == 0.0) return 0.0;
  return size > 0.0 ? gap / size : kInfinity;
}

SkippedSteps skipped_steps(std::span<const StepRow> rows) {
  SkippedSteps result;
  int64_t held = 0;
  result.settled = has_constant_scale(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].skipped) {
      result.settled = result.settled || ++held >= kSettledSteps;
      continue;
    }
    held = 0;
    const bool doubled = i > 0 && rows[i].loss_scale > rows[i - 1].loss_scale;
    ++(!result.settled ? result.calibration : doubled ? result.probes : result.others);
  }
  return result;
}

bool skips_are_normal(const SkippedSteps& skipped, std::span<const StepRow> rows) {
  const int64_t steps = static_cast<int64_t>(rows.size());
  // A short run may end before a scale has held for long, but not in the middle of its search.
  const bool is_short = steps < kLongestCalibration + kSettledSteps;
  const bool settled = skipped.settled || (is_short && steps > 0 && !rows.back().skipped);
  constexpr int64_t kRare = 100;
  return settled && skipped.calibration <= kLongestCalibration &&
         skipped.others <= (steps + kRare - 1) / kRare;
}

}  // namespace halfscope
