// SPDX-License-Identifier: MIT
// Bits: the code of a number as cells to click and paint, and its meaning.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/numeric/formats/codes.h"
#include "core/numeric/statistics/ulp.h"
#include "gui/lab/number_line.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

struct BitPart {
  const char* name;
  ImU32 color;
};

BitPart part_of(const LabFrame& frame, int bit) {
  const FloatFormat& format = frame.lab.shown();
  if (bit == format.bits() - 1) return {"sign", frame.sign_color()};
  if (bit >= format.mantissa_bits) return {"exponent", frame.exponent_color()};
  return {"fraction", frame.fraction_color()};
}

/// Draws a bit. A click flips it; dragging gives all bits passed the same value.
void draw_cell(const LabFrame& frame, int bit, ImVec2 min, ImVec2 max) {
  FloatLab& lab = frame.lab;
  const bool on = (lab.code >> bit & 1) != 0;
  const BitPart part = part_of(frame, bit);
  ImGuiStorage& storage = *ImGui::GetStateStorage();
  const ImGuiID painting = ImGui::GetID("lab/bits/painting");
  ImGui::SetCursorScreenPos(min);
  ImGui::PushID(bit);
  ImGui::InvisibleButton("##bit", {max.x - min.x, max.y - min.y});
  ImGui::PopID();
  track_item(fmt::format("lab/bit/{}", bit), on ? "1" : "0");
  const bool over = ImGui::IsMouseHoveringRect(min, max);
  if (ImGui::IsItemActivated()) {
    storage.SetInt(painting, on ? 1 : 2);  // what is painted, plus one
    lab.set_bit(bit, !on);
  } else if (over && ImGui::IsMouseDown(0) && storage.GetInt(painting) != 0) {
    const bool paint = storage.GetInt(painting) == 2;
    if (paint != on) lab.set_bit(bit, paint);
  }
  if (!ImGui::IsMouseDown(0)) storage.SetInt(painting, 0);

  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float radius = frame.px(3);
  list.AddRectFilled(min, max, on ? part.color : with_alpha(part.color, 0.13f), radius);
  list.AddRect(min, max, with_alpha(part.color, over ? 1.0f : 0.55f), radius, 0,
               frame.scale * (over ? 2.0f : 1.0f));
  ImFont* font = frame.fonts.mono;
  const char* digit = on ? "1" : "0";
  const float width = text_width(font, digit);
  list.AddText(
      font, font_size(*font),
      {std::round((min.x + max.x - width) / 2), std::round((min.y + max.y - font_size(*font)) / 2)},
      on ? frame.theme.card : frame.theme.ink, digit);
  if (over) {
    ui::tip(fmt::format("bit {}, {}{}\nClick to flip, drag to paint.", bit, part.name,
                        part.name[0] == 'f' ? fmt::format(": 2^{} of the significand",
                                                          bit - lab.shown().mantissa_bits)
                                            : "")
                .c_str());
  }
}

void draw_cells(const LabFrame& frame) {
  const FloatFormat& format = frame.lab.shown();
  const int bits = format.bits();
  const float gap = frame.px(3), group = frame.px(8);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float room = ImGui::GetContentRegionAvail().x - 2 * group;
  const float each =
      std::floor(std::clamp(room / static_cast<float>(bits), frame.px(9), frame.px(44)));
  const float height = std::round(std::clamp(each, frame.px(30), frame.px(40)));
  ImDrawList& list = *ImGui::GetWindowDrawList();
  float x = at.x;
  float part_start = x;
  for (int bit = bits - 1; bit >= 0; --bit) {
    draw_cell(frame, bit, {x, at.y}, {x + each - gap, at.y + height});
    x += each;
    const BitPart part = part_of(frame, bit);
    const bool last = bit == 0 || part_of(frame, bit - 1).name != part.name;
    if (!last) continue;
    // Draw the part's name below it if there is room.
    ImFont* font = frame.fonts.small;
    const float y = at.y + height + frame.px(3);
    list.AddLine({part_start, y}, {x - gap, y}, part.color, frame.scale * 2.0f);
    if (x - part_start >= text_width(font, part.name) || part.name[0] != 's') {
      list.AddText(font, font_size(*font), {part_start, y + frame.px(3)}, frame.theme.soft,
                   part.name);
    }
    x += group;
    part_start = x;
  }
  ImGui::SetCursorScreenPos({at.x, at.y + height + frame.px(9) + font_size(*frame.fonts.small)});
  ImGui::Dummy({x - at.x, 0});
}

std::string conversion_text(const FloatLab& lab) {
  const float value = lab.number();
  if (!lab.typed()) return "";
  if (!std::isfinite(value)) return lab.typed()->text() + " is out of range";
  const ExactDecimal difference = ExactDecimal(static_cast<double>(value)) - *lab.typed();
  if (difference.zero()) return "none (exact)";
  const double off = difference.approximate();
  std::string text = fmt::format("{} ({:+.2g} ulp)", difference.text(),
                                 off / ulp_size(lab.typed()->approximate(), lab.shown()));
  return text;
}

