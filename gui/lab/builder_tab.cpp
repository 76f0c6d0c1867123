// SPDX-License-Identifier: MIT
// Build: a format from its parts, with what it can represent. It is the lab's format, so all other
// tabs use it, too.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "core/lab/explain.h"
#include "core/number_text.h"
#include "gui/lab/number_line.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

struct EncodingChoice {
  Encoding encoding;
  const char* name;
  const char* tip;
};
constexpr std::array<EncodingChoice, 4> kEncodings{
    EncodingChoice{Encoding::ieee, "infinity and NaN",
                   "ieee: the top exponent is reserved for infinity and NaN."},
    EncodingChoice{Encoding::finite_nan, "only NaN (fn)",
                   "fn: no infinity, and only the code of ones is NaN. e4m3fn is an example."},
    EncodingChoice{Encoding::fnuz, "NaN for -0 (fnuz)",
                   "fnuz: the code of negative zero is the only NaN."},
    EncodingChoice{Encoding::finite, "only numbers (finite)",
                   "Every code is a number, as in fp4 and fp6. Overflow saturates."}};

int usual_bias(int exponent_bits, Encoding encoding) {
  const int half = 1 << (exponent_bits - 1);
  return encoding == Encoding::fnuz ? half : half - 1;
}

/// Corrects the parts that other parts rule out.
FloatFormat corrected(FloatFormat format) {
  format.exponent_bits = std::clamp(format.exponent_bits, 1, 8);
  format.mantissa_bits = std::clamp(format.mantissa_bits, 0, 23);
  if (format.encoding != Encoding::finite) {
    format.exponent_bits = std::max(format.exponent_bits, 2);
  }
  BiasRange range = bias_range(format.exponent_bits, format.mantissa_bits, format.encoding);
  while (range.first > range.last && format.mantissa_bits > 0) {
    --format.mantissa_bits;
    range = bias_range(format.exponent_bits, format.mantissa_bits, format.encoding);
  }
  format.bias = std::clamp(format.bias, range.first, range.last);
  return format;
}

bool number_slider(const LabFrame& frame, const char* path, const char* name, int* value, int low,
                   int high, const char* tip) {
  ImGui::AlignTextToFramePadding();
  label(std::string(path) + "/label", fmt::format("{}: {}", name, *value), frame.fonts.text,
        frame.theme.ink, frame.px(140));
  ImGui::SameLine(frame.px(160));
  double at = *value;
  const bool changed = ui::slider(path, &at, low, high, "", frame.px(200));
  ui::tip(tip);
  if (!changed) return false;
  const int rounded = static_cast<int>(std::lround(at));
  const bool moved = rounded != *value;
  *value = rounded;
  return moved;
}

/// Draws the fields of a code, to scale.
void draw_layout(const LabFrame& frame, const FloatFormat& format, float width) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImFont* font = frame.fonts.small;
  const float cell = std::floor(std::min(width / static_cast<float>(format.bits()), frame.px(26)));
  const float height = frame.px(24);
  float x = at.x;
  const auto field = [&](int bits, const char* name, ImU32 color) {
    const float start = x;
    for (int i = 0; i < bits; ++i, x += cell) {
      list.AddRectFilled({x, at.y}, {x + cell - frame.px(2), at.y + height},
                         with_alpha(color, 0.7f), frame.px(3));
    }
    if (bits > 0 && x - start > text_width(font, name)) {
      list.AddText(font, font_size(*font), {start, at.y + height + frame.px(2)}, frame.theme.soft,
                   name);
    }
  };
  field(1, "", frame.sign_color());
  field(format.exponent_bits, "exponent", frame.exponent_color());
  field(format.mantissa_bits, "fraction", frame.fraction_color());
  ImGui::Dummy({x - at.x, height + font_size(*font) + frame.px(6)});
  track_item("lab/build/layout", fmt::format("{} bits", format.bits()));
}

