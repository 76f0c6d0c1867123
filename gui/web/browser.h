// SPDX-License-Identifier: MIT
// Requests of a page to its browser: size, address, title, clipboard.
#pragma once

#include <string>

namespace halfscope::gui::browser {

struct Window {
  int width, height;  ///< in pixels of the screen
  float scale;        ///< pixels of the screen per pixel of the page
};
Window window();
bool prefers_dark();

std::string fragment();  ///< after '#' in the address, as the browser has it
std::string address();
/// Replaces the fragment, without a new entry in the history.
void set_fragment(const char* text);
void set_title(const char* text);

void copy(const char* text);
/// Returns the text of the last paste.
std::string pasted();

/// Tells the page that there is a picture, so that it removes its "Loading".
void drawn();

}  // namespace halfscope::gui::browser
