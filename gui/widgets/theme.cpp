// SPDX-License-Identifier: MIT
#include "gui/widgets/theme.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string>

namespace halfscope::gui {
namespace {

/// Converts 0xRRGGBB, as in style sheets.
constexpr ImU32 rgb(uint32_t color, uint32_t alpha = 255) {
  const uint32_t r = (color >> 16) & 255, g = (color >> 8) & 255, b = color & 255;
  return IM_COL32(r, g, b, alpha);
}

constexpr Theme kDark{
    .dark = true,
    .ground = rgb(0x101317),
    .card = rgb(0x171b21),
    .card_line = rgb(0x2a313a),
    .ink = rgb(0xe7eaee),
    .soft = rgb(0xa1abb7),
    .faint = rgb(0x6b7683),
    .plot = rgb(0x0d1013),
    .grid = rgb(0x232a32),
    .axis = rgb(0x3a434e),
    .accent = rgb(0x63b0ee),
    .accent_soft = rgb(0x17344f),
    .selection = rgb(0x1e4265),
    .cursor = rgb(0xf2f5f8),
    .good = rgb(0x74d6a0),
    .good_soft = rgb(0x12301f),
    .warn = rgb(0xf0bd66),
    .warn_soft = rgb(0x38290f),
    .bad = rgb(0xff8b7e),
    .bad_soft = rgb(0x431a18),
    .in_range = rgb(0x4f9ade),
    .subnormal = rgb(0xe0b64f),
    .lost = rgb(0xf5733a),
    .outline = rgb(0x9aa5b2),
    .zone_subnormal = rgb(0x2e2a1b),
    .zone_lost = rgb(0x3a1f1a),
    .lines = {rgb(0xb4bcc8), rgb(0x63b0ee), rgb(0xfd9a4e), rgb(0xb59be0), rgb(0x5ccfa9),
              rgb(0xe98bb5), rgb(0xd8d05a), rgb(0x8fa6ff), rgb(0xc7a17a), rgb(0x6fd3e3)},
    .formats = {rgb(0x66717e), rgb(0x3d4855), rgb(0x4f9ade), rgb(0xf28e3c), rgb(0xf3e27a),
                rgb(0xf2b8e6)}};

constexpr Theme kLight{
    .dark = false,
    .ground = rgb(0xeceff3),
    .card = rgb(0xffffff),
    .card_line = rgb(0xcfd5dd),
    .ink = rgb(0x171b20),
    .soft = rgb(0x56606d),
    .faint = rgb(0x87919d),
    .plot = rgb(0xfbfcfd),
    .grid = rgb(0xe6eaef),
    .axis = rgb(0xb9c1cb),
    .accent = rgb(0x1560a8),
    .accent_soft = rgb(0xe0ecf9),
    .selection = rgb(0xcfe2f6),
    .cursor = rgb(0x171b20),
    .good = rgb(0x146139),
    .good_soft = rgb(0xe2f3e9),
    .warn = rgb(0x7a4b00),
    .warn_soft = rgb(0xfcefd5),
    .bad = rgb(0xac2118),
    .bad_soft = rgb(0xfde9e6),
    .in_range = rgb(0x3d86c6),
    .subnormal = rgb(0xc39a1f),
    .lost = rgb(0xd9570b),
    .outline = rgb(0x56606d),
    .zone_subnormal = rgb(0xfbf4de),
    .zone_lost = rgb(0xfbe3d8),
    .lines = {rgb(0x4a5361), rgb(0x1f77b4), rgb(0xc65302), rgb(0x7a5fa8), rgb(0x117a5b),
              rgb(0xb0457a), rgb(0x857a00), rgb(0x4457c9), rgb(0x7d5a33), rgb(0x0d7f93)},
    .formats = {rgb(0xa9b3bf), rgb(0x5d6875), rgb(0x2f6fb5), rgb(0xe0761f), rgb(0x6b4a08),
                rgb(0x6a2170)}};

/// Colours of the heatmap at even levels, 0 to 1.
constexpr std::array<ImU32, 9> kHeat{rgb(0x1b1233), rgb(0x3b0f60), rgb(0x641a80),
                                     rgb(0x8c2981), rgb(0xb73779), rgb(0xde4968),
                                     rgb(0xf7705c), rgb(0xfeb078), rgb(0xfcf0b4)};

/// Folders of DejaVu on the usual distributions.
constexpr std::array<const char*, 4> kFontFolders{
    "/usr/share/fonts/truetype/dejavu/", "/usr/share/fonts/dejavu/",
    "/usr/share/fonts/dejavu-sans-fonts/", "/usr/share/fonts/TTF/"};

std::string find_font(const char* file) {
  for (const char* folder : kFontFolders) {
    std::error_code error;
    std::string path = std::string(folder) + file;
    if (std::filesystem::is_regular_file(path, error)) return path;
  }
  return "";
}

/// Latin, Greek, and the symbols that numbers and keys need.
constexpr std::array<ImWchar, 21> kGlyphs{0x20,   0xff,   0x370,  0x3ff,  0x2010, 0x2027, 0x2030,
                                          0x205e, 0x2070, 0x209f, 0x2190, 0x21ff, 0x2200, 0x22ff,
                                          0x25a0, 0x25ff, 0x2600, 0x267f, 0x2713, 0x2718, 0};

}  // namespace

ImU32 Theme::severity(Severity severity) const noexcept {
  switch (severity) {
    case Severity::error:
      return bad;
    case Severity::warning:
      return warn;
    case Severity::info:
      return accent;
  }
  return soft;
}

ImU32 Theme::verdict(Verdict::State state) const noexcept {
  switch (state) {
    case Verdict::State::broken:
      return bad;
    case Verdict::State::attention:
      return warn;
    case Verdict::State::healthy:
    case Verdict::State::cured:
      return good;
    case Verdict::State::inconclusive:
      return soft;
  }
  return soft;
}

ImU32 Theme::verdict_soft(Verdict::State state) const noexcept {
  switch (state) {
    case Verdict::State::broken:
      return bad_soft;
    case Verdict::State::attention:
      return warn_soft;
    case Verdict::State::healthy:
    case Verdict::State::cured:
      return good_soft;
    case Verdict::State::inconclusive:
      return card;
  }
  return card;
}

const Theme& dark_theme() noexcept { return kDark; }
const Theme& light_theme() noexcept { return kLight; }

void apply_style(const Theme& theme, float scale) {
  ImGuiStyle style;  // a fresh one: scaling twice would round sizes away
  style.WindowPadding = {10, 8};
  style.FramePadding = {8, 4};
  style.ItemSpacing = {8, 5};
  style.ItemInnerSpacing = {6, 4};
  style.CellPadding = {6, 3};
  style.ScrollbarSize = 12;
  style.GrabMinSize = 12;
  style.WindowRounding = 0;
  style.ChildRounding = 5;
  style.FrameRounding = 4;
  style.PopupRounding = 5;
  style.GrabRounding = 3;
  style.ScrollbarRounding = 6;
  style.TabRounding = 4;
  style.WindowBorderSize = 0;
  style.ChildBorderSize = 1;
  style.PopupBorderSize = 1;
  style.FrameBorderSize = 0;
  style.ScaleAllSizes(scale);

  const auto set = [&style](ImGuiCol which, ImU32 color) { style.Colors[which] = vec(color); };
  const ImU32 frame = theme.dark ? rgb(0x222932) : rgb(0xe9edf2);
  const ImU32 frame_over = theme.dark ? rgb(0x2c3541) : rgb(0xdde4ec);
  set(ImGuiCol_Text, theme.ink);
  set(ImGuiCol_TextDisabled, theme.soft);
  set(ImGuiCol_TextSelectedBg, theme.selection);
  set(ImGuiCol_WindowBg, theme.ground);
  set(ImGuiCol_ChildBg, theme.card);
  set(ImGuiCol_PopupBg, theme.card);
  set(ImGuiCol_Border, theme.card_line);
  set(ImGuiCol_BorderShadow, rgb(0, 0));
  set(ImGuiCol_FrameBg, frame);
  set(ImGuiCol_FrameBgHovered, frame_over);
  set(ImGuiCol_FrameBgActive, frame_over);
  set(ImGuiCol_MenuBarBg, theme.ground);
  set(ImGuiCol_ScrollbarBg, rgb(0, 0));
  set(ImGuiCol_ScrollbarGrab, theme.card_line);
  set(ImGuiCol_ScrollbarGrabHovered, theme.axis);
  set(ImGuiCol_ScrollbarGrabActive, theme.faint);
  set(ImGuiCol_CheckMark, theme.accent);
  set(ImGuiCol_SliderGrab, theme.accent);
  set(ImGuiCol_SliderGrabActive, theme.accent);
  set(ImGuiCol_Button, frame);
  set(ImGuiCol_ButtonHovered, frame_over);
  set(ImGuiCol_ButtonActive, theme.selection);
  set(ImGuiCol_Header, theme.selection);
  set(ImGuiCol_HeaderHovered, frame_over);
  set(ImGuiCol_HeaderActive, theme.selection);
  set(ImGuiCol_Separator, theme.card_line);
  set(ImGuiCol_SeparatorHovered, theme.accent);
  set(ImGuiCol_SeparatorActive, theme.accent);
  set(ImGuiCol_Tab, rgb(0, 0));
  set(ImGuiCol_TabHovered, frame_over);
  set(ImGuiCol_TabActive, theme.selection);
  set(ImGuiCol_TabUnfocused, rgb(0, 0));
  set(ImGuiCol_TabUnfocusedActive, theme.selection);
  set(ImGuiCol_TableHeaderBg, frame);
  set(ImGuiCol_TableBorderStrong, theme.card_line);
  set(ImGuiCol_TableBorderLight, theme.card_line);
  set(ImGuiCol_TableRowBg, rgb(0, 0));
  set(ImGuiCol_TableRowBgAlt, with_alpha(theme.ink, 0.025f));
  set(ImGuiCol_NavHighlight, theme.accent);
  set(ImGuiCol_ModalWindowDimBg, rgb(0, 140));
  ImGui::GetStyle() = style;
}

Fonts load_fonts(float scale) {
  ImFontAtlas& atlas = *ImGui::GetIO().Fonts;
  atlas.Clear();
  Fonts fonts;
  const std::string text = find_font("DejaVuSans.ttf");
  if (text.empty()) {
    fonts.text = fonts.bold = fonts.mono = fonts.small = fonts.large = atlas.AddFontDefault();
    return fonts;
  }
  const auto add = [&](const std::string& file, float size) {
    return atlas.AddFontFromFileTTF(file.c_str(), std::round(size * scale), nullptr,
                                    kGlyphs.data());
  };
  const std::string bold = find_font("DejaVuSans-Bold.ttf");
  const std::string mono = find_font("DejaVuSansMono.ttf");
  fonts.text = add(text, 14);
  fonts.small = add(text, 12);
  fonts.large = add(bold.empty() ? text : bold, 20);
  fonts.bold = add(bold.empty() ? text : bold, 14);
  fonts.mono = add(mono.empty() ? text : mono, 14);
  fonts.unicode = true;
  return fonts;
}

ImU32 heat_color(double level) noexcept {
  const double place = std::clamp(level, 0.0, 1.0) * static_cast<double>(kHeat.size() - 1);
  const size_t below = std::min(static_cast<size_t>(place), kHeat.size() - 2);
  const double share = place - static_cast<double>(below);
  return mix(kHeat[below], kHeat[below + 1], share);
}

ImU32 mix(ImU32 a, ImU32 b, double share) noexcept {
  const auto part = [&](int shift) {
    const double from = (a >> shift) & 255, to = (b >> shift) & 255;
    return static_cast<ImU32>(std::lround(from + (to - from) * share)) << shift;
  };
  return part(IM_COL32_R_SHIFT) | part(IM_COL32_G_SHIFT) | part(IM_COL32_B_SHIFT) | IM_COL32_A_MASK;
}

void draw_severity(ImDrawList& draw, ImVec2 center, float size, Severity severity, ImU32 color) {
  switch (severity) {
    case Severity::error:
      draw.AddRectFilled({center.x - size, center.y - size}, {center.x + size, center.y + size},
                         color, size * 0.4f);
      break;
    case Severity::warning:
      draw.AddTriangleFilled({center.x, center.y - size}, {center.x + size, center.y + size},
                             {center.x - size, center.y + size}, color);
      break;
    case Severity::info:
      draw.AddCircle(center, size, color, 0, size * 0.5f);
      break;
  }
}

ImU32 with_alpha(ImU32 color, float alpha) noexcept {
  const auto a = static_cast<ImU32>(std::lround(std::clamp(alpha, 0.0f, 1.0f) * 255.0f));
  return (color & ~static_cast<ImU32>(IM_COL32_A_MASK)) | (a << IM_COL32_A_SHIFT);
}

ImVec4 vec(ImU32 color) noexcept {
  const auto part = [color](int shift) {
    return static_cast<float>((color >> shift) & 255) / 255.0f;
  };
  return {part(IM_COL32_R_SHIFT), part(IM_COL32_G_SHIFT), part(IM_COL32_B_SHIFT),
          part(IM_COL32_A_SHIFT)};
}

}  // namespace halfscope::gui
