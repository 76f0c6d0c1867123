// SPDX-License-Identifier: MIT
// schedule_rounding: learning rates of a lane that differ from its reference's because the schedule
// was computed in few bits: its numbers become 0 or infinite there, and a quotient of two of them
// NaN (tinygrad PR 2981). The network is not to blame.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "core/plan/causes.h"

namespace halfscope {
namespace {

/// Rates that differ by more than this part of the reference's sum change the training.
constexpr double kRatesApart = 0.02;

struct RateErrors {
  int64_t lost_step = -1;  ///< the first step whose rate is not finite
  double lost = 0.0;       ///< that rate
  int64_t first_zero = -1;
  int64_t zeros = 0;   ///< rates that are 0 where the reference's are not
  double apart = 0.0;  ///< sum of distances over the sum of the reference's rates
};

RateErrors compare_rates(const LaneFacts& lane) {
  std::map<int64_t, double> wanted;
  for (const StepRow& row : lane.run().steps(lane.reference()))
    wanted[row.step] = row.learning_rate;
  RateErrors errors;
  double sum = 0.0;
  for (const StepRow& row : lane.steps()) {
    const auto found = wanted.find(row.step);
    if (found == wanted.end() || !std::isfinite(found->second)) continue;
    const double rate = row.learning_rate, right = found->second;
    if (!std::isfinite(rate)) {
      if (errors.lost_step >= 0) continue;
      errors.lost_step = row.step;
      errors.lost = rate;
      continue;
    }
    if (rate == 0.0 && right != 0.0) {
      if (errors.zeros++ == 0) errors.first_zero = row.step;
    }
    errors.apart += std::fabs(rate - right);
    sum += right;
  }
  errors.apart = sum > 0.0 ? errors.apart / sum : 0.0;
  return errors;
}

void find_schedule_rounding(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.inference() || lane.reference() < 0) return;
  const RateErrors errors = compare_rates(lane);
  const bool lost = errors.lost_step >= 0;
  if (!lost && errors.apart <= kRatesApart) return;
  const std::string format = plan_text(lane.info().plan_json, "/variables/schedule");
  const std::string computed =
      format.empty() ? "in a different format from the reference" : "in " + format;
  Finding finding{.rule = "schedule_rounding", .lane = lane.lane()};
  finding.severity = lost ? Severity::error : Severity::warning;
  finding.step = lost ? errors.lost_step : errors.zeros > 0 ? errors.first_zero : 0;
  finding.mechanism = "the learning rate is computed " + computed;
  finding.evidence = {{"cause", mechanism_name(Mechanism::constant)},
                      {"apart", errors.apart},
                      {"zeros", static_cast<double>(errors.zeros)}};
  if (lost) {
    finding.text = fmt::format(
        "The learning rate is {} from step {} on, because the schedule is computed {}. It corrupts "
        "every weight. No layer is to blame.",
        std::isnan(errors.lost) ? "NaN" : "infinite", errors.lost_step, computed);
  } else {
    finding.text = fmt::format(
        "Learning rates are wrong by {}, because the schedule is computed {}{}.",
        percent(errors.apart), computed,
        errors.zeros > 0
            ? fmt::format(", where the rate of {} becomes 0", counted(errors.zeros, "step"))
            : "");
  }
  finding.action = {.edit = PlanEdit::of(FixKind::schedule_fp32),
                    .text =
                        "Compute the learning rate in fp32: remove format= from --schedule, "
                        "or \"schedule\" from \"variables\" in the plan."};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::schedule_rounding{
    .id = "schedule_rounding",
    .run = find_schedule_rounding,
    .mechanism = Mechanism::constant,
    .explains = "Caused by the learning rate above. Fix that first."};

}  // namespace halfscope
