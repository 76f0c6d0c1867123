// SPDX-License-Identifier: MIT
// autocast_kept: a captured training never leaves autocast. Autocast casts each weight once and
// keeps the copy until it is left, so later steps compute with the weights of the first. Recorders
// see that (observed::kAutocastKept).
#include "analysis/rules/rules.h"

namespace halfscope {
namespace {

void find_autocast_kept(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (!lane.observed(observed::kAutocastKept) || lane.full_precision()) return;
  Finding finding{.rule = "autocast_kept", .lane = lane.lane()};
  finding.severity = Severity::error;
  finding.mechanism = "autocast is not left between steps, so it computes with old weights";
  finding.text =
      "Autocast is on when the optimizer steps and is not left before the next step. "
      "It keeps its 16-bit copies of the weights until it is left, so the forward pass "
      "does not see the updates.";
  finding.action = {.text =
                        "Move the torch.autocast block into the loop, around the forward pass "
                        "and the loss only."};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::autocast_kept{.id = "autocast_kept",
                               .run = find_autocast_kept,
                               .mechanism = Mechanism::configuration,
                               .explains = "Caused by the autocast region above. Fix that first.",
                               .matters_without_harm = true,
                               .of_numbers = false};

}  // namespace halfscope
