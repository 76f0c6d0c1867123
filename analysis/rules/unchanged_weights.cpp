// SPDX-License-Identifier: MIT
// unchanged_weights: no weight of a captured model changes although its gradients are not 0, for
// example because the optimizer steps on fp32 copies that nobody copies back. Lost updates are
// another rule's.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// Steps between the first and the last look at the weights: some optimizers write every few steps.
constexpr int64_t kLeastSteps = 20;

/// Returns whether two measurements of a tensor cannot be told apart.
bool same(const TensorStats& a, const TensorStats& b) {
  return a.n == b.n && a.zero == b.zero && a.sum == b.sum && a.sum_sq == b.sum_sq &&
         a.max_abs == b.max_abs && a.min_abs == b.min_abs && a.exponents == b.exponents;
}

/// Returns the number of steps of a lane that should have changed weights.
int64_t steps_taken(const LaneFacts& lane, int64_t from, int64_t to) {
  return std::count_if(lane.steps().begin(), lane.steps().end(), [&](const StepRow& row) {
    return row.step >= from && row.step < to && !row.skipped && row.learning_rate != 0.0;
  });
}

void find_unchanged_weights(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (!lane.captured() || lane.inference() || lane.recorded().size() < 2) return;
  const auto known = [](const Finding& each) {
    return each.rule == rule::lost_updates.id && each.severity >= Severity::warning;
  };
  if (std::any_of(findings.begin(), findings.end(), known)) return;
  const int64_t first = lane.recorded().front().step, last = lane.recorded().back().step;
  const int64_t taken = steps_taken(lane, first, last);
  if (taken < kLeastSteps) return;
  bool any = false, moves = false;
  int64_t updates = 0, lost = 0;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role == Role::update) {
      const TensorStats& total = lane.run().total(lane.lane(), site.order);
      if (total.max_abs > 0.0f || total.non_finite() > 0) return;
      updates += total.n;
      lost += total.lost;
    }
    if (site.role == Role::weight_grad) {
      const TensorStats& total = lane.run().total(lane.lane(), site.order);
      moves = moves || (total.max_abs > 0.0f && total.non_finite() == 0);
    }
    if (site.role != Role::weight) continue;
    const auto before = lane.stats(site.order, first), after = lane.stats(site.order, last);
    if (!before || !after || before->n == 0 || after->n == 0) continue;
    if (!same(*before, *after)) return;
    any = any || before->max_abs > 0.0f;
  }
  if (!any || !moves || (updates > 0 && lost == 0)) return;
  const bool too_small = updates > 0;  // in fp32, too: the optimizer has these weights
  Finding finding{.rule = "unchanged_weights", .lane = lane.lane()};
  finding.severity = too_small ? Severity::warning : Severity::error;
  finding.step = first;
  finding.mechanism =
      too_small ? "all updates are too small to change a weight" : "no weight of the model changes";
  finding.evidence = {{"steps", static_cast<double>(taken)}};
  finding.text = fmt::format(
      "No weight of the model changes in {} steps, although its gradients are not 0.{}", taken,
      too_small ? " Every update is smaller than half an ulp of its weight." : "");
  finding.action.text =
      too_small ? "Check the learning rate, and to what size gradients are clipped."
                : "Check that the optimizer has the parameters of this model. If it "
                  "steps on fp32 copies, copy them back into the model after each step.";
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::unchanged_weights{.id = "unchanged_weights",
                                   .run = find_unchanged_weights,
                                   .mechanism = Mechanism::configuration,
                                   .matters_without_harm = true,
                                   .of_numbers = false};

}  // namespace halfscope
