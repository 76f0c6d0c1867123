// SPDX-License-Identifier: MIT
// Blocks: values that share a scale, as bars to drag. A pale bar is the exact value, the solid one
// inside it what the block stores.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "analysis/rules/text.h"
#include "core/numeric/formats/codes.h"
#include "gui/lab/lab_tabs.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr double kLogBinades = 14.0;  ///< below the largest value on the logarithmic axis
constexpr size_t kValues = kMostBlockValues;

BlockFormat format_of(const BlocksState& blocks) {
  return parse_block_format(blocks.format).value_or(kMxfp4);
}

BlockView view_of(const BlocksState& blocks, const BlockFormat& format, BlockScaleRule rule) {
  std::optional<float> tensor;
  if (blocks.others > 0.0) {
    float most = 0.0f;
    for (const float x : blocks.values) most = std::max(most, std::fabs(x));
    tensor = most * static_cast<float>(std::exp2(blocks.others));
  }
  return view_block(blocks.values, format, rule, tensor);
}

void set_value(BlocksState& blocks, size_t i, float value) {
  blocks.values[i] = value;
  blocks.selected = static_cast<int>(i);
  blocks.entry = fmt::format("{:.4g}", static_cast<double>(value));
}

/// Bars and their axis in pixels.
struct BarChart {
  ImVec2 min{}, max{};
  double span = 1.0;
  bool logarithmic = false;
  float gap = 0.0f;  ///< between blocks
  size_t block = kValues;

  float middle() const { return (min.y + max.y) / 2; }
  float half() const { return (max.y - min.y) / 2; }
  float y(double value) const {
    if (std::isnan(value)) return middle();
    double part = std::fabs(value) / span;
    if (logarithmic && part > 0.0) part = std::max(0.0, 1.0 + std::log2(part) / kLogBinades);
    part = std::min(part, 1.0);
    return middle() - half() * static_cast<float>(std::copysign(part, value));
  }
  double value(float at) const {
    const double part = std::clamp(static_cast<double>((middle() - at) / half()), -1.0, 1.0);
    if (!logarithmic) return part * span;
    if (std::fabs(part) < 0.01) return 0.0;
    return std::copysign(span * std::exp2((std::fabs(part) - 1.0) * kLogBinades), part);
  }
  size_t blocks() const { return (kValues + block - 1) / block; }
  float slot() const {
    return (max.x - min.x - gap * static_cast<float>(blocks() - 1)) / static_cast<float>(kValues);
  }
  float left(size_t i) const {
    return min.x + slot() * static_cast<float>(i) + gap * static_cast<float>(i / block);
  }
  size_t at(float x) const {
    size_t found = 0;
    for (size_t i = 0; i < kValues; ++i) found = x >= left(i) ? i : found;
    return found;
  }
};

/// Draws the values that the elements of one block can have.
void draw_levels(const LabFrame& frame, const BarChart& chart, const BlockView& view,
                 const SharedScale& shared) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const FloatFormat& element = view.format.element;
  const double scale = static_cast<double>(shared.scale) * static_cast<double>(view.tensor_scale);
  const float from = chart.left(shared.first);
  const float to = chart.left(shared.first + shared.count - 1) + chart.slot();
  if (!std::isfinite(scale)) return;
  float last = chart.middle();
  for (uint32_t code = 1; code < (uint32_t{1} << (element.bits() - 1)); ++code) {
    const float level = decode(code, element);
    if (!std::isfinite(level)) break;
    const double value = static_cast<double>(level) * scale;
    const bool top = static_cast<double>(level) == element.max_finite();
    const float y = std::round(chart.y(value));
    if (y <= chart.min.y + 1.0f || (last - y < frame.px(3) && !top)) continue;
    last = y;
    const ImU32 color = top ? frame.theme.lost : frame.theme.grid;
    list.AddLine({from, y}, {to, y}, color, frame.scale);
    const float mirrored = std::round(chart.y(-value));
    list.AddLine({from, mirrored}, {to, mirrored}, color, frame.scale);
  }
}

