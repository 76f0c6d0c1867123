// SPDX-License-Identifier: MIT
// The rules and the one function that runs them. A rule is a file in this folder and a line in
// list.inc; it sees one lane at a time and appends what it finds.
#pragma once

#include <vector>

#include "analysis/finding.h"
#include "analysis/rules/lane_facts.h"
#include "core/plan/causes.h"

namespace halfscope {

struct Rule {
  const char* id;  ///< as in docs/contracts.md: "forward_overflow"
  void (*run)(const LaneFacts& lane, std::vector<Finding>& findings);
  /// Which mechanism its findings show; unknown if they only show that something is wrong.
  Mechanism mechanism = Mechanism::unknown;
  /// An error of this rule explains what others find from its step on: they become notes with this
  /// advice. Null if it explains nothing else.
  const char* explains = nullptr;
  /// Its findings are never explained by another rule's.
  bool stands_alone = false;
  /// Its findings are no mere remarks where the lane's results are right.
  bool matters_without_harm = false;
  /// About what the lane computed; else no change of plan helps.
  bool of_numbers = true;
};

/// The row that a finding is of; null if none is.
const Rule* rule_of(const Finding& finding) noexcept;

/// Every finding of a run: by lane, then severity (worst first), then execution order.
std::vector<Finding> run_rules(const RunView& run);

/// The rows, each in the file of its rule.
namespace rule {
#define HALFSCOPE_RULE(name) extern const Rule name;
#include "analysis/rules/list.inc"
#undef HALFSCOPE_RULE
}  // namespace rule

}  // namespace halfscope
