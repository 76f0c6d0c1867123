// SPDX-License-Identifier: MIT
// Parts that all HTML reports share: safe text, the frame of a page, its style sheet and its one
// script. Private to the HTML reports.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace halfscope::html {

// html_text.cpp
/// Returns text for element content and attribute values. Control characters become U+FFFD.
std::string escape(std::string_view text);
/// Does the same for sentences: 2^-10 gets a raised exponent, -> becomes an arrow.
std::string prose(std::string_view text);
/// Returns text for ids and links: keeps letters, digits, '-', '.', '/', ':', encodes others as
/// _XX.
std::string anchor(std::string_view text);
/// Returns a word with a shape, because colour alone must not carry the meaning.
std::string tag(const std::string& kind, const std::string& word);
/// Returns "1.04", "NaN", or a dash if it was not measured.
std::string value_text(const std::optional<double>& value);
/// Opens a box that scrolls sideways and can be reached by keyboard.
std::string scroll_begin(const std::string& label);
/// Returns long text to copy, folded away under a summary.
std::string copy_block(const std::string& summary, const std::string& text, bool open);
/// Returns a row of a definition list. `value` is HTML.
std::string definition(std::string_view name, const std::string& value);

/// Returns everything up to the content of <main>. `more_style` follows the style sheet.
std::string page_begin(const std::string& title, std::string_view more_style = {});
/// Returns the end of the page, from </main> on.
std::string page_end();
/// Returns links to the sections (id, text) that `body` contains.
std::string contents(std::span<const std::pair<const char*, const char*>> sections,
                     const std::string& body);

extern const std::string_view kStyle;   // html_style.cpp: the style sheet
extern const std::string_view kScript;  // sorts tables, copies text; the page works without it

}  // namespace halfscope::html