void draw_bars(const LabFrame& frame, const BarChart& chart, const BlockView& view) {
  const Theme& theme = frame.theme;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float zero = chart.middle(), slot = chart.slot();
  for (size_t i = 0; i < kValues; ++i) {
    const BlockElement& element = view.elements[i];
    const float x = chart.left(i), center = x + slot / 2;
    if (static_cast<int>(i) == frame.lab.blocks.selected) {
      list.AddRectFilled({x, chart.min.y}, {x + slot, chart.max.y},
                         with_alpha(theme.selection, 0.55f));
    }
    const double exact = static_cast<double>(element.input);
    const double stored = static_cast<double>(element.value);
    const auto bar = [&](double value, float width, ImU32 color) {
      const float y = chart.y(value);
      list.AddRectFilled({std::round(center - slot * width), std::min(y, zero)},
                         {std::round(center + slot * width), std::max(y, zero)}, color);
    };
    const ImU32 color = element.clipped ? theme.lost : theme.in_range;
    bar(exact, 0.42f, with_alpha(color, 0.38f));
    bar(stored, 0.22f, color);
    if (element.value != 0.0f) {
      const float y = std::round(chart.y(stored));
      list.AddLine({x + slot * 0.08f, y}, {x + slot * 0.92f, y}, theme.ink, frame.px(1.5f));
    }
    // Marks differ in shape, too.
    const float size = std::min(slot * 0.3f, frame.px(5));
    const float sign = std::signbit(element.input) ? -1.0f : 1.0f;
    if (element.clipped) {
      const float tip = chart.y(exact) - sign * frame.px(9);
      const float base = tip + sign * size * 1.5f;
      if (sign > 0.0f) {
        list.AddTriangleFilled({center, tip}, {center + size, base}, {center - size, base},
                               theme.lost);
      } else {
        list.AddTriangleFilled({center, tip}, {center - size, base}, {center + size, base},
                               theme.lost);
      }
    } else if (element.flushed) {
      list.AddCircle({center, zero}, size, theme.subnormal, 0, frame.px(2));
    }
    track_rect(fmt::format("lab/blocks/bar/{}", i), {x, chart.min.y}, {x + slot, chart.max.y},
               fmt::format("{} {}", value_text(element.value, kFp32),
                           element.clipped   ? "clipped"
                           : element.flushed ? "flushed"
                                             : ""));
  }
  list.AddLine({chart.min.x, zero}, {chart.max.x, zero}, theme.axis, frame.scale);
}

void draw_axis(const LabFrame& frame, const BarChart& chart) {
  ImFont* font = frame.fonts.small;
  std::vector<double> ticks{0.0};
  const double decade = std::pow(10.0, std::floor(std::log10(chart.span)));
  if (chart.logarithmic) {
    for (double tick = decade; chart.span / tick < std::exp2(kLogBinades); tick /= 10.0) {
      ticks.push_back(tick);
    }
  } else {
    const double step = decade * (chart.span < 2.0 * decade   ? 0.5
                                  : chart.span < 5.0 * decade ? 1
                                                              : 2);
    for (double tick = step; tick <= chart.span; tick += step) ticks.push_back(tick);
  }
  const size_t positive = ticks.size();
  for (size_t i = 1; i < positive; ++i) ticks.push_back(-ticks[i]);
  for (const double tick : ticks) {
    const float y = chart.y(tick);
    const std::string text = fmt::format("{:.3g}", tick);
    const float place =
        std::clamp(y - font_size(*font) / 2, chart.min.y, chart.max.y - font_size(*font));
    ImGui::GetWindowDrawList()->AddText(
        font, font_size(*font),
        {chart.min.x - frame.px(6) - text_width(font, text), std::round(place)}, frame.theme.soft,
        text.c_str());
  }
}

