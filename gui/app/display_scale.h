// SPDX-License-Identifier: MIT
// Converts the window system's scale to Dear ImGui sizes. Dear ImGui draws in the window's units:
// pixels on X11 and Windows; elsewhere (Wayland, macOS) points of several pixels, which are already
// scaled.
#pragma once

#include <algorithm>
#include <cmath>

namespace halfscope::gui {

/// Returns the scale of the user interface: the content scale without the part that the window's
/// units already include.
inline float display_scale(float content_scale, int window_width, int framebuffer_width) noexcept {
  if (!(content_scale > 0.0f) || !std::isfinite(content_scale)) content_scale = 1.0f;
  const float pixels =
      window_width > 0 && framebuffer_width > 0
          ? static_cast<float>(framebuffer_width) / static_cast<float>(window_width)
          : 1.0f;
  return std::clamp(content_scale / std::max(pixels, 1e-3f), 0.5f, 4.0f);
}

/// Returns a window length converted to scale 1, as settings store it: the window system multiplies
/// it again when the next window opens, maybe on another display.
inline int remembered_length(int length, float scale) noexcept {
  return std::max(1, static_cast<int>(std::lround(static_cast<float>(length) / scale)));
}

}  // namespace halfscope::gui
