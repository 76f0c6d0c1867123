// SPDX-License-Identifier: MIT
// The rules and the one function that runs them. A rule is one file and one line in the table of
// rules.cpp; it sees one lane at a time and appends what it finds.
#pragma once

#include <span>
#include <vector>

#include "analysis/finding.h"
#include "analysis/rules/lane_facts.h"

namespace halfscope {

struct Rule {
  const char* id;        ///< as in docs/contracts.md: "forward_overflow"
  const char* question;  ///< what it asks, for people
  void (*run)(const LaneFacts& lane, std::vector<Finding>& findings);
  /// An error of this rule explains what others find from its step on: they become notes with this
  /// advice. Null if it explains nothing else.
  const char* explains = nullptr;
  /// Its findings are never explained by another rule's.
  bool stands_alone = false;
  /// About what the lane computed; else no change of plan helps.
  bool of_numbers = true;
};

/// All rules, in the order in which findings of the same weight and place are listed.
std::span<const Rule> rules() noexcept;

/// The row that a finding is of; null if none is.
const Rule* rule_of(const Finding& finding) noexcept;

/// Every finding of a run: by lane, then severity (worst first), then execution order.
std::vector<Finding> run_rules(const RunView& run);

/// The table's entries, one file each.
void find_forward_overflow(const LaneFacts& lane, std::vector<Finding>& findings);
void find_gradient_underflow(const LaneFacts& lane, std::vector<Finding>& findings);
void find_loss_scale_window(const LaneFacts& lane, std::vector<Finding>& findings);
void find_scaled_operands(const LaneFacts& lane, std::vector<Finding>& findings);
void find_lost_updates(const LaneFacts& lane, std::vector<Finding>& findings);
void find_optimizer_state(const LaneFacts& lane, std::vector<Finding>& findings);
void find_unsafe_buffers(const LaneFacts& lane, std::vector<Finding>& findings);
void find_swamped_additions(const LaneFacts& lane, std::vector<Finding>& findings);
void find_kernel_fault(const LaneFacts& lane, std::vector<Finding>& findings);
void find_lane_lost(const LaneFacts& lane, std::vector<Finding>& findings);
void find_first_non_finite(const LaneFacts& lane, std::vector<Finding>& findings);
void find_loss_gap(const LaneFacts& lane, std::vector<Finding>& findings);

}  // namespace halfscope
