// SPDX-License-Identifier: MIT
// scale_without_unscale: a loss scaler scales the loss of a captured training, but the optimizer
// steps with the scaled gradients. Recorders see that (observed::kScaledStep).
#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/rules.h"

namespace halfscope {
namespace {

void find_scale_without_unscale(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (!lane.observed(observed::kScaledStep)) return;
  const std::optional<Optimizer> optimizer = recorded_optimizer(lane.run().info());
  const bool linear = optimizer && optimizer->kind == Optimizer::Kind::sgd;
  Finding finding{.rule = "scale_without_unscale", .lane = lane.lane()};
  finding.severity = linear ? Severity::error : Severity::warning;
  finding.mechanism = "the loss is scaled, but the gradients are not unscaled";
  finding.text =
      "The loss is scaled, but the optimizer steps with the scaled gradients: neither "
      "scaler.step(optimizer) nor scaler.unscale_(optimizer) is called. ";
  finding.text += linear
                      ? "Each update is too large by the factor of the loss scale."
                      : "Nothing skips a step whose gradients overflow, and clipping and eps work "
                        "on gradients that are too large by the factor of the loss scale.";
  finding.action = {.text =
                        "Call scaler.step(optimizer) and scaler.update() instead of "
                        "optimizer.step()."};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::scale_without_unscale{
    .id = "scale_without_unscale",
    .run = find_scale_without_unscale,
    .mechanism = Mechanism::configuration,
    .explains = "Caused by the missing unscaling above. Fix that first.",
    .matters_without_harm = true,
    .of_numbers = false};

}  // namespace halfscope
