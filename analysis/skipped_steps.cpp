// SPDX-License-Identifier: MIT
#include "analysis/skipped_steps.h"

#include <algorithm>
#include <cmath>

#include "analysis/loss_gap.h"

namespace halfscope {
namespace {

/// From 65536 to 2^-14, below which fp16 gradients cannot be distinguished from 0.
constexpr int64_t kLongestCalibration = 30;

/// A scale that does not change after a skipped step is constant.
bool has_constant_scale(std::span<const StepRow> rows) {
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    if (rows[i].skipped && !(rows[i + 1].loss_scale < rows[i].loss_scale)) return true;
  }
  return false;
}

}  // namespace

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

std::set<int64_t> normal_skips(std::span<const StepRow> rows) {
  std::set<int64_t> steps;
  if (!skips_are_normal(skipped_steps(rows), rows)) return steps;
  for (const StepRow& row : rows) {
    if (row.skipped) steps.insert(row.step);
  }
  return steps;
}

double calibration_gap(std::span<const StepRow> rows, std::span<const StepRow> reference) {
  const SkippedSteps skipped = skipped_steps(rows);
  if (skipped.calibration == 0 || !skips_are_normal(skipped, rows)) return 0.0;
  return delay_gap(reference, skipped.calibration);
}

bool skips_are_normal(const SkippedSteps& skipped, std::span<const StepRow> rows) {
  const int64_t steps = static_cast<int64_t>(rows.size());
  // A short run may end before a scale has lasted long enough, but not in the middle of its search.
  const bool is_short = steps < kLongestCalibration + kSettledSteps;
  const bool settled = skipped.settled || (is_short && steps > 0 && !rows.back().skipped);
  constexpr int64_t kRare = 100;
  return settled && skipped.calibration <= kLongestCalibration &&
         skipped.others <= (steps + kRare - 1) / kRare;
}

int64_t parting_step(std::span<const StepRow> rows, std::span<const StepRow> reference) {
  constexpr size_t kBefore = 10;
  constexpr double kSame = 0.01, kFew = 0.05;
  const auto skips = [](const StepRow& row) { return row.skipped; };
  const auto first = std::find_if(rows.begin(), rows.end(), skips);
  const auto before = static_cast<size_t>(first - rows.begin());
  const auto skipped = static_cast<double>(std::count_if(rows.begin(), rows.end(), skips));
  if (first == rows.end() || before < kBefore || reference.size() != rows.size()) return -1;
  if (skipped > kFew * static_cast<double>(rows.size())) return -1;
  std::vector<double> gaps;
  for (size_t i = 0; i < before; ++i) {
    const double gap = std::fabs(rows[i].loss - reference[i].loss);
    gaps.push_back(gap / std::fabs(reference[i].loss));
  }
  return median(std::move(gaps)) <= kSame ? first->step : -1;
}

}  // namespace halfscope
