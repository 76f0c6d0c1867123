// SPDX-License-Identifier: MIT
// loss_gap: does the lane's loss follow that of the full-precision lane? It sees what no tensor's
// counters show: sums in a narrow format, optimizer state that does not fit, steps that are never
// taken. It speaks only where no other rule has found a cause. On the full-precision lane itself
// it asks whether training diverges, which is then no matter of precision.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// Fewer steps say nothing: curves start alike, and a dynamic scale may still be settling.
constexpr size_t kMinSteps = 20;
/// A gap below this share of the reference's loss, or twice its own scatter, is noise.
constexpr double kGapShare = 0.10;
constexpr double kDiverged = 1.5;

double upper_median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Losses of the last fifth of the run.
std::vector<double> tail(std::span<const StepRow> rows) {
  std::vector<double> losses;
  for (const StepRow& row : rows.last(std::max<size_t>(rows.size() / 5, 4)))
    losses.push_back(row.loss);
  return losses;
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

Finding lane_finding(const LaneFacts& lane, Severity severity, std::string mechanism,
                     const std::string& advice) {
  Finding finding;
  finding.rule = "loss_gap";
  finding.lane = lane.lane();
  finding.severity = severity;
  finding.text = lane.info().name + ": " + mechanism + ". " + advice;
  finding.mechanism = std::move(mechanism);
  finding.action.text = advice;
  return finding;
}

bool diverged(std::span<const StepRow> rows) {
  const std::vector<double> end = tail(rows);
  return !all_finite(end) || upper_median(end) > kDiverged * rows.front().loss;
}

void find_loss_gap(const LaneFacts& lane, std::vector<Finding>& findings) {
  const std::span<const StepRow> rows = lane.steps();
  if (lane.inference()) return;  // there is no loss
  const int reference = reference_lane(lane.run());
  if (rows.size() < kMinSteps || reference < 0) return;
  if (lane.lane() == reference) {
    if (!diverged(rows)) return;
    Finding finding =
        lane_finding(lane, Severity::error,
                     fmt::format("its loss goes from {} to {}", short_number(rows.front().loss),
                                 short_number(upper_median(tail(rows)))),
                     "Lower the learning rate or mend the set-up before judging formats.");
    finding.evidence = {{"first_loss", rows.front().loss}, {"last_loss", rows.back().loss}};
    findings.push_back(std::move(finding));
    return;
  }
  const bool explained = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity == Severity::error;
  });
  if (explained) return;
  const auto skipped =
      std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.skipped; });
  if (skipped == static_cast<int64_t>(rows.size())) {
    Finding finding = lane_finding(
        lane, Severity::error,
        fmt::format("all {} of its steps were skipped, so it never learns", rows.size()),
        "Use a lower loss scale, or a wider format.");
    finding.evidence = {{"skipped", static_cast<double>(skipped)}};
    findings.push_back(std::move(finding));
    return;
  }
  const bool noticed = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity >= Severity::warning;
  });
  const std::span<const StepRow> theirs = lane.run().steps(reference);
  if (noticed || theirs.size() != rows.size() || diverged(theirs)) return;
  const std::vector<double> own = tail(rows), other = tail(theirs);
  if (!all_finite(own)) return;  // first_non_finite speaks of that
  const double end = upper_median(own), target = upper_median(other);
  std::vector<double> scatter;
  for (double loss : other) scatter.push_back(std::fabs(loss - target));
  const double gap = std::fabs(end - target);
  if (gap <= std::max(kGapShare * target, 2.0 * upper_median(scatter))) return;
  const bool lost = end > 0.95 * rows.front().loss && target < 0.8 * rows.front().loss;
  Finding finding =
      lane_finding(lane, lost ? Severity::error : Severity::warning,
                   fmt::format("its loss ends around {}, that of {} around {}", short_number(end),
                               lane.run().lane(reference).name, short_number(target)),
                   "No tensor's range explains it: look at the accumulation, the formats of "
                   "variables and optimizer "
                   "state and the loss scale, and train both again with another seed to see how "
                   "far apart right runs drift.");
  finding.evidence = {{"loss", end}, {"reference_loss", target}, {"gap", gap}};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::loss_gap{.id = "loss_gap", .run = find_loss_gap};

}  // namespace halfscope
