// SPDX-License-Identifier: MIT
// The float lab as a panel: tabs and presets. It needs no run.
#pragma once

#include <optional>
#include <string_view>

#include "gui/lab/float_lab.h"
#include "gui/widgets/theme.h"

namespace halfscope::gui {

void draw_float_lab(FloatLab& lab, const Theme& theme, const Fonts& fonts, float scale);

/// Returns the short name of a tab in links, "accumulate"; "" for a tab that is not drawn.
std::string_view lab_tab_name(LabTab tab) noexcept;
std::optional<LabTab> parse_lab_tab(std::string_view name) noexcept;

}  // namespace halfscope::gui