void draw_facts(const LabFrame& frame, const FloatFormat& format) {
  const FormatFacts facts = lab::format_facts(format);
  const double smallest = format.flush_out ? facts.smallest_normal : facts.smallest;
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoSavedSettings;
  if (!ImGui::BeginTable("lab/build/facts", 2, kFlags)) return;
  ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed);
  ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
  const auto power = [](double value) {
    return fmt::format("{} = {}", power_text(std::log2(value)), brief_text(value, 5));
  };
  lab_fact(frame, "lab/build/largest", "largest", brief_text(facts.largest, 8),
           "The largest finite number.");
  lab_fact(frame, "lab/build/normal", "smallest normal", power(facts.smallest_normal),
           "The smallest number with all significant bits.");
  lab_fact(frame, "lab/build/smallest", "smallest",
           format.flush_out ? "subnormals become 0" : power(smallest),
           "The smallest positive number. Half of it becomes 0.");
  lab_fact(frame, "lab/build/epsilon", "epsilon", power(facts.epsilon),
           "The distance from 1 to the next number.");
  lab_fact(frame, "lab/build/digits", "precision",
           fmt::format("{} bits, {:.1f} decimal digits", format.mantissa_bits + 1,
                       (format.mantissa_bits + 1) * std::log10(2.0)));
  lab_fact(
      frame, "lab/build/values", "numbers",
      fmt::format("{} of {} codes{}", grouped(facts.values), grouped(int64_t{1} << format.bits()),
                  facts.nans > 0 ? fmt::format(", {} NaN", grouped(facts.nans)) : ""),
      "Different finite numbers. Both zeros count as one.");
  lab_fact(
      frame, "lab/build/range", "dynamic range",
      fmt::format("{:.1f} dB, {:.1f} powers of two", 20.0 * std::log10(facts.largest / smallest),
                  std::log2(facts.largest / smallest)),
      "From the smallest positive to the largest number: 20 log10 of their ratio.");
  ImGui::EndTable();
}

/// Draws where the ranges of known formats and of this one are, on a logarithmic axis.
void draw_ranges(const LabFrame& frame, const FloatFormat& format, float width, float height) {
  constexpr double kLow = -150.0, kHigh = 130.0;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImFont* font = frame.fonts.small;
  const float gutter = frame.px(96), line = font_size(*font) + frame.px(4);
  const float row = (height - line) / 5.0f;
  const auto x_of = [&](double exponent) {
    const double part = std::clamp((exponent - kLow) / (kHigh - kLow), 0.0, 1.0);
    return at.x + gutter + (width - gutter) * static_cast<float>(part);
  };
  list.AddRectFilled({at.x + gutter, at.y}, {at.x + width, at.y + height - line}, frame.theme.plot);
  for (const double power : {-126.0, -64.0, -24.0, 0.0, 16.0, 64.0, 127.0}) {
    list.AddLine({x_of(power), at.y}, {x_of(power), at.y + height - line}, frame.theme.grid);
    const std::string text = fmt::format("2^{:.0f}", power);
    const float half = text_width(font, text) / 2;
    lab_centered(font, std::min(x_of(power), at.x + width - half),
                 at.y + height - line + frame.px(2), frame.theme.soft, text);
  }
  const std::array<FloatFormat, 5> rows{format, kFp16, kBf16, kE4m3fn, kE5m2};
  for (size_t i = 0; i < rows.size(); ++i) {
    const float top = at.y + row * static_cast<float>(i);
    const float from = top + row * 0.25f, to = top + row * 0.75f;
    const float normal = x_of(std::log2(rows[i].min_normal()));
    if (!rows[i].flush_out) {
      list.AddRectFilled({x_of(std::log2(rows[i].min_subnormal())), from}, {normal, to},
                         with_alpha(frame.theme.subnormal, i == 0 ? 1.0f : 0.45f));
    }
    list.AddRectFilled({normal, from},
                       {std::max(x_of(std::log2(rows[i].max_finite())), normal + 2.0f), to},
                       with_alpha(frame.theme.in_range, i == 0 ? 1.0f : 0.45f));
    const std::string name = i == 0 ? "this format" : format_name(rows[i]);
    list.AddText(font, font_size(*font), {at.x, std::round(top + (row - font_size(*font)) / 2)},
                 i == 0 ? frame.theme.ink : frame.theme.soft, name.c_str());
  }
  ImGui::Dummy({width, height});
  track_item("lab/build/ranges", "5 formats");
}

void draw_line(const LabFrame& frame, const FloatFormat& format, const char* path, const char* name,
               double low, double high, float width, float height) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImFont* font = frame.fonts.small;
  const float gutter = frame.px(96), line = font_size(*font) + frame.px(4);
  const LineAxis axis{low, high, at.x + gutter, at.x + width};
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float bottom = at.y + height - line;
  list.AddRectFilled({axis.left, at.y}, {axis.right, bottom}, frame.theme.plot);
  draw_line_scale(frame, axis, at.y, bottom);
  list.PushClipRect({axis.left, at.y}, {axis.right, bottom}, true);
  draw_values(frame, axis, format, at.y + frame.px(6), bottom - frame.px(4));
  list.PopClipRect();
  list.AddText(font, font_size(*font), {at.x, std::round((at.y + bottom - font_size(*font)) / 2)},
               frame.theme.ink, name);
  ImGui::Dummy({width, height});
  track_item(path, fmt::format("{:g} to {:g}", low, high));
}

