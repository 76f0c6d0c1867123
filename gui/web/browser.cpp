// SPDX-License-Identifier: MIT
#include "gui/web/browser.h"

#include <emscripten.h>
#include <emscripten/html5.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

// clang-format off
EM_JS(bool, page_prefers_dark, (), {
  return !(window.matchMedia && window.matchMedia("(prefers-color-scheme: light)").matches);
});
EM_JS(char*, page_text, (int which), {
  const text = which == 0 ? location.hash.slice(1) : which == 1 ? location.href : page.pasted;
  const size = lengthBytesUTF8(text) + 1;
  const memory = _malloc(size);
  stringToUTF8(text, memory, size);
  return memory;
});
EM_JS(void, page_set_fragment, (const char* text), {
  history.replaceState(null, "", "#" + UTF8ToString(text));
});
EM_JS(void, page_set_title, (const char* text), { document.title = UTF8ToString(text); });
EM_JS(void, page_copy, (const char* text), { page.copy(UTF8ToString(text)); });
EM_JS(void, page_drawn, (), { page.drawn(); });
// clang-format on

namespace halfscope::gui::browser {
namespace {

std::string take(char* text) {
  std::string result(text);
  std::free(text);
  return result;
}

}  // namespace

Window window() {
  double width = 0.0, height = 0.0;
  emscripten_get_element_css_size("#canvas", &width, &height);
  const double ratio = emscripten_get_device_pixel_ratio();
  const auto pixels = [&](double length) {
    return std::max(1, static_cast<int>(std::lround(length * ratio)));
  };
  return {pixels(width), pixels(height), std::clamp(static_cast<float>(ratio), 0.5f, 4.0f)};
}

bool prefers_dark() { return page_prefers_dark(); }
std::string fragment() { return take(page_text(0)); }
std::string address() { return take(page_text(1)); }
std::string pasted() { return take(page_text(2)); }
void set_fragment(const char* text) { page_set_fragment(text); }
void set_title(const char* text) { page_set_title(text); }
void copy(const char* text) { page_copy(text); }
void drawn() { page_drawn(); }

}  // namespace halfscope::gui::browser
