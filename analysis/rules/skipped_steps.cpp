// SPDX-License-Identifier: MIT
// skipped_steps: a training ends differently only because dynamic loss scaling skipped steps on the
// way down to a scale that works. In a long training these steps do not matter.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/loss_gap.h"
#include "analysis/rules/baseline.h"
#include "analysis/rules/error_source.h"
#include "analysis/rules/harm.h"
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

void find_skipped_steps(const LaneFacts& lane, std::vector<Finding>& findings) {
  constexpr double kFewSkipped = 0.02;
  if (lane.inference() || !lane.scales_dynamically()) return;
  const int reference = reference_lane(lane.run(), lane.lane());
  if (cause_is_known(findings) || reference < 0) return;
  const std::span<const StepRow> rows = lane.steps();
  const std::span<const StepRow> theirs = lane.run().steps(reference);
  const double share = skipped_share(rows, theirs);
  const auto taken =
      std::find_if(rows.begin(), rows.end(), [](const StepRow& row) { return !row.skipped; });
  if (share < kFewSkipped || taken == rows.begin() || taken == rows.end()) return;
  const Harm harm = harm_of(lane);
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
  finding.action = {
      .edit = PlanEdit::with_loss_scale(taken->loss_scale),
      .text = fmt::format("Start dynamic loss scaling at {}.", scale_text(taken->loss_scale))};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::skipped_steps{
    .id = "skipped_steps", .run = find_skipped_steps, .mechanism = Mechanism::loss_scale};

}  // namespace halfscope
