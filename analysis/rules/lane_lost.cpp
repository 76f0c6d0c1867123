// SPDX-License-Identifier: MIT
// lane_lost: the lane's backend failed in the middle of the run (a lost device, out of memory), so
// that it has no result. No format caused that, and none fixes it.
#include <fmt/format.h>

#include <vector>

#include "analysis/rules/rules.h"

namespace halfscope {
namespace {

void find_lane_lost(const LaneFacts& lane, std::vector<Finding>& findings) {
  const std::optional<FailedLane>& lost = lane.run().lost(lane.lane());
  if (!lost) return;
  const bool inference = lane.run().info().inference;
  const char* const unit = inference ? "batch" : "step";
  Finding finding{
      .rule = "lane_lost", .lane = lane.lane(), .severity = Severity::error, .step = lost->step};
  finding.mechanism = fmt::format("its backend failed at {} {}: {}", unit, lost->step, lost->why);
  finding.text =
      fmt::format("The {} backend of this lane failed at {} {}: {}. The lane has no result{}.",
                  lane.info().backend, unit, lost->step, lost->why,
                  lost->step > 0 ? "; its findings cover the steps before that" : "");
  finding.evidence = {{"backend", lane.info().backend}, {"why", lost->why}};
  finding.action.text = fmt::format(
      "Check the device with nvidia-smi, lower --batch if memory ran out, and {} the lane again.",
      inference ? "run" : "train");
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::lane_lost{.id = "lane_lost",
                           .run = find_lane_lost,
                           .stands_alone = true,
                           .matters_without_harm = true,
                           .of_numbers = false};

}  // namespace halfscope
