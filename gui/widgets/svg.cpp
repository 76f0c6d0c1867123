// SPDX-License-Identifier: MIT
// Scalable Vector Graphics (SVG) 1.1, second edition: shapes in chapter 9, text in 10, clipping in
// 14.3. Numbers have two decimals at most, which is finer than any screen.
#include "gui/widgets/svg.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "core/utf8.h"
#include "gui/widgets/png.h"

namespace halfscope::gui {
namespace {

// DejaVu Sans: ascent 1901 and descent 483 of 2048 units to the em. Dear ImGui's sizes are their
// sum; SVG's sizes are the em.
constexpr float kEmOfHeight = 2048.0f / (1901.0f + 483.0f);
constexpr float kBaselineOfHeight = 1901.0f / (1901.0f + 483.0f);

/// Returns two decimals, without trailing zeros and without "-0".
std::string decimal(double value) {
  if (!std::isfinite(value)) return "0";
  std::string text = fmt::format("{:.2f}", value);
  text.resize(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

uint32_t channel(ImU32 color, int shift) { return (color >> shift) & 255u; }

std::string hex_color(ImU32 color) {
  return fmt::format("#{:02x}{:02x}{:02x}", channel(color, IM_COL32_R_SHIFT),
                     channel(color, IM_COL32_G_SHIFT), channel(color, IM_COL32_B_SHIFT));
}

std::string opacity(ImU32 color) {
  return decimal(static_cast<double>(channel(color, IM_COL32_A_SHIFT)) / 255.0);
}

/// Encodes base64 (RFC 4648, section 4).
std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += k <= count ? kDigits[(bits >> (18 - 6 * k)) & 63u] : '=';
    }
  }
  return text;
}

std::string png_of(int width, int height, std::span<const ImU32> rgba) {
  std::vector<unsigned char> bytes;
  bytes.reserve(rgba.size() * 3);
  for (const ImU32 pixel : rgba) {
    for (const int shift : {IM_COL32_R_SHIFT, IM_COL32_G_SHIFT, IM_COL32_B_SHIFT}) {
      bytes.push_back(static_cast<unsigned char>(channel(pixel, shift)));
    }
  }
  return png_bytes(width, height, 3, bytes);
}

}  // namespace

std::string SvgPicture::number(float pixels) const {
  return decimal(static_cast<double>(pixels) / static_cast<double>(scale_));
}

std::string SvgPicture::place(ImVec2 at) const {
  return number(at.x - origin_.x) + "," + number(at.y - origin_.y);
}

std::string SvgPicture::box(ImVec2 min, ImVec2 max) const {
  return fmt::format(R"(x="{}" y="{}" width="{}" height="{}")", number(min.x - origin_.x),
                     number(min.y - origin_.y), number(std::max(max.x - min.x, 0.0f)),
                     number(std::max(max.y - min.y, 0.0f)));
}

void SvgPicture::paint(const char* what, ImU32 color) {
  body_ += fmt::format(R"( {}="{}")", what, hex_color(color));
  if (channel(color, IM_COL32_A_SHIFT) != 255u) {
    body_ += fmt::format(R"( {}-opacity="{}")", what, opacity(color));
  }
}

void SvgPicture::rect(ImVec2 min, ImVec2 max, ImU32 color, float rounding) {
  if (!(max.x > min.x) || !(max.y > min.y) || channel(color, IM_COL32_A_SHIFT) == 0u) return;
  body_ += "<rect " + box(min, max);
  if (rounding > 0.0f) body_ += fmt::format(R"( rx="{}")", number(rounding));
  paint("fill", color);
  body_ += "/>\n";
}

void SvgPicture::outline(ImVec2 min, ImVec2 max, ImU32 color, float width, float rounding) {
  const float half = width / 2.0f;  // Dear ImGui draws it inside
  body_ += "<rect " + box({min.x + half, min.y + half}, {max.x - half, max.y - half});
  if (rounding > 0.0f) body_ += fmt::format(R"( rx="{}")", number(rounding));
  body_ += fmt::format(R"( fill="none" stroke-width="{}")", number(width));
  paint("stroke", color);
  body_ += "/>\n";
}

void SvgPicture::polyline(std::span<const ImVec2> points, ImU32 color, float width) {
  if (points.size() < 2) return;
  body_ += "<polyline points=\"";
  for (size_t i = 0; i < points.size(); ++i) {
    if (i > 0) body_ += i % 8 == 0 ? '\n' : ' ';
    body_ += place(points[i]);
  }
  body_ += fmt::format(R"(" fill="none" stroke-linejoin="round" stroke-width="{}")", number(width));
  paint("stroke", color);
  body_ += "/>\n";
}

