// SPDX-License-Identifier: MIT
// The diagnosis of the lane, above the list of recommendations.
#pragma once

#include <string>

#include "gui/panels/panel.h"

namespace halfscope::gui {

/// Draws the report's diagnosis of the lane: cause, path of the error (a click selects the layer),
/// and the fix and its alternatives with switches. Draws nothing if it is about another lane.
void draw_cause(const Frame& frame, const Report& report);

/// Returns whether a training started here can try the whole edit.
bool can_be_tried(const Frame& frame, const PlanEdit& edit);
/// Draws one switch for a whole edit, since a part of it alone does not help, and stays on the
/// line. Draws nothing if a training cannot try it.
void draw_edit_switch(const Frame& frame, const PlanEdit& edit, const std::string& path);

}  // namespace halfscope::gui
