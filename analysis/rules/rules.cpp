// SPDX-License-Identifier: MIT
#include "analysis/rules/rules.h"

#include <algorithm>
#include <array>

namespace halfscope {
namespace {

constexpr std::array<Rule, 12> kRules{{
    {"kernel_fault", "Does a kernel fail where the operator itself does not?", find_kernel_fault},
    {"forward_overflow", "Where does the forward pass leave the format's range first?",
     find_forward_overflow},
    {"loss_scale_window", "Is there one loss scale that suits every layer's gradients?",
     find_loss_scale_window},
    {"gradient_underflow", "Are gradients flushed to zero at the scale in use?",
     find_gradient_underflow},
    {"scaled_operands", "Do the scales of scaled operands fit their values?", find_scaled_operands},
    {"lost_updates", "Do weights stand still because updates are too small to be added?",
     find_lost_updates},
    {"optimizer_state", "Can the optimizer's state be held in its format?", find_optimizer_state},
    {"unsafe_buffers", "Did skipped steps leave traces in running statistics?",
     find_unsafe_buffers},
    {"swamped_additions", "Do sums stand still because their terms are too small to be added?",
     find_swamped_additions},
    {"first_non_finite",
     "What was the first tensor to leave the finite numbers, and what came of it?",
     find_first_non_finite},
    // After all that may say why.
    {"loss_gap", "Does the loss follow full precision where nothing else was found?",
     find_loss_gap},
    // Says nothing about the loss.
    {"lane_lost", "Did the backend fail in the middle of the run?", find_lane_lost},
}};

/// A kernel that fails spoils all that is computed from it, and state that does not fit the weights
/// and through them all that comes afterwards: what other rules found from then on are
/// consequences, and cures for them would be no cures.
void demote_consequences(std::vector<Finding>& findings) {
  struct Root {
    const char *rule, *advice;
  };
  for (const Root& root :
       {Root{"kernel_fault", "A consequence of the kernel; mend that first."},
        Root{"optimizer_state", "A consequence of the optimizer's state; mend that first."}}) {
    const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.rule == root.rule && finding.severity == Severity::error;
    });
    if (found == findings.end()) continue;
    for (Finding& finding : findings) {
      const bool is_later = finding.step < 0 || finding.step >= found->step;
      const bool is_own = finding.rule == "lost_updates" || finding.rule == "unsafe_buffers" ||
                          finding.rule == "kernel_fault" || finding.rule == "lane_lost";
      if (&finding == &*found || !is_later || is_own) continue;
      finding.severity = Severity::info;
      finding.action = {.kind = Action::Kind::none, .text = root.advice};
    }
  }
}

}  // namespace

std::span<const Rule> rules() noexcept { return kRules; }

std::vector<Finding> run_rules(const RunView& run) {
  std::vector<Finding> all;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    const LaneFacts facts(run, lane);
    std::vector<Finding> found;
    for (const Rule& rule : kRules) rule.run(facts, found);
    demote_consequences(found);
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