void SvgPicture::polygon(std::span<const ImVec2> points, ImU32 color) {
  body_ += "<polygon points=\"";
  for (size_t i = 0; i < points.size(); ++i) body_ += (i > 0 ? " " : "") + place(points[i]);
  body_ += '"';
  paint("fill", color);
  body_ += "/>\n";
}

void SvgPicture::circle(ImVec2 center, float radius, ImU32 color) {
  body_ += fmt::format(R"(<circle cx="{}" cy="{}" r="{}")", number(center.x - origin_.x),
                       number(center.y - origin_.y), number(radius));
  paint("fill", color);
  body_ += "/>\n";
}

void SvgPicture::text(ImVec2 top_left, float height, float width, ImU32 color,
                      std::string_view text, bool bold) {
  if (text.empty()) return;
  // The length keeps words in place if another font is used.
  body_ += fmt::format(R"(<text x="{}" y="{}" font-size="{}" textLength="{}")",
                       number(top_left.x - origin_.x),
                       number(top_left.y - origin_.y + height * kBaselineOfHeight),
                       number(height * kEmOfHeight), number(width));
  if (bold) body_ += R"( font-weight="bold")";
  paint("fill", color);
  body_ += ">" + markup_text(text) + "</text>\n";
}

void SvgPicture::gradient(ImVec2 min, ImVec2 max, ImU32 top, ImU32 bottom) {
  const int id = ++ids_;
  definitions_ += fmt::format(
      R"(<linearGradient id="g{}" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="{}"/>)"
      R"(<stop offset="1" stop-color="{}"/></linearGradient>)"
      "\n",
      id, hex_color(top), hex_color(bottom));
  body_ += fmt::format(R"x(<rect {} fill="url(#g{})"/>)x"
                       "\n",
                       box(min, max), id);
}

void SvgPicture::image(ImVec2 min, ImVec2 max, int width, int height, std::span<const ImU32> rgba) {
  if (width <= 0 || height <= 0) return;
  body_ += fmt::format(R"(<image {} preserveAspectRatio="none" style="image-rendering:pixelated" )"
                       R"(xlink:href="data:image/png;base64,{}"/>)"
                       "\n",
                       box(min, max), base64(png_of(width, height, rgba)));
}

void SvgPicture::begin_clip(ImVec2 min, ImVec2 max) {
  const int id = ++ids_;
  definitions_ += fmt::format(R"(<clipPath id="c{}"><rect {}/></clipPath>)"
                              "\n",
                              id, box(min, max));
  body_ += fmt::format(R"x(<g clip-path="url(#c{})">)x"
                       "\n",
                       id);
}

void SvgPicture::end_clip() { body_ += "</g>\n"; }

void SvgPicture::begin_group(std::string_view name, const Axis* x, const Axis* y) {
  body_ += fmt::format(R"(<g data-name="{}")", markup_text(name));
  const auto axis = [this](const char* which, const Axis* values) {
    if (values == nullptr || !(values->low < values->high)) return;
    const float origin = *which == 'x' ? origin_.x : origin_.y;
    body_ += fmt::format(R"( data-{0}="{1} {2}" data-{0}-at="{3} {4}" data-{0}-scale="{5}")", which,
                         values->low, values->high, number(values->from - origin),
                         number(values->to - origin), axis_scale_name(values->scale));
  };
  axis("x", x);
  axis("y", y);
  body_ += ">\n";
}

void SvgPicture::end_group() { body_ += "</g>\n"; }

std::string SvgPicture::document(ImVec2 size, std::string_view title, ImU32 ground) const {
  const std::string width = number(size.x), height = number(size.y);
  std::string text = fmt::format(
      R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" version="1.1" )"
      R"(width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
      R"(font-family="'DejaVu Sans', Verdana, sans-serif" xml:space="preserve">
<title>{2}</title>
)",
      width, height, markup_text(title));
  if (!definitions_.empty()) text += "<defs>\n" + definitions_ + "</defs>\n";
  text += fmt::format(R"(<rect width="{}" height="{}" fill="{}"/>)"
                      "\n",
                      width, height, hex_color(ground));
  return text + body_ + "</svg>\n";
}

}  // namespace halfscope::gui
