// SPDX-License-Identifier: MIT
#include "gui/widgets/canvas.h"

#include <cmath>
#include <vector>

#include "gui/widgets/imgui_compat.h"

namespace halfscope::gui {

ImVec2 text_size(ImFont& font, std::string_view text) {
  return font.CalcTextSizeA(font_size(font), 1e9f, 0.0f, text.data(), text.data() + text.size());
}

void Canvas::fill(ImVec2 min, ImVec2 max, ImU32 color, float rounding, ImDrawFlags corners) {
  list_.AddRectFilled(min, max, color, rounding, corners);
  if (target_ != nullptr) target_->svg.rect(min, max, color, corners == 0 ? rounding : 0.0f);
}

void Canvas::outline(ImVec2 min, ImVec2 max, ImU32 color, float width, float rounding) {
  list_.AddRect(min, max, color, rounding, ImDrawFlags_None, width);
  if (target_ != nullptr) target_->svg.outline(min, max, color, width, rounding);
}

void Canvas::line(ImVec2 from, ImVec2 to, ImU32 color, float width) {
  list_.AddLine(from, to, color, width);
  const ImVec2 points[] = {from, to};
  if (target_ != nullptr) target_->svg.polyline(points, color, width);
}

void Canvas::polyline(std::span<const ImVec2> points, ImU32 color, float width) {
  list_.AddPolyline(points.data(), static_cast<int>(points.size()), color, ImDrawFlags_None, width);
  if (target_ != nullptr) target_->svg.polyline(points, color, width);
}

void Canvas::polygon(std::span<const ImVec2> points, ImU32 color) {
  list_.AddConvexPolyFilled(points.data(), static_cast<int>(points.size()), color);
  if (target_ != nullptr) target_->svg.polygon(points, color);
}

void Canvas::area(std::span<const ImVec2> line, float base, ImU32 color) {
  std::vector<ImVec2> below(line.begin(), line.end());
  for (ImVec2& point : below) point.y = base;
  band(line, below, color);
}

void Canvas::band(std::span<const ImVec2> above, std::span<const ImVec2> below, ImU32 color) {
  if (above.size() < 2 || below.size() != above.size()) return;
  const int pieces = static_cast<int>(above.size()) - 1;
  const ImVec2 white = list_._Data->TexUvWhitePixel;
  list_.PrimReserve(6 * pieces, 4 * pieces);
  for (size_t i = 0; i + 1 < above.size(); ++i) {
    list_.PrimQuadUV(above[i], above[i + 1], below[i + 1], below[i], white, white, white, white,
                     color);
  }
  if (target_ == nullptr) return;
  std::vector<ImVec2> outline(above.begin(), above.end());
  outline.insert(outline.end(), below.rbegin(), below.rend());
  target_->svg.polygon(outline, color);
}

void Canvas::circle(ImVec2 center, float radius, ImU32 color) {
  list_.AddCircleFilled(center, radius, color);
  if (target_ != nullptr) target_->svg.circle(center, radius, color);
}

void Canvas::text(ImFont& font, ImVec2 place, ImU32 color, std::string_view text, bool bold) {
  const ImVec2 at{std::round(place.x), std::round(place.y)};
  list_.AddText(&font, font_size(font), at, color, text.data(), text.data() + text.size());
  if (target_ == nullptr) return;
  target_->svg.text(at, font_size(font), text_size(font, text).x, color, text, bold);
}

void Canvas::gradient(ImVec2 min, ImVec2 max, ImU32 top, ImU32 bottom) {
  list_.AddRectFilledMultiColor(min, max, top, top, bottom, bottom);
  if (target_ != nullptr) target_->svg.gradient(min, max, top, bottom);
}

void Canvas::image(std::string_view name, ImTextureID texture, ImVec2 min, ImVec2 max) {
  list_.AddImage(texture, min, max);
  if (target_ == nullptr) return;
  const MemoryTextures::Picture* pixels = target_->textures.find(name);
  if (pixels == nullptr) return;
  target_->svg.image(min, max, pixels->width, pixels->height, pixels->rgba);
}

void Canvas::push_clip(ImVec2 min, ImVec2 max) {
  list_.PushClipRect(min, max, true);
  if (target_ != nullptr) target_->svg.begin_clip(min, max);
}

void Canvas::pop_clip() {
  list_.PopClipRect();
  if (target_ != nullptr) target_->svg.end_clip();
}

void Canvas::begin_group(std::string_view name, const Axis* x, const Axis* y) {
  if (target_ != nullptr) target_->svg.begin_group(name, x, y);
}

void Canvas::end_group() {
  if (target_ != nullptr) target_->svg.end_group();
}

}  // namespace halfscope::gui
