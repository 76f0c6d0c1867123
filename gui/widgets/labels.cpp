// SPDX-License-Identifier: MIT
#include "gui/widgets/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/numeric/statistics/rates.h"
#include "core/utf8.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

/// Returns "20.9" for "20.9%": the unit follows the upper bound.
std::string without_percent(std::string text) {
  if (text.ends_with("%")) text.pop_back();
  return text;
}

}  // namespace

std::string power_text(double exponent) {
  const double tenths = std::round(exponent * 10.0) / 10.0 + 0.0;  // + 0.0: no "-0"
  return fmt::format("2^{:.{}f}", tenths, tenths == std::floor(tenths) ? 0 : 1);
}

std::string short_scale(double scale) {
  const double exponent = scale > 0.0 && std::isfinite(scale) ? std::log2(scale) : 0.0;
  if (std::fabs(exponent) <= 3.0 || exponent != std::floor(exponent)) return short_number(scale);
  return power_text(exponent);
}

std::string share_text(const CountBounds& bounds, int64_t whole) {
  if (bounds.high == 0) return "0";
  const std::string low = percent(share_of(bounds.low, whole));
  const std::string high = percent(share_of(bounds.high, whole));
  if (low == high) return high;
  return (bounds.low == 0 ? "0" : without_percent(low)) + " to " + high;
}

std::string change_text(const std::string& before, const std::string& after, bool changed,
                        const Fonts& fonts) {
  return changed ? before + " " + arrow(fonts) + " " + after : after;
}

const char* arrow(const Fonts& fonts) noexcept { return fonts.unicode ? "\u2192" : "->"; }

std::string format_facts(const FloatFormat& format) {
  std::string text = fmt::format("{}: largest {}, smallest normal 2^{}", format_name(format),
                                 short_number(format.max_finite()), format.min_exponent());
  if (format.mantissa_bits > 0 && !format.flush_out) {
    text += fmt::format(", smallest subnormal 2^{}", format.min_exponent() - format.mantissa_bits);
  }
  text += fmt::format(", {} significant bits", format.mantissa_bits + 1);
  if (format.saturates()) text += ", saturates";
  return text;
}

float text_width(ImFont* font, std::string_view text) {
  return font->CalcTextSizeA(font_size(*font), 1e9f, 0.0f, text.data(), text.data() + text.size())
      .x;
}

std::string fitted(std::string_view text, ImFont* font, float width) {
  if (text_width(font, text) <= width) return std::string(text);
  // Characters of several bytes are rare in names; a cut one is removed completely.
  const auto begins = [&](size_t at) { return begins_character(text[at]); };
  for (size_t kept = text.size(); kept > 2; --kept) {
    size_t head = kept / 2, tail = text.size() - (kept - kept / 2);
    while (head > 0 && !begins(head)) --head;
    while (tail < text.size() && !begins(tail)) ++tail;
    std::string cut = std::string(text.substr(0, head)) + ".." + std::string(text.substr(tail));
    if (text_width(font, cut) <= width) return cut;
  }
  return "..";
}

std::string plain_text(std::string text) {
  std::erase(text, '`');
  return text;
}

float balanced_width(const std::string& text, float width) {
  const auto height = [&](float wrap) {
    return ImGui::CalcTextSize(text.c_str(), nullptr, false, wrap).y;
  };
  const float most = height(width);
  if (most <= 1.5f * ImGui::GetTextLineHeight()) return width;
  float low = width / 2, high = width;
  while (high - low > 1.0f) {
    const float middle = std::round((low + high) / 2);
    (height(middle) > most ? low : high) = middle;
  }
  return high;
}

void label(std::string_view path, std::string_view text, ImFont* font, ImU32 color, float width) {
  const float room = width > 0.0f ? width : ImGui::GetContentRegionAvail().x;
  const std::string shown = fitted(text, font, room);
  ImGui::PushFont(font);
  ImGui::PushStyleColor(ImGuiCol_Text, color);
  ImGui::TextUnformatted(shown.c_str());
  ImGui::PopStyleColor();
  ImGui::PopFont();
  track_item(path, text);
  if (shown.size() != text.size()) ui::tip(std::string(text).c_str());
}

void flow(float width, float gap) {
  const float right = ImGui::GetWindowPos().x + ImGui::GetWindowContentRegionMax().x;
  ImGui::SameLine(0, gap);
  if (ImGui::GetCursorScreenPos().x + width > right) ImGui::NewLine();
}

void empty_note(std::string_view path, std::string_view text, const Theme& theme) {
  ImGui::PushStyleColor(ImGuiCol_Text, theme.soft);
  ui::text_wrapped(path, text);
  ImGui::PopStyleColor();
}

bool format_combo(std::string_view path, std::string* name, const char* own, float width,
                  const Theme& theme) {
  const std::string place(path);
  bool changed = false;
  std::string preview = name->empty() && own != nullptr ? own : *name;
  // Show only the format if "fp16 (its own)" does not fit.
  const float room = width - ImGui::GetFrameHeight() - 2 * ImGui::GetStyle().FramePadding.x;
  if (name->empty() && text_width(ImGui::GetFont(), preview) > room) {
    preview.resize(std::min(preview.find(' '), preview.size()));
  }
  ImGui::SetNextWindowSizeConstraints({width, 0.0f}, {FLT_MAX, FLT_MAX});
  if (!ui::begin_combo(path, preview.c_str(), width)) return false;
  if (own != nullptr && ui::selectable(place + "/own", own, name->empty())) {
    name->clear();
    changed = true;
  }
  for (const NamedFormat& each : named_formats()) {
    const std::string text(each.name);
    if (ui::selectable(place + "/" + text, text.c_str(), *name == text)) {
      *name = text;
      changed = true;
    }
    ui::tip(format_facts(each.format).c_str());
  }
  ImGui::Separator();
  changed |= ui::input_text(place + "/any", "any, e.g. e6m9", name, std::max(width, 120.0f));
  const std::string problem = name->empty() ? "" : format_problem(*name);
  ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + std::max(width, 180.0f));
  ImGui::PushStyleColor(ImGuiCol_Text, problem.empty() ? theme.soft : theme.bad);
  ui::text(place + "/problem", problem.empty() ? "eXmY, optionally fn, fnuz or finite, a bias "
                                                 "such as b7, and :sat or :ftz"
                                               : problem);
  ImGui::PopStyleColor();
  ImGui::PopTextWrapPos();
  ImGui::EndCombo();
  return changed;
}

}  // namespace halfscope::gui
