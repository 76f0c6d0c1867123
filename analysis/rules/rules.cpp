// SPDX-License-Identifier: MIT
#include "analysis/rules/rules.h"

#include <algorithm>
#include <array>

namespace halfscope {
namespace {

constexpr std::array<Rule, 6> kRules{{
    {"forward_overflow", "Where does the forward pass leave the format's range first?",
     find_forward_overflow},
    {"loss_scale_window", "Is there one loss scale that suits every layer's gradients?",
     find_loss_scale_window},
    {"gradient_underflow", "Are gradients flushed to zero at the scale in use?",
     find_gradient_underflow},
    {"lost_updates", "Do weights stand still because updates are too small to be added?",
     find_lost_updates},
    {"first_non_finite",
     "What was the first tensor to leave the finite numbers, and what came of it?",
     find_first_non_finite},
    {"loss_gap", "Does the loss follow full precision where nothing else was found?",  // must be last
     find_loss_gap},
}};

}  // namespace

std::span<const Rule> rules() noexcept { return kRules; }

std::vector<Finding> run_rules(const RunView& run) {
  std::vector<Finding> all;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    const LaneFacts facts(run, lane);
    std::vector<Finding> found;
    for (const Rule& rule : kRules) rule.run(facts, found);
    // Findings about the whole lane (no site) come before those about one place.
    const auto order = [&](const Finding& finding) {
      return finding.site.empty() ? -1 : run.find_site(lane, finding.site).value_or(-1);
    };
    std::stable_sort(found.begin(), found.end(), [&](const Finding& a, const Finding& b) {
      return a.severity != b.severity ? a.severity > b.severity : order(a) < order(b);
    });
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace halfscope
