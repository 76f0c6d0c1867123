// SPDX-License-Identifier: MIT
// SvgPicture: lines, areas and words as SVG 1.1, for documents that want plots without pixels. The
// text depends on what is drawn alone: the same calls give the same bytes on every machine.
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
  /// All places are pixels from `origin`, `scale` of them to a unit of the picture.
  explicit SvgPicture(ImVec2 origin = {}, float scale = 1.0f) : origin_(origin), scale_(scale) {}
  /// Moves what is drawn from now on: a panel does not know where it stands until it is drawn.
  void set_origin(ImVec2 origin) noexcept { origin_ = origin; }

  void rect(ImVec2 min, ImVec2 max, ImU32 color, float rounding = 0.0f);
  void outline(ImVec2 min, ImVec2 max, ImU32 color, float width, float rounding = 0.0f);
  void polyline(std::span<const ImVec2> points, ImU32 color, float width);
  void polygon(std::span<const ImVec2> points, ImU32 color);
  void circle(ImVec2 center, float radius, ImU32 color);
  /// `top_left` of a line that is `height` high and `width` wide in the fonts of the viewer.
  void text(ImVec2 top_left, float height, float width, ImU32 color, std::string_view text,
            bool bold = false);
  /// From `top` down to `bottom`.
  void gradient(ImVec2 min, ImVec2 max, ImU32 top, ImU32 bottom);
  /// Pixels, row after row, as an embedded PNG that is not smoothed.
  void image(ImVec2 min, ImVec2 max, int width, int height, std::span<const ImU32> rgba);
  void begin_clip(ImVec2 min, ImVec2 max);
  void end_clip();
  /// A group that says what it shows, for programs that read it: data-name; of each axis that has
  /// values the two at its ends (data-x), where those stand (data-x-at) and its scale.
  void begin_group(std::string_view name, const Axis* x = nullptr, const Axis* y = nullptr);
  void end_group();

  bool empty() const noexcept { return body_.empty(); }
  /// The whole file; `size` in pixels, as all places.
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