/// Draws the sliders and switches. Returns true if the format changed.
bool draw_parts(const LabFrame& frame, FloatFormat& format) {
  const FloatFormat before = format;
  const int least = format.encoding == Encoding::finite ? 1 : 2;
  if (number_slider(frame, "lab/build/exponent", "exponent bits", &format.exponent_bits, least, 8,
                    "More exponent bits: a larger range. The bias becomes the usual one.")) {
    format.bias = usual_bias(format.exponent_bits, format.encoding);
  }
  number_slider(frame, "lab/build/fraction", "fraction bits", &format.mantissa_bits, 0, 23,
                "More fraction bits: numbers are closer together.");
  const BiasRange range = bias_range(format.exponent_bits, format.mantissa_bits, format.encoding);
  if (range.first < range.last) {
    number_slider(frame, "lab/build/bias", "bias", &format.bias, range.first, range.last,
                  "A larger bias moves the whole range to smaller numbers. fp32 must be able to "
                  "represent all of them.");
  }
  for (const EncodingChoice& choice : kEncodings) {
    if (choice.encoding != kEncodings.front().encoding) {
      flow(text_width(frame.fonts.text, choice.name) + 2 * ImGui::GetStyle().FramePadding.x,
           frame.px(2));
    }
    if (ui::segment(fmt::format("lab/build/encoding/{}", static_cast<int>(choice.encoding)),
                    choice.name, format.encoding == choice.encoding)) {
      const bool usual = format.bias == usual_bias(format.exponent_bits, format.encoding);
      format.encoding = choice.encoding;
      if (usual) {
        const int bits =
            std::max(format.exponent_bits, choice.encoding == Encoding::finite ? 1 : 2);
        format.bias = usual_bias(bits, choice.encoding);
      }
    }
    ui::tip(choice.tip);
  }
  for (const auto& [path, name, on, tip] :
       {std::tuple{"lab/build/saturate", "saturate", &format.saturate,
                   "Overflow gives the largest number instead of infinity or NaN."},
        {"lab/build/flush_in", "flush inputs", &format.flush_in, "Subnormal operands count as 0."},
        {"lab/build/flush_out", "flush results", &format.flush_out,
         "Subnormal results become 0."}}) {
    if (on != &format.saturate)
      flow(text_width(frame.fonts.text, name) + frame.px(30), frame.px(12));
    ui::checkbox(path, name, on);
    ui::tip(tip);
  }
  format = corrected(format);
  return !(format == before);
}

}  // namespace

void draw_builder_tab(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  FloatFormat format = lab.shown();
  const float room = std::max(ImGui::GetContentRegionAvail().x, frame.px(380));
  const bool beside = room > frame.px(860);
  const float left = beside ? std::floor(room * 0.5f) : room;
  ImGui::BeginGroup();
  ImGui::PushFont(frame.fonts.large);
  ui::text("lab/build/name", format_name(format));
  ImGui::PopFont();
  ui::tip("You can type this name for any format, here and in the terminal.");
  ImGui::SameLine(0, frame.px(16));
  if (ui::button("lab/build/copy", "Copy name")) {
    ImGui::SetClipboardText(format_name(format).c_str());
  }
  flow(frame.px(200), frame.px(16));
  lab_format(frame);
  if (!(lab.shown() == format)) format = lab.shown();
  draw_layout(frame, format, left);
  if (draw_parts(frame, format)) lab.set_format(format);
  ImGui::EndGroup();
  if (beside) ImGui::SameLine(left + frame.px(20));
  ImGui::BeginGroup();
  draw_facts(frame, format);
  ImGui::EndGroup();
  ImGui::Dummy({0, frame.px(4)});
  const float height = lab_room(frame, 280, frame.px(4));
  const float ranges = std::floor(height * 0.46f);
  const float each = std::floor((height - ranges - 3.0f * ImGui::GetStyle().ItemSpacing.y) / 2.0f);
  draw_ranges(frame, format, room, ranges);
  draw_line(frame, format, "lab/build/line", "all numbers", -1.02 * format.max_finite(),
            1.02 * format.max_finite(), room, each);
  draw_line(frame, format, "lab/build/zero", "around 0", -format.min_normal() * 4.2,
            format.min_normal() * 4.2, room, each);
}

}  // namespace halfscope::gui
