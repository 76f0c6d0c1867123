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

void draw_bits_tab(const LabFrame& frame);
void draw_rounding_tab(const LabFrame& frame);
void draw_line_tab(const LabFrame& frame);
void draw_arithmetic_tab(const LabFrame& frame);
void draw_accumulate_tab(const LabFrame& frame);
void draw_formats_tab(const LabFrame& frame);

/// The format of the lab; with what is wrong about it where it was mistyped.
void lab_format(const LabFrame& frame);
/// A row of a table of two columns: what it is, and the value in the font of digits.
void lab_fact(const LabFrame& frame, std::string_view path, const char* name,
              const std::string& value, const char* tip = nullptr);
/// A text field with its name before it, `gap` behind the item before if that is not zero. True if
/// it was edited.
bool lab_field(const LabFrame& frame, std::string_view path, const char* name, std::string* text,
               float width, float gap);
/// A button behind the item before, or in a new line.
bool lab_button(const LabFrame& frame, std::string_view path, const char* name);

}  // namespace halfscope::gui
