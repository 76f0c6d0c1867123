// SPDX-License-Identifier: MIT
#include "cli/tasks/advice_beside_plans.h"

#include <algorithm>

namespace halfscope {
namespace {

bool is_in_trouble(const std::vector<Finding>& findings, int lane) {
  return std::any_of(findings.begin(), findings.end(), [lane](const Finding& finding) {
    return finding.lane == lane && finding.severity >= Severity::warning;
  });
}

}  // namespace

std::string other_advice(const std::vector<Finding>& findings, int lane) {
  for (const Finding& finding : findings) {
    const bool asks = finding.lane == lane && finding.severity >= Severity::warning;
    if (asks && !finding.action.text.empty()) return finding.action.text;
  }
  return "";
}

std::string advice_beside_plans(const std::vector<Finding>& findings, int lane) {
  const std::string other = other_advice(findings, lane);
  if (!other.empty() || !is_in_trouble(findings, lane)) return other;
  return "The recording does not show what to change. `halfscope diagnose` without --fix-as prints "
         "all that it shows.";
}

std::string no_advice_text(const Report& report, int lane, bool untried) {
  const std::vector<Finding>& findings = report.findings;
  if (!is_in_trouble(findings, lane)) {
    const LaneReport& own = report.lanes[static_cast<size_t>(lane)];
    const bool blind = is_capture(own.backend) && own.state == Verdict::State::inconclusive;
    return blind ? "advice: none, because this recording cannot show rounding errors. In PyTorch, "
                   "hs.save_twin() makes a copy that HalfScope trains in float32, too."
                 : "advice: none needed";
  }
  const std::string other = other_advice(findings, lane);
  if (untried) {
    return "advice: none yet, because the recording does not show the cause for certain. --verify "
           "searches for a fix.";
  }
  return "advice: " + (other.empty() ? "none that a plan could follow" : other);
}

}  // namespace halfscope