void draw_facts(const LabFrame& frame, float width) {
  const FloatLab& lab = frame.lab;
  const FloatFormat& format = lab.shown();
  const float value = lab.number();
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoSavedSettings;
  if (!ImGui::BeginTable("lab/facts", 2, kFlags, {width, 0})) return;
  ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed);
  ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
  lab_fact(frame, "lab/exact", "value", exact_text(value), "All digits, without rounding.");
  const std::string kind = kind_text(value, format);
  lab_fact(frame, "lab/formula", kind == "normal" ? "normalized" : kind.c_str(),
           formula_text(value, format), "Sign, significand and power of two.");
  lab_fact(frame, "lab/exponent", "exponent field", exponent_text(lab.code, format));
  lab_fact(frame, "lab/code", "code",
           code_text(lab.code, format) + "   " + hex_float(static_cast<double>(value)),
           "The bits as an integer, and the value as a hexadecimal float for C and Python.");
  const std::string conversion = conversion_text(lab);
  lab_fact(frame, "lab/conversion", "conversion error", conversion.empty() ? "-" : conversion,
           "Stored value minus typed value, exactly.");
  if (!std::isnan(value)) {
    lab_fact(frame, "lab/neighbours", "neighbours",
             distinct_text(neighbour(value, -1, format), format) + "  and  " +
                 distinct_text(neighbour(value, +1, format), format),
             "The values one ulp below and above, with enough digits to tell them apart.");
  }
  if (std::isfinite(value)) {
    lab_fact(frame, "lab/ulp", "one ulp",
             power_text(std::log2(ulp_size(static_cast<double>(value), format))),
             "The distance between neighbouring values around this number.");
  }
  ImGui::EndTable();
}

void draw_copies(const LabFrame& frame) {
  const FloatLab& lab = frame.lab;
  const double value = static_cast<double>(lab.number());
  const bool finite = std::isfinite(value);
  const std::string hex = hex_float(value);
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {frame.px(8), frame.px(2)});
  if (ui::button("lab/copy/c", "Copy C")) {
    const char* constant = std::isnan(value) ? "NAN" : value > 0 ? "INFINITY" : "-INFINITY";
    ImGui::SetClipboardText(fmt::format("{} /* {} {} */", finite ? hex + "f" : constant,
                                        format_name(lab.shown()), code_text(lab.code, lab.shown()))
                                .c_str());
  }
  ImGui::SameLine();
  if (ui::button("lab/copy/python", "Copy Python")) {
    ImGui::SetClipboardText(finite ? fmt::format("float.fromhex(\"{}\")", hex).c_str()
                                   : fmt::format("float(\"{}\")", hex).c_str());
  }
  ImGui::SameLine();
  if (ui::button("lab/copy/decimal", "Copy decimal")) {
    ImGui::SetClipboardText(exact_text(lab.number()).c_str());
  }
  ImGui::PopStyleVar();
}

/// Draws the typed value, or else the number, in other formats.
void draw_compared(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_RowBg | ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoSavedSettings;
  if (!ImGui::BeginTable("lab/compared", 3, kFlags)) return;
  ImGui::TableSetupColumn("format", ImGuiTableColumnFlags_WidthFixed);
  ImGui::TableSetupColumn("code", ImGuiTableColumnFlags_WidthFixed);
  ImGui::TableSetupColumn("nearest value", ImGuiTableColumnFlags_WidthStretch);
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ImGui::TableHeadersRow();
  ImGui::PopStyleColor();
  std::string problem;
  for (const NamedFormat& each : named_formats()) {
    const std::string name(each.name);
    const FloatFormat& format = each.format;
    const std::optional<uint32_t> typed =
        lab.typed() ? read_number(lab.entry, format, problem) : std::nullopt;
    const uint32_t code = typed ? *typed : encode(lab.number(), format);
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    if (ui::selectable(fmt::format("lab/in/{}", name), name.c_str(), format == lab.shown(), {0, 0},
                       kLabRow)) {
      lab.set_format(format);
    }
    ImGui::PushFont(frame.fonts.mono);
    ImGui::TableNextColumn();
    ImGui::TextUnformatted(code_text(code, format).c_str());
    ImGui::TableNextColumn();
    ui::text_wrapped(fmt::format("lab/in/{}/value", name), exact_text(decode(code, format)));
    ImGui::PopFont();
  }
  ImGui::EndTable();
}

}  // namespace

void draw_bits_tab(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  lab_format(frame);
  if (lab_field(frame, "lab/entry", "number", &lab.entry, frame.px(190), frame.px(16))) {
    lab.entry_edited();
  }
  ui::tip("A decimal, inf, nan, a hexadecimal float (0x1.8p-3) or a code (0x2e66, 0b0101).");
  if (lab_button(frame, "lab/down", "-1 ulp")) lab.step(-1);
  if (lab_button(frame, "lab/up", "+1 ulp")) lab.step(+1);
  if (!lab.entry_problem().empty()) {
    label("lab/entry/problem", lab.entry_problem(), frame.fonts.text, frame.theme.bad);
  }
  ImGui::Dummy({0, frame.px(2)});
  draw_cells(frame);
  const float room = ImGui::GetContentRegionAvail().x;
  const bool beside = room > frame.px(820);
  const float width = beside ? std::floor(room * 0.48f) : room;
  ImGui::BeginGroup();
  draw_facts(frame, width);
  draw_copies(frame);
  ImGui::EndGroup();
  if (beside) ImGui::SameLine(0, frame.px(24));
  ImGui::BeginGroup();
  draw_compared(frame);
  ImGui::EndGroup();
  const float value = lab.number();
  if (!std::isfinite(value)) return;
  const double exact = lab.typed() ? lab.typed()->approximate() : static_cast<double>(value);
  ImGui::Dummy({0, frame.px(4)});
  draw_bins(frame, "lab/bits/bins",
            {.chosen = value,
             .exact = exact,
             .label = (lab.typed() ? "typed: " : "number: ") + brief_text(exact, 9)},
            ImGui::GetContentRegionAvail().x,
            std::min(lab_room(frame, 110, frame.px(4)), frame.px(420)));
}

}  // namespace halfscope::gui
