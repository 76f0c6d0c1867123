// SPDX-License-Identifier: MIT
// Canvas: the drawing surface of plots. It draws into Dear ImGui's list of the window and, for a
// picture of the panel, draws the same shapes into an SVG.
#pragma once

#include <imgui.h>

#include <span>
#include <string_view>

#include "gui/widgets/svg.h"
#include "gui/widgets/textures.h"
#include "gui/widgets/theme.h"

namespace halfscope::gui {

/// Target of a panel's picture, and the source of the pixels in it.
struct PictureTarget {
  SvgPicture svg;
  MemoryTextures textures;
};

class Canvas {
 public:
  /// Draws into the current window, and into `target` unless that is null.
  explicit Canvas(PictureTarget* target = nullptr)
      : list_(*ImGui::GetWindowDrawList()), target_(target) {}

  void fill(ImVec2 min, ImVec2 max, ImU32 color, float rounding = 0.0f, ImDrawFlags corners = 0);
  void outline(ImVec2 min, ImVec2 max, ImU32 color, float width = 1.0f, float rounding = 0.0f);
  void line(ImVec2 from, ImVec2 to, ImU32 color, float width = 1.0f);
  void polyline(std::span<const ImVec2> points, ImU32 color, float width);
  /// Fills a convex polygon; points are clockwise.
  void polygon(std::span<const ImVec2> points, ImU32 color);
  /// Fills between a line that runs to the right and the height `base`.
  void area(std::span<const ImVec2> line, float base, ImU32 color);
  /// Fills between two lines that run to the right, with as many points at the same places.
  void band(std::span<const ImVec2> above, std::span<const ImVec2> below, ImU32 color);
  void circle(ImVec2 center, float radius, ImU32 color);
  /// Draws one line of text with its top left corner at `place`, rounded to whole pixels.
  void text(ImFont& font, ImVec2 place, ImU32 color, std::string_view text, bool bold = false);
  void gradient(ImVec2 min, ImVec2 max, ImU32 top, ImU32 bottom);
  /// Draws the texture `name`.
  void image(std::string_view name, ImTextureID texture, ImVec2 min, ImVec2 max);
  void push_clip(ImVec2 min, ImVec2 max);
  void pop_clip();
  void begin_group(std::string_view name, const Axis* x = nullptr, const Axis* y = nullptr);
  void end_group();

 private:
  ImDrawList& list_;
  PictureTarget* target_;
};

/// Returns the size of one line of text, in pixels.
ImVec2 text_size(ImFont& font, std::string_view text);

}  // namespace halfscope::gui
