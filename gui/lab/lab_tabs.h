// SPDX-License-Identifier: MIT
// The tabs of the float lab, one file each; they draw a FloatLab and edit it.
#pragma once

#include <imgui.h>

#include <string>
#include <string_view>

#include "gui/lab/float_lab.h"
#include "gui/widgets/theme.h"

namespace halfscope::gui {

struct LabFrame {
  FloatLab& lab;
  const Theme& theme;
  const Fonts& fonts;
  float scale;

  float px(float at_scale_one) const noexcept { return at_scale_one * scale; }
  ImU32 sign_color() const noexcept { return theme.lines[5]; }
  ImU32 exponent_color() const noexcept { return theme.lines[4]; }
  ImU32 fraction_color() const noexcept { return theme.lines[1]; }
};

/// Flags of rows to select. Without a run the lab is a popup, and a click must not close it.
inline constexpr ImGuiSelectableFlags kLabRow =
    ImGuiSelectableFlags_SpanAllColumns | ImGuiSelectableFlags_DontClosePopups;

void draw_bits_tab(const LabFrame& frame);
void draw_rounding_tab(const LabFrame& frame);
void draw_line_tab(const LabFrame& frame);
void draw_arithmetic_tab(const LabFrame& frame);
void draw_accumulate_tab(const LabFrame& frame);
void draw_formats_tab(const LabFrame& frame);
void draw_stochastic_tab(const LabFrame& frame);
void draw_same_number_tab(const LabFrame& frame);
void draw_walk_tab(const LabFrame& frame);
void draw_blocks_tab(const LabFrame& frame);
void draw_builder_tab(const LabFrame& frame);
void draw_microscope_tab(const LabFrame& frame);
void draw_puzzle_tab(const LabFrame& frame);

/// Draws the format list, with an error message for an invalid format.
void lab_format(const LabFrame& frame);
/// Draws a row of a two-column table: a name, and a value in the monospaced font.
void lab_fact(const LabFrame& frame, std::string_view path, const char* name,
              const std::string& value, const char* tip = nullptr);
/// Draws a named text field, `gap` after the previous item if that is not zero. Returns true if it
/// was edited.
bool lab_field(const LabFrame& frame, std::string_view path, const char* name, std::string* text,
               float width, float gap);
/// Returns the height that is left in the window for a chart above `below` pixels of other things,
/// but at least `least`, with which the window scrolls.
float lab_room(const LabFrame& frame, float least, float below = 0.0f);
/// Draws a text centered at x, with its top at y.
void lab_centered(ImFont* font, float x, float y, ImU32 color, std::string_view text);
/// Draws a sentence that wraps at `width` (0: at the end of the window).
void lab_sentence(std::string_view path, std::string_view text, ImU32 color, float width = 0.0f);

/// Draws a button after the previous item, or on a new line.
bool lab_button(const LabFrame& frame, std::string_view path, const char* name);

}  // namespace halfscope::gui
