// SPDX-License-Identifier: MIT
// Numbers and names in the value panels: written the same way everywhere, and cut to the space.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "analysis/what_if.h"
#include "core/numeric/formats/float_format.h"
#include "gui/widgets/plot_math.h"  // grouped
#include "gui/widgets/theme.h"

namespace halfscope::gui {

/// Returns "2^16" or "2^-3.5", rounded to a tenth.
std::string power_text(double exponent);
/// Returns a loss scale as "2^15"; other numbers, and small ones, as they are.
std::string short_scale(double scale);
/// Returns "0", "3.1%", or "3.0 to 3.2%" if the bounds differ.
std::string share_text(const CountBounds& bounds, int64_t whole);
/// Returns "before -> after", or one of them if nothing changes.
std::string change_text(const std::string& before, const std::string& after, bool changed,
                        const Fonts& fonts);
const char* arrow(const Fonts& fonts) noexcept;
/// Returns "fp16: largest 65504, smallest normal 2^-14 ..." for tooltips.
std::string format_facts(const FloatFormat& format);

/// Returns the text, or its beginning and end around dots if it is wider than `width`.
std::string fitted(std::string_view text, ImFont* font, float width);
float text_width(ImFont* font, std::string_view text);
/// Returns the text without the backticks that reports put around commands.
std::string plain_text(std::string text);
/// Returns the least width at which the text, in the current font, needs the same number of lines
/// as at `width`, so that its last line is not a single word.
float balanced_width(const std::string& text, float width);
/// Draws one line, cut to `width` (0: to the end of the window), with a tooltip of the whole if it
/// was cut.
void label(std::string_view path, std::string_view text, ImFont* font, ImU32 color,
           float width = 0.0f);
/// Continues after the previous item if `width` is free there, else on a new line.
void flow(float width, float gap);
/// Draws the one sentence of an empty panel.
void empty_note(std::string_view path, std::string_view text, const Theme& theme);

/// Draws a list of formats and a field for any other. `name` is the selected or typed one; "" is
/// the format that `own` describes (none if that is null). Returns true if it was changed.
bool format_combo(std::string_view path, std::string* name, const char* own, float width,
                  const Theme& theme);

}  // namespace halfscope::gui