/// Draws the scales below their values: one box per block, and for nvfp4 one for the tensor.
float draw_scales(const LabFrame& frame, const BarChart& chart, const BlockView& view) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* font = frame.fonts.small;
  const float height = std::round(font_size(*font) + frame.px(8));
  const bool two = view.format.scale == ScaleKind::e4m3fn_and_fp32;
  float y = chart.max.y + frame.px(5);
  const auto box = [&](const std::string& path, float from, float to, const std::string& text,
                       ImU32 color) {
    list.AddRectFilled({from, y}, {to, y + height}, with_alpha(color, 0.18f), frame.px(3));
    list.AddRect({from, y}, {to, y + height}, color, frame.px(3), 0, frame.scale);
    lab_centered(font, (from + to) / 2, y + frame.px(3), frame.theme.ink,
                 fitted(text, font, to - from - frame.px(6)));
    track_rect(path, {from, y}, {to, y + height}, text);
  };
  for (size_t i = 0; i < view.scales.size(); ++i) {
    const SharedScale& shared = view.scales[i];
    const float from = chart.left(shared.first);
    const float to = chart.left(shared.first + shared.count - 1) + chart.slot();
    const std::string text = two ? fmt::format("block scale {} (e4m3fn 0x{:02x})",
                                               value_text(shared.scale, kFp32), shared.code)
                                 : fmt::format("shared scale 2^{} = {} (ue8m0 0x{:02x})",
                                               static_cast<int>(shared.code) - 127,
                                               value_text(shared.scale, kFp32), shared.code);
    box(fmt::format("lab/blocks/scale/{}", i), from, to, text, frame.exponent_color());
  }
  y += height + frame.px(4);
  if (two) {
    box("lab/blocks/tensor_scale", chart.min.x, chart.max.x,
        fmt::format("tensor scale {} (fp32): all blocks of the tensor share it",
                    brief_text(static_cast<double>(view.tensor_scale))),
        frame.sign_color());
    y += height + frame.px(4);
  }
  return y;
}

float scales_height(const LabFrame& frame, bool two) {
  const float row = std::round(font_size(*frame.fonts.small) + frame.px(12));
  return frame.px(5) + (two ? 2.0f : 1.0f) * row;
}

/// Sets the bar below the pointer to the pointer's height.
void edit_bars(const LabFrame& frame, const BarChart& chart) {
  BlocksState& blocks = frame.lab.blocks;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  if (!ImGui::IsItemActive()) {
    float most = 0.0f;
    for (const float x : blocks.values) {
      if (std::isfinite(x)) most = std::max(most, std::fabs(x));
    }
    blocks.span = most > 0.0f ? std::min(most * 1.15f, std::numeric_limits<float>::max()) : 1.0f;
    return;
  }
  const double raw = chart.value(mouse.y);
  // Three digits: nobody aims better with a mouse.
  const double unit = raw == 0.0 ? 1.0 : std::pow(10.0, std::floor(std::log10(std::fabs(raw))) - 2);
  set_value(blocks, chart.at(mouse.x), static_cast<float>(std::round(raw / unit) * unit));
}

void draw_controls(const LabFrame& frame, const BlockFormat& format) {
  BlocksState& blocks = frame.lab.blocks;
  if (ui::begin_combo("lab/blocks/format", blocks.format.c_str(), frame.px(130))) {
    for (const std::string& name : viewed_block_formats()) {
      if (ui::selectable("lab/blocks/format/" + name, name.c_str(), blocks.format == name)) {
        blocks.format = name;
      }
    }
    ImGui::EndCombo();
  }
  const bool two = format.scale == ScaleKind::e4m3fn_and_fp32;
  if (two) {
    flow(frame.px(300), frame.px(16));
    ImGui::AlignTextToFramePadding();
    label("lab/blocks/others/text",
          blocks.others == 0.0 ? "largest of the tensor: here"
                               : fmt::format("largest of the tensor: {} times larger",
                                             brief_text(std::exp2(blocks.others), 3)),
          frame.fonts.text, frame.theme.soft, frame.px(230));
    ImGui::SameLine(0, frame.px(6));
    if (ui::slider("lab/blocks/others", &blocks.others, 0.0, 24.0, "", frame.px(110))) {
      blocks.others = std::round(blocks.others);
    }
  } else {
    constexpr std::array<const char*, 3> kTips{
        "OCP MX: the power of two below the largest value. The largest may be clipped.",
        "torchao's EVEN mode: the largest value is first rounded to the element's precision.",
        "The smallest power of two that clips nothing."};
    for (const BlockScaleRule rule : kAllBlockScaleRules) {
      const std::string name(block_scale_rule_name(rule));
      const bool first = rule == BlockScaleRule::floor;
      flow(text_width(frame.fonts.text, name) + 2 * ImGui::GetStyle().FramePadding.x,
           frame.px(first ? 16 : 2));
      if (ui::segment("lab/blocks/rule/" + name, name.c_str(), blocks.rule == rule)) {
        blocks.rule = rule;
      }
      ui::tip(kTips[static_cast<size_t>(rule)]);
    }
  }
  float gap = frame.px(16);
  for (const BlockExample example : kAllBlockExamples) {
    const char* name = block_example_name(example);
    flow(text_width(frame.fonts.text, name) + 2 * ImGui::GetStyle().FramePadding.x, gap);
    gap = frame.px(4);
    if (ui::button(fmt::format("lab/blocks/example/{}", static_cast<int>(example)), name)) {
      blocks.values = block_example(example);
      set_value(blocks, static_cast<size_t>(blocks.selected),
                blocks.values[static_cast<size_t>(blocks.selected)]);
    }
    ui::tip("Replaces all 32 values.");
  }
  flow(frame.px(110), frame.px(16));
  ui::checkbox("lab/blocks/log", "log axis", &blocks.logarithmic);
}

