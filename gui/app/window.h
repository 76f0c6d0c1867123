// SPDX-License-Identifier: MIT
// The two ways to draw the viewer: in a window, and into pictures.
#pragma once

#include "gui/app/view_options.h"

namespace halfscope::gui {

/// The viewer in a window, until it is closed. Throws Error where there is no display.
void run_in_window(const ViewOptions& options);
/// A picture, and those that a script asks for, without a window.
void take_screenshot(const ViewOptions& options);

}  // namespace halfscope::gui
