// SPDX-License-Identifier: MIT
// Links to a state of the float lab: the part of a page's address after '#'. "fp16 0.1" is a
// number, "tab=accumulate" a tab; both together are joined by '&'.
#pragma once

#include <string>
#include <string_view>

#include "gui/lab/float_lab.h"

namespace halfscope::gui {

/// Opens what a link names, with or without percent escapes. Returns false if a part of it is
/// unknown; the other parts are opened.
bool open_link(FloatLab& lab, std::string_view link);

/// Returns the link that opens the lab's number and tab, escaped: "fp16%200.1&tab=line".
std::string link_of(const FloatLab& lab);

/// Returns the title of the page: "fp16 0.1 = 0.0999755859375 - HalfScope float lab".
std::string page_title(const FloatLab& lab);

}  // namespace halfscope::gui
