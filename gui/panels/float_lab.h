// SPDX-License-Identifier: MIT
// The float lab as a panel: tabs and presets. It needs no run.
#pragma once

#include "gui/lab/float_lab.h"
#include "gui/widgets/theme.h"

namespace halfscope::gui {

void draw_float_lab(FloatLab& lab, const Theme& theme, const Fonts& fonts, float scale);

}  // namespace halfscope::gui
