// SPDX-License-Identifier: MIT
// unscale_without_scale: gradients that are divided by the loss scale although the loss was never
// multiplied by it. In the first step, lane and reference have the same weights. There, scaled
// gradients are as many times larger than the reference's as the scale says; without the scale
// they are as large. Adam hides the mistake, because its steps do not depend on the size of
// gradients.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// With a smaller scale, rounding and the scale itself look alike.
constexpr double kLeastScale = 64.0;
/// Gradients count as equally large if they differ by at most this factor.
constexpr double kAlike = 2.0;
/// Share of the weights whose gradients have to be alike.
constexpr double kMost = 0.8;

/// Returns the row of the step; null if there is none.
const StepRow* row_of(const LaneFacts& lane, int64_t step) {
  for (const StepRow& row : lane.steps()) {
    if (row.step == step) return &row;
  }
  return nullptr;
}

void find_unscale_without_scale(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.inference() || lane.reference() < 0 || lane.recorded().empty()) return;
  const RecordedStep& first = lane.recorded().front();
  const StepRow* row = row_of(lane, first.step);
  if (first.step != 0 || first.step_count != 1 || row == nullptr) return;
  if (!(row->loss_scale >= kLeastScale)) return;
  const LaneFacts reference(lane.run(), lane.reference());
  int alike = 0, compared = 0;
  for (const SiteInfo& site : lane.info().sites) {
    const std::optional<int> other = lane.reference_site(site.order);
    if (site.role != Role::weight_grad || site.phase != Phase::backward || !other) continue;
    const auto ours = lane.stats(site.order, first.step);
    const auto theirs = reference.stats(*other, first.step);
    if (!ours || !theirs || ours->max_abs == 0.0f || theirs->max_abs == 0.0f) continue;
    const double ratio = static_cast<double>(ours->max_abs) / static_cast<double>(theirs->max_abs);
    ++compared;
    if (ratio <= kAlike && ratio >= 1.0 / kAlike) ++alike;
  }
  if (compared == 0 || alike < kMost * compared) return;
  Finding finding{.rule = "unscale_without_scale", .lane = lane.lane()};
  finding.severity = Severity::error;
  finding.step = first.step;
  finding.mechanism = "gradients are unscaled, but the loss was not scaled";
  finding.evidence = {{"loss_scale", row->loss_scale},
                      {"sites_alike", static_cast<double>(alike)},
                      {"sites", static_cast<double>(compared)}};
  finding.text = fmt::format(
      "Gradients are {:.6g} times too small: they are divided by the loss scale, but the loss was "
      "never multiplied by it. In step 0, {} of {} gradients are as large as the reference's "
      "before "
      "they are unscaled.",
      row->loss_scale, alike, compared);
  finding.action = {.text =
                        "Scale the loss before the backward pass: scaler.scale(loss).backward() "
                        "in PyTorch, optimizer.scale_loss(loss) in Keras. Or remove the "
                        "scaler."};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::unscale_without_scale{
    .id = "unscale_without_scale",
    .run = find_unscale_without_scale,
    .mechanism = Mechanism::configuration,
    .explains = "Caused by the missing loss scale above. Fix that first.",
    .matters_without_harm = true,
    .of_numbers = false};

}  // namespace halfscope
