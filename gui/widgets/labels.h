// SPDX-License-Identifier: MIT
// Numbers and names as the panels about values write them: one way everywhere, and cut where the
// space ends.
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

/// "2^16", "2^-3.5": to a tenth.
std::string power_text(double exponent);
/// "0", "3.1%", or where the bounds differ "3.0 to 3.2%".
std::string share_text(const CountBounds& bounds, int64_t whole);
/// "before -> after"; one of them where nothing is changed.
std::string change_text(const std::string& before, const std::string& after, bool changed,
                        const Fonts& fonts);
const char* arrow(const Fonts& fonts) noexcept;
/// "fp16: largest 65504, smallest normal 2^-14 ..." for tooltips.
std::string format_facts(const FloatFormat& format);

/// The text, or its beginning and end around dots, so that it is at most `width` wide.
std::string fitted(std::string_view text, ImFont* font, float width);
float text_width(ImFont* font, std::string_view text);
/// Returns the text without the backticks that reports put around names of commands.
std::string plain_text(std::string text);
/// Returns the least width at which the text, in the current font, needs no more lines than at
/// `width`: its last line is not one word.
float balanced_width(const std::string& text, float width);
/// One line in a font and colour, cut to `width` (0: to the end of the window), the whole in a
/// tooltip where it was cut.
void label(std::string_view path, std::string_view text, ImFont* font, ImU32 color,
           float width = 0.0f);
/// Goes on behind the item before if `width` is free there, else in a new line.
void flow(float width, float gap);
/// The one sentence of a panel that has nothing to show.
void empty_note(std::string_view path, std::string_view text, const Theme& theme);

/// A list of formats and a field for any other. `name` is what was chosen or typed, "" the one
/// that `own` describes (none if that is null). True if it was changed.
bool format_combo(std::string_view path, std::string* name, const char* own, float width,
                  const Theme& theme);

}  // namespace halfscope::gui
