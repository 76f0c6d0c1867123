// SPDX-License-Identifier: MIT
// Two ways to draw the viewer: in a window, and into pictures.
#pragma once

#include "gui/app/view_options.h"

namespace halfscope::gui {

/// Runs the viewer in a window until it is closed. Throws Error without a display.
void run_in_window(const ViewOptions& options);
/// Draws the screenshot, and any that the script requests, without a window.
void take_screenshot(const ViewOptions& options);

}  // namespace halfscope::gui
