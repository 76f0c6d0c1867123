// SPDX-License-Identifier: MIT
// Turns the viewer's edits into a plan and into the command that trains it.
#pragma once

#include <string>
#include <vector>

#include "core/observe/recording.h"
#include "gui/state/view_state.h"

namespace halfscope::gui {

/// Returns the lane's plan as JSON, with a rule for every layer to keep in fp32 and with its
/// storage. Throws Error if the run file does not contain a readable plan.
std::string edited_plan(const LaneInfo& lane, const PlanEdit& edits);

/// Returns the plan file as an argument of --lanes, with the lane's backend: "cuda:plan.json".
std::string plan_argument(const LaneInfo& lane, const std::string& plan_file);

/// Returns the arguments of `halfscope` that train the edited plan (named by plan_argument()) with
/// the settings of `run` and its reference lane (an index; -1: none), recording to `out`. Throws
/// Error if the run was not started from the command line, since its settings are then unknown.
std::vector<std::string> trial_command(const RunInfo& run, int reference, const PlanEdit& edits,
                                       const std::string& plan, const std::string& out);

/// Returns the command quoted for a shell.
std::string command_text(const std::vector<std::string>& words);

}  // namespace halfscope::gui
