// SPDX-License-Identifier: MIT
#include "analysis/rules/rules.h"

#include <algorithm>
#include <array>

namespace halfscope {
namespace {

// A faulty kernel corrupts everything computed from it. Optimizer state that its format cannot
// represent corrupts the weights and everything after them. Advice on what other rules then find
// would not help.
constexpr std::array<Rule, 12> kRules{{
    {.id = "kernel_fault",
     .question = "Does a kernel fail where the operator itself does not?",
     .run = find_kernel_fault,
     .explains = "Caused by the kernel fault above. Fix that first.",
     .stands_alone = true},
    {.id = "forward_overflow",
     .question = "Where does the forward pass leave the format's range first?",
     .run = find_forward_overflow},
    {.id = "loss_scale_window",
     .question = "Is there one loss scale that suits every layer's gradients?",
     .run = find_loss_scale_window},
    {.id = "gradient_underflow",
     .question = "Are gradients flushed to zero at the scale in use?",
     .run = find_gradient_underflow},
    {.id = "scaled_operands",
     .question = "Do the scales of scaled operands fit their values?",
     .run = find_scaled_operands},
    {.id = "lost_updates",
     .question = "Are weight updates lost because they are too small to change the weight?",
     .run = find_lost_updates,
     .stands_alone = true},
    {.id = "optimizer_state",
     .question = "Can the optimizer's state be held in its format?",
     .run = find_optimizer_state,
     .explains = "Caused by the optimizer state above. Fix that first."},
    {.id = "unsafe_buffers",
     .question = "Did skipped steps leave traces in running statistics?",
     .run = find_unsafe_buffers,
     .stands_alone = true},
    {.id = "swamped_additions",
     .question = "Are products too small to change the running sum?",
     .run = find_swamped_additions},
    {.id = "first_non_finite",
     .question = "What was the first tensor to leave the finite numbers, and what came of it?",
     .run = find_first_non_finite},
    // After all that may say why.
    {.id = "loss_gap",
     .question = "Does the loss follow full precision where nothing else was found?",
     .run = find_loss_gap},
    {.id = "lane_lost",
     .question = "Did the backend fail in the middle of the run?",
     .run = find_lane_lost,
     .stands_alone = true,
     .of_numbers = false},
}};

void demote_consequences(std::vector<Finding>& findings) {
  for (const Rule& root : kRules) {
    if (root.explains == nullptr) continue;
    const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.rule == root.id && finding.severity == Severity::error;
    });
    if (found == findings.end()) continue;
    for (Finding& finding : findings) {
      const Rule* own = rule_of(finding);
      const bool is_later = finding.step < 0 || finding.step >= found->step;
      if (&finding == &*found || !is_later || (own != nullptr && own->stands_alone)) continue;
      finding.severity = Severity::info;
      finding.action = {.text = root.explains};
    }
  }
}

}  // namespace

std::span<const Rule> rules() noexcept { return kRules; }

const Rule* rule_of(const Finding& finding) noexcept {
  const auto found = std::find_if(kRules.begin(), kRules.end(),
                                  [&](const Rule& rule) { return finding.rule == rule.id; });
  return found == kRules.end() ? nullptr : &*found;
}

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
