// SPDX-License-Identifier: MIT
// A gate: limits that a run has to keep, for continuous integration (docs/reference/gate.md). It is
// read from JSON, checked against a run, and written as text, JSON, JUnit and SARIF.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/finding.h"

namespace halfscope {

/// A number that a rule of a gate can limit.
enum class GateMeasure : uint8_t {
  overflow,
  underflow,
  lost_updates,
  skipped_steps,
  accuracy_drop,
  auc_drop,
  mean_iou_drop,
  ulps,
  error,
};
const char* measure_name(GateMeasure measure) noexcept;  // "lost_updates"
/// Returns whether the measure is about a whole lane, not about tensors.
constexpr bool is_of_lane(GateMeasure measure) noexcept {
  return measure == GateMeasure::skipped_steps || measure == GateMeasure::accuracy_drop ||
         measure == GateMeasure::auc_drop || measure == GateMeasure::mean_iou_drop;
}

/// One rule of a gate: which tensors, and what they must not exceed.
struct GateRule {
  std::string name{};
  std::string path{};  ///< glob over layers, as in plans; "" matches all
  std::string lane{};  ///< glob over lanes; "" matches all but the references
  std::optional<Role> role{};
  std::map<GateMeasure, double> limits{};
  std::optional<Severity> fail_on{};    ///< the least severity of findings that fail
  std::vector<std::string> findings{};  ///< only findings of these rules; empty: of all
  int line = 0;                         ///< its line in the gate file, from 1; 0 without a file

  bool judges_findings() const noexcept { return fail_on.has_value(); }
};

struct Gate {
  std::string file{};  ///< "" if there is none
  std::vector<GateRule> rules{};
  bool missing_passes = false;  ///< a limit passes if the run did not measure the number
  double tolerance = 0.0;       ///< share by which a known violation may grow and still be known
};

/// Reads a gate. Throws Error (usage) if the file is missing or not a valid gate.
Gate load_gate(const std::string& file);
/// The same from text; `file` is its name in results.
Gate parse_gate(std::string_view text, const std::string& file);
/// Returns the rule that fails for findings of at least this severity in any lane, as --fail-on
/// does.
GateRule fail_on_rule(Severity severity);

/// One limit of one rule, checked on one tensor, or on a whole lane.
struct GateCheck {
  enum class State : uint8_t {
    passed,
    not_measured,  ///< passes, because the gate says so
    known,         ///< exceeds the limit, as the baseline does
    failed,
  };
  size_t rule = 0;  ///< index into Gate::rules
  int lane = 0;
  std::string layer{}, site{};  ///< "" for a whole lane
  std::string of{};             ///< name of the measure, or the rule of a finding; "steps"
  bool finding = false;
  double value = std::numeric_limits<double>::quiet_NaN();  ///< NaN: not measured
  double limit = std::numeric_limits<double>::quiet_NaN();  ///< NaN for findings
  std::optional<double> before{};                           ///< in the baseline
  Severity severity = Severity::error;  ///< of a finding; error for everything else
  State state = State::passed;
  std::string text{};  ///< what is wrong, in words; "" if it passes

  bool measured() const noexcept { return finding || !std::isnan(value); }
};
const char* state_name(GateCheck::State state) noexcept;  // "not_measured"

struct GateResult {
  Gate gate{};
  std::string version{};             ///< of the HalfScope that recorded the run
  std::string run{}, baseline{};     ///< names of the files; "" without a baseline
  std::vector<std::string> lanes{};  ///< names
  std::vector<GateCheck> checks{};   ///< by rule, lane, execution order
  int64_t count(GateCheck::State state) const noexcept;
  bool passed() const noexcept { return count(GateCheck::State::failed) == 0; }
  const GateRule& rule_of(const GateCheck& check) const { return gate.rules[check.rule]; }
  const std::string& lane_of(const GateCheck& check) const {
    return lanes[static_cast<size_t>(check.lane)];
  }
};

/// Checks a run with the findings that run_rules(run) returned. Throws Error (usage) if a rule of
/// the gate matches nothing in the run.
GateResult check_gate(const Gate& gate, const RunView& run, std::span<const Finding> findings);

/// Marks the violations that an older run has as well, and that are not worse now, as known.
void compare_with_baseline(GateResult& result, const RunView& baseline,
                           std::span<const Finding> findings);

std::string gate_text(const GateResult& result);   ///< one line per violation, then a summary
std::string gate_junit(const GateResult& result);  ///< JUnit XML: a suite per lane
std::string gate_sarif(const GateResult& result);  ///< SARIF 2.1.0
/// Returns report.json with the result under "gate".
std::string with_gate(const std::string& report_json, const GateResult& result);

}  // namespace halfscope
