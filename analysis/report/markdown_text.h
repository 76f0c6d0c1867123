// SPDX-License-Identifier: MIT
// Text made safe for Markdown. Private to the reports.
#pragma once

#include <string>

namespace halfscope::markdown {

/// Returns text for a line or a table cell, escaped so that nothing in it acts as markup.
std::string plain(const std::string& text);
/// Returns a code span. A backtick inside would end it.
std::string code(const std::string& text);

}  // namespace halfscope::markdown
