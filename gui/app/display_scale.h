// SPDX-License-Identifier: MIT
// From what a window system says of its scale to the sizes that Dear ImGui is drawn in. It draws in
// the window's own units: on X11 and Windows those are pixels, elsewhere (Wayland, macOS) points of
// several pixels, which are scaled already.
#pragma once

#include <algorithm>
#include <cmath>

namespace halfscope::gui {

/// The scale of the user interface: that of the content, less what the window's units hold of it.
inline float display_scale(float content_scale, int window_width, int framebuffer_width) noexcept {
  if (!(content_scale > 0.0f) || !std::isfinite(content_scale)) content_scale = 1.0f;
  const float pixels =
      window_width > 0 && framebuffer_width > 0
          ? static_cast<float>(framebuffer_width) / static_cast<float>(window_width)
          : 1.0f;
  return std::clamp(content_scale / std::max(pixels, 1e-3f), 0.5f, 4.0f);
}

/// A length of a window of that scale as it is remembered, which is at scale 1: the window system
/// multiplies it again when the next one is opened, maybe on another display.
inline int remembered_length(int length, float scale) noexcept {
  return std::max(1, static_cast<int>(std::lround(static_cast<float>(length) / scale)));
}

}  // namespace halfscope::gui
