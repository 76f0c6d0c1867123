// SPDX-License-Identifier: MIT
// The diagnosis of the lane, above the list of recommendations.
#pragma once

#include "gui/panels/panel.h"

namespace halfscope::gui {

/// Draws the report's diagnosis of the lane: cause, path of the error (a click selects the layer),
/// and the fix and its alternatives with switches. Draws nothing if it is about another lane.
void draw_cause(const Frame& frame, const Report& report);

}  // namespace halfscope::gui
