// SPDX-License-Identifier: MIT
// SvgPicture: lines, areas and text as SVG 1.1, for documents with scalable plots. The output
// depends only on the calls: the same calls give the same bytes on every machine.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gui/widgets/plot_math.h"

namespace halfscope::gui {

class SvgPicture {
 public:
  /// Takes positions in pixels from `origin`; `scale` pixels are one unit of the picture.
  explicit SvgPicture(ImVec2 origin = {}, float scale = 1.0f) : origin_(origin), scale_(scale) {}
  /// Moves everything drawn from now on: a panel does not know its position until it is drawn.
  void set_origin(ImVec2 origin) noexcept { origin_ = origin; }

  void rect(ImVec2 min, ImVec2 max, ImU32 color, float rounding = 0.0f);
  void outline(ImVec2 min, ImVec2 max, ImU32 color, float width, float rounding = 0.0f);
  void polyline(std::span<const ImVec2> points, ImU32 color, float width);
  void polygon(std::span<const ImVec2> points, ImU32 color);
  void circle(ImVec2 center, float radius, ImU32 color);
  /// Draws a line of text at `top_left` that is `height` by `width` in the viewer's fonts.
  void text(ImVec2 top_left, float height, float width, ImU32 color, std::string_view text,
            bool bold = false);
  /// Fills with a gradient from `top` down to `bottom`.
  void gradient(ImVec2 min, ImVec2 max, ImU32 top, ImU32 bottom);
  /// Embeds pixels, row by row, as a PNG without smoothing.
  void image(ImVec2 min, ImVec2 max, int width, int height, std::span<const ImU32> rgba);
  void begin_clip(ImVec2 min, ImVec2 max);
  void end_clip();
  /// Begins a group that programs can read: data-name, and for each axis with values the two at its
  /// ends (data-x), their positions (data-x-at) and its scale.
  void begin_group(std::string_view name, const Axis* x = nullptr, const Axis* y = nullptr);
  void end_group();

  bool empty() const noexcept { return body_.empty(); }
  /// Returns the whole file; `size` is in pixels, like all positions.
  std::string document(ImVec2 size, std::string_view title, ImU32 ground) const;

 private:
  void paint(const char* what, ImU32 color);
  std::string number(float pixels) const;
  std::string place(ImVec2 at) const;
  std::string box(ImVec2 min, ImVec2 max) const;

  ImVec2 origin_;
  float scale_;
  std::string body_, definitions_;
  int ids_ = 0;
};

}  // namespace halfscope::gui
