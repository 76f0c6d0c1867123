// SPDX-License-Identifier: MIT
// What the edits in the viewer make of a lane: its plan, and the command that trains it.
#pragma once

#include <string>
#include <vector>

#include "core/observe/recording.h"
#include "gui/state/view_state.h"

namespace halfscope::gui {

/// The lane's plan with a rule for every layer to keep in fp32, and its storage, as JSON. Throws
/// Error if the file holds no plan that can be read.
std::string edited_plan(const LaneInfo& lane, const PlanEdit& edits);

/// The plan file as --lanes names it: on the lane's own backend, "cuda:plan.json".
std::string plan_argument(const LaneInfo& lane, const std::string& plan_file);

/// Arguments of `halfscope` that train the edited plan, named as plan_argument() does, as `run` was
/// trained, beside the reference lane (an index; -1: none), and record to `out`. Throws Error if
/// the run was not started from the command line, which then says nothing of its settings.
std::vector<std::string> trial_command(const RunInfo& run, int reference, const PlanEdit& edits,
                                       const std::string& plan, const std::string& out);

/// The command as a shell takes it.
std::string command_text(const std::vector<std::string>& words);

}  // namespace halfscope::gui
