// SPDX-License-Identifier: MIT
// The cause of what is wrong in the lane, above the list of recommendations.
#pragma once

#include "gui/panels/panel.h"

namespace halfscope::gui {

/// What the report's diagnosis says of the lane: cause, the way of the error (a click selects the
/// layer), fix and other answers with switches. Draws nothing where it is of another lane.
void draw_cause(const Frame& frame, const Report& report);

}  // namespace halfscope::gui
