// SPDX-License-Identifier: MIT
// skipped_steps: a training ends differently only because dynamic loss scaling skipped steps, on
// the way down to a scale that works or at a gradient that is far larger than usual. The first do
// not matter in a long training; after the second, trainings take different paths.
#include "analysis/skipped_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "analysis/loss_gap.h"
#include "analysis/rules/baseline.h"
#include "analysis/rules/error_source.h"
#include "analysis/rules/harm.h"
#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// Steps at the beginning lead this many times as far as later ones, at most.
constexpr double kAtMost = 4.0;

/// Returns whether skipped steps explain the harm: it shows at the end only, and little more is
/// missing there than what was skipped. With the same weights the lane is right. `delay` is how far
/// the loss of the reference falls in the steps that may be missing.
bool explained_by(const HarmItem& item, double share, double delay) {
  using Of = HarmItem::Of;
  if (item.of == Of::weight || item.of == Of::average) return item.error <= kAtMost * share;
  if (item.of == Of::training) return item.error <= kUnprovenGap + delay;
  return item.of == Of::test_loss || item.of == Of::accuracy;
}

/// Returns how many times its usual gradient norm the reference has at this step; 0 if unknown.
double times_usual(std::span<const StepRow> reference, int64_t step) {
  std::vector<double> norms;
  double own = 0.0;
  for (const StepRow& row : reference) {
    if (!std::isfinite(row.grad_norm)) continue;
    norms.push_back(row.grad_norm);
    if (row.step == step) own = row.grad_norm;
  }
  const double usual = norms.empty() ? 0.0 : median(std::move(norms));
  return usual > 0.0 ? own / usual : 0.0;
}

/// Reports a training that leaves the reference's path where it skips a step that the reference
/// takes.
void find_parting(const LaneFacts& lane, const Harm& harm, int reference,
                  std::vector<Finding>& findings) {
  constexpr double kLarge = 4.0;
  const std::span<const StepRow> rows = lane.steps();
  const std::span<const StepRow> theirs = lane.run().steps(reference);
  const int64_t step = parting_step(rows, theirs);
  if (step < 0 || !harm.probed || harm.in_batches() || harm.items.empty()) return;
  const auto at =
      std::find_if(rows.begin(), rows.end(), [&](const StepRow& row) { return row.step == step; });
  const auto skipped =
      std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.skipped; });
  const double times = times_usual(theirs, step);
  const std::string& full = lane.run().lane(reference).name;
  Finding finding{.rule = "skipped_steps", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.step = step;
  finding.mechanism = fmt::format(
      "it skips step {}, whose gradient overflows at loss scale {}{}", step,
      scale_text(at->loss_scale),
      times >= kLarge ? fmt::format(" and is {} times as large as usual", short_number(times))
                      : "");
  finding.evidence = {{"skipped_steps", static_cast<double>(skipped)},
                      {"loss_scale", static_cast<double>(at->loss_scale)},
                      {"times_usual_gradient", times}};
  finding.text = fmt::format(
      "Up to step {} the losses are {}'s. Then {}. {} takes that step, so the trainings go "
      "different ways. With the same weights, the loss and gradients are right.",
      step, full, finding.mechanism, full);
  const std::optional<double> fitting = scale_that_fits(lane);
  const bool lower = fitting && *fitting < at->loss_scale;
  if (lower) {
    const std::string scale = scale_text(*fitting);
    finding.action.edit = PlanEdit::with_loss_scale(*fitting);
    finding.action.text = fmt::format("Use a static loss scale of {}.", scale);
  }
  if (times >= kLarge) {
    finding.action.text +=
        std::string(lower ? " " : "") + "Clip the norm of the gradients, also in float32.";
  }
  findings.push_back(std::move(finding));
}

void find_skipped_steps(const LaneFacts& lane, std::vector<Finding>& findings) {
  constexpr double kFewSkipped = 0.02;
  if (lane.inference() || !lane.scales_dynamically()) return;
  const int reference = reference_lane(lane.run(), lane.lane());
  if (reference < 0) return;
  const Harm harm = harm_of(lane);
  if (cause_is_known(lane, harm, findings)) return;
  if (parting_step(lane.steps(), lane.run().steps(reference)) >= 0) {
    return find_parting(lane, harm, reference, findings);
  }
  const std::span<const StepRow> rows = lane.steps();
  const std::span<const StepRow> theirs = lane.run().steps(reference);
  const double share = skipped_share(rows, theirs);
  const auto taken =
      std::find_if(rows.begin(), rows.end(), [](const StepRow& row) { return !row.skipped; });
  if (share < kFewSkipped || taken == rows.begin() || taken == rows.end()) return;
  const int64_t skipped = taken - rows.begin();
  const auto before_end = static_cast<int64_t>(theirs.size() - compared_steps(theirs).size());
  const double delay =
      delay_gap(theirs, std::min(static_cast<int64_t>(kAtMost) * skipped, before_end));
  const bool explained =
      std::all_of(harm.items.begin(), harm.items.end(),
                  [=](const HarmItem& item) { return explained_by(item, share, delay); });
  if (harm.items.empty() || !harm.probed || !explained) return;
  Finding finding{.rule = "skipped_steps", .lane = lane.lane()};
  finding.severity = harm.severe() ? Severity::error : Severity::warning;
  finding.step = rows.front().step;
  finding.mechanism =
      fmt::format("{} of {} steps {} skipped while the loss scale came down from {} to {}", skipped,
                  rows.size(), skipped == 1 ? "was" : "were", scale_text(rows.front().loss_scale),
                  scale_text(taken->loss_scale));
  finding.evidence = {{"skipped_steps", static_cast<double>(skipped)},
                      {"share_of_way", share},
                      {"first_loss_scale", rows.front().loss_scale},
                      {"loss_scale", taken->loss_scale}};
  finding.text = fmt::format(
      "{}. With the same weights, the loss and gradients are right. Start with a lower scale, or "
      "train longer, so that these steps matter less.",
      finding.mechanism);
  const std::optional<double> fitting = scale_that_fits(lane);
  const double scale = std::min(static_cast<double>(taken->loss_scale),
                                fitting.value_or(std::numeric_limits<double>::infinity()));
  finding.action = {.edit = PlanEdit::with_loss_scale(scale),
                    .text = fmt::format("Start dynamic loss scaling at {}.", scale_text(scale))};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::skipped_steps{
    .id = "skipped_steps", .run = find_skipped_steps, .mechanism = Mechanism::loss_scale};

}  // namespace halfscope