/// Draws the selected value's way: divided, rounded to a code, multiplied.
void draw_selected(const LabFrame& frame, const BlockView& view, float width) {
  BlocksState& blocks = frame.lab.blocks;
  const size_t i = static_cast<size_t>(blocks.selected);
  const BlockElement& element = view.elements[i];
  const FloatFormat& format = view.format.element;
  const SharedScale& shared = view.scales[i / static_cast<size_t>(view.format.block_size)];
  if (lab_field(frame, "lab/blocks/value", fmt::format("value {}", i).c_str(), &blocks.entry,
                frame.px(90), 0)) {
    const std::optional<double> typed = read_double(blocks.entry);
    if (typed) blocks.values[i] = static_cast<float>(*typed);
  }
  for (const auto& [path, name, factor] : {std::tuple{"lab/blocks/double", "\u00d7 2", 2.0f},
                                           {"lab/blocks/halve", "/ 2", 0.5f},
                                           {"lab/blocks/negate", "+/-", -1.0f}}) {
    if (lab_button(frame, path, name)) set_value(blocks, i, blocks.values[i] * factor);
  }
  const double scale = static_cast<double>(shared.scale) * static_cast<double>(view.tensor_scale);
  std::string text = fmt::format(
      "{} / {} = {}  \u00bb  {} {} ({})  \u00bb  {} \u00d7 {} = {}",
      brief_text(static_cast<double>(element.input)), brief_text(scale), brief_text(element.scaled),
      format_name(format), brief_text(static_cast<double>(element.element)),
      code_text(element.code, format), brief_text(static_cast<double>(element.element)),
      brief_text(scale), brief_text(static_cast<double>(element.value)));
  lab_sentence("lab/blocks/way", text, frame.theme.ink, width);
  const double share =
      element.input == 0.0f ? 0.0 : std::fabs(element.error / static_cast<double>(element.input));
  text = element.error == 0.0 ? "stored exactly"
                              : fmt::format("error {} ({})", brief_text(element.error, 3),
                                            std::isfinite(share) ? percent(share) : "NaN");
  if (element.clipped) text += ", clipped to the largest element";
  if (element.flushed) text += ", flushed to zero";
  const bool lost = element.clipped || element.flushed;
  lab_sentence("lab/blocks/error", text, lost ? frame.theme.lost : frame.theme.soft, width);
  lab_sentence("lab/blocks/reason",
               scale_reason(view, i / static_cast<size_t>(view.format.block_size)),
               frame.theme.soft, width);
}

