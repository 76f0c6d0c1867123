// SPDX-License-Identifier: MIT
// The parts of the tab "Puzzles" that have a file of their own.
#pragma once

#include "gui/lab/lab_tabs.h"

namespace halfscope::gui {

/// Draws the losses of a level that trains: in double, broken, and of the try that is shown.
void draw_puzzle_losses(const LabFrame& frame, const PuzzleLevel& level, float width, float height);

}  // namespace halfscope::gui
