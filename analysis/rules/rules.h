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
  const char* id;  ///< as in docs/reference/verdicts.md: "forward_overflow"
  void (*run)(const LaneFacts& lane, std::vector<Finding>& findings);
  /// The mechanism that its findings show; unknown if they only show that something is wrong, or
  /// say it themselves (Finding::cause).
  Mechanism mechanism = Mechanism::unknown;
  /// An error of this rule explains later findings of other rules: they become notes with this
  /// advice. Null if it explains nothing else.
  const char* explains = nullptr;
  /// Its findings are never explained by another rule's.
  bool stands_alone = false;
  /// Its findings keep their severity even where the lane's results are right.
  bool matters_without_harm = false;
  /// It is about the lane's numbers; otherwise no change of the plan helps.
  bool of_numbers = true;
};

/// Returns the rule of a finding; null if there is none.
const Rule* rule_of(const Finding& finding) noexcept;

/// Returns every finding of a run by lane, then severity (worst first), then execution order or
/// Finding::weight.
std::vector<Finding> run_rules(const RunView& run);

/// The rows, each in the file of its rule.
namespace rule {
#define HALFSCOPE_RULE(name) extern const Rule name;
#include "analysis/rules/list.inc"
#undef HALFSCOPE_RULE
}  // namespace rule

}  // namespace halfscope