/// Draws the error of the same values in every format, under every rule.
void draw_comparison(const LabFrame& frame) {
  BlocksState& blocks = frame.lab.blocks;
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_RowBg | ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoSavedSettings;
  if (!ImGui::BeginTable("lab/blocks/all", 5, kFlags)) return;
  for (const char* name : {"error of all values", "bits", "floor", "nearest", "ceil"}) {
    ImGui::TableSetupColumn(name, ImGuiTableColumnFlags_WidthFixed);
  }
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ImGui::TableHeadersRow();
  ImGui::PopStyleColor();
  for (const std::string& name : viewed_block_formats()) {
    const BlockFormat format = parse_block_format(name).value_or(kMxfp4);
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    const std::string path = "lab/blocks/all/" + name;
    if (ui::selectable(path, name.c_str(), blocks.format == name, {0, 0}, kLabRow)) {
      blocks.format = name;
    }
    ui::tip("Root mean square of all errors, as a share of the values. Click to select.");
    ImGui::TableNextColumn();
    ImGui::TextUnformatted(fmt::format("{:.4g}", format.bits_per_element()).c_str());
    for (const BlockScaleRule rule : kAllBlockScaleRules) {
      ImGui::TableNextColumn();
      if (format.scale != ScaleKind::ue8m0 && rule != BlockScaleRule::floor) continue;
      const BlockView view = view_of(blocks, format, rule);
      const bool used = rule == blocks.rule || format.scale != ScaleKind::ue8m0;
      ImGui::PushStyleColor(ImGuiCol_Text, used ? frame.theme.ink : frame.theme.soft);
      ui::text(fmt::format("{}/{}", path, block_scale_rule_name(rule)),
               view.rms_input > 0.0 && std::isfinite(view.rms_error)
                   ? percent(view.rms_error / view.rms_input)
                   : "-");
      ImGui::PopStyleColor();
    }
  }
  ImGui::EndTable();
}

}  // namespace

void draw_blocks_tab(const LabFrame& frame) {
  BlocksState& blocks = frame.lab.blocks;
  const BlockFormat format = format_of(blocks);
  const bool two = format.scale == ScaleKind::e4m3fn_and_fp32;
  draw_controls(frame, format);
  const BlockView view = view_of(blocks, format, blocks.rule);

  const float width = std::max(ImGui::GetContentRegionAvail().x, frame.px(320));
  const bool beside = width > frame.px(820);
  const float text = font_size(*frame.fonts.text) + frame.px(5);
  const float below =
      scales_height(frame, two) + frame.px(26) + text * (beside ? (two ? 9.0f : 8.0f) : 16.0f);
  const float height = lab_room(frame, 150, below);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  BarChart chart{.min = {at.x + frame.px(56), at.y},
                 .max = {at.x + width, at.y + height},
                 .span = static_cast<double>(blocks.span > 0.0f ? blocks.span : 1.0f),
                 .logarithmic = blocks.logarithmic,
                 .gap = frame.px(14),
                 .block = static_cast<size_t>(format.block_size)};
  ImGui::SetCursorScreenPos(chart.min);
  ImGui::InvisibleButton("##bars", {chart.max.x - chart.min.x, height});
  int clipped = 0, flushed = 0;
  for (const SharedScale& shared : view.scales) {
    clipped += shared.clipped;
    flushed += shared.flushed;
  }
  track_item("lab/blocks/chart", fmt::format("{} clipped, {} flushed", clipped, flushed));
  edit_bars(frame, chart);
  chart.span = static_cast<double>(blocks.span);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.AddRectFilled(chart.min, chart.max, frame.theme.plot);
  list.PushClipRect(chart.min, chart.max, true);
  for (const SharedScale& shared : view.scales) draw_levels(frame, chart, view, shared);
  draw_bars(frame, chart, view);
  list.PopClipRect();
  draw_axis(frame, chart);
  const float end = draw_scales(frame, chart, view);
  ImGui::SetCursorScreenPos({at.x, end});
  ImGui::Dummy({width, 0});
  label("lab/blocks/key",
        fmt::format("Pale: exact. Solid: stored. Lines: what an element can store; orange: the "
                    "largest. Triangle: clipped ({}). Ring: flushed to zero ({}).",
                    clipped, flushed),
        frame.fonts.small, frame.theme.soft);
  const float left = beside ? width - frame.px(400) : width;
  ImGui::BeginGroup();
  draw_selected(frame, view, left);
  ImGui::EndGroup();
  if (beside) ImGui::SameLine(left + frame.px(20));
  ImGui::BeginGroup();
  draw_comparison(frame);
  ImGui::EndGroup();
}

}  // namespace halfscope::gui
