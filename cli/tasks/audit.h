// SPDX-License-Identifier: MIT
// `diagnose --audit`: what becomes of constants in the formats of each lane. Nothing runs.
#pragma once

#include <string>
#include <vector>

#include "analysis/audit/audit.h"
#include "analysis/finding.h"
#include "analysis/run_view.h"
#include "cli/args/settings.h"
#include "cli/terminal/output.h"

namespace halfscope {

struct AuditedLane {
  std::string name;
  std::vector<AuditedConstant> constants;
};

/// A lane to audit.
struct NamedPlan {
  std::string lane;
  Plan plan;
};

/// Returns the settings that repeat a recorded run, but for its lanes. Throws Error.
Settings settings_of_run(const std::string& file, const RunInfo& info);

/// Returns the lanes that the settings ask for.
std::vector<NamedPlan> plans_of(const Settings& settings);
/// Returns the lanes of a run as they were recorded, whatever their plan's file says today.
std::vector<NamedPlan> plans_of(const RunInfo& info);

/// Audits every lane that rounds, or only `lane` unless that is empty. Throws Error, of kind usage
/// if there is none.
std::vector<AuditedLane> audit_lanes(const Settings& settings, const std::vector<NamedPlan>& plans,
                                     const std::string& lane);

/// Returns a table for each lane, with sentences below about what is more than rounded.
std::string audit_text(const std::vector<AuditedLane>& lanes, const TextStyle& style);
/// Returns {"schema", "network", "lanes"}.
Json audit_result(const Settings& settings, const std::vector<AuditedLane>& lanes);
/// Returns a finding for each constant that does harm or may do so.
std::vector<Finding> audit_findings(const std::vector<AuditedLane>& lanes);

}  // namespace halfscope
