// SPDX-License-Identifier: MIT
#include "gui/panels/plan_paint.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/rules/text.h"
#include "core/numeric/formats/float_format.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kChip = 40.0f, kBriefChip = 8.0f;  // widths at scale 1

int bits_of(const FloatFormat& format) noexcept {
  return 1 + format.exponent_bits + format.mantissa_bits;
}

bool same_formats(const NodeDecision& a, const NodeDecision& b) {
  return a.read == b.read && a.write == b.write && a.weights == b.weights;
}

std::string formats_text(const NodeDecision& decision) {
  return fmt::format("reads {} and writes {}", format_name(decision.read),
                     format_name(decision.write));
}

/// A pair of formats and how many layers have it.
struct KeyEntry {
  FloatFormat read, write;
  int layers = 0;
};

std::vector<KeyEntry> key_of(const Frame& frame, std::span<const int> layers) {
  std::vector<KeyEntry> entries;
  for (const int each : layers) {
    const NodeDecision* decision =
        decision_of(frame, frame.lane().layers[static_cast<size_t>(each)]);
    if (decision == nullptr) continue;
    const auto found = std::find_if(entries.begin(), entries.end(), [&](const KeyEntry& entry) {
      return entry.read == decision->read && entry.write == decision->write;
    });
    if (found == entries.end()) {
      entries.push_back({decision->read, decision->write, 1});
    } else {
      ++found->layers;
    }
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const KeyEntry& a, const KeyEntry& b) { return a.layers > b.layers; });
  return entries;
}

std::string key_tip(const KeyEntry& entry) {
  const std::string layers = counted(entry.layers, "layer");
  const bool one = entry.layers == 1;
  if (entry.read == entry.write) {
    return fmt::format("{} {} {}.\n{}", layers, one ? "reads and writes" : "read and write",
                       format_name(entry.read), format_facts(entry.read));
  }
  return fmt::format("{} {} {} and {} {}.\n{}\n{}", layers, one ? "reads" : "read",
                     format_name(entry.read), one ? "writes" : "write", format_name(entry.write),
                     format_facts(entry.read), format_facts(entry.write));
}

}  // namespace

ImU32 format_color(const Theme& theme, const FloatFormat& format) noexcept {
  const int bits = bits_of(format);
  if (bits > 19) return theme.formats[0];
  if (bits > 16) return theme.formats[1];
  if (bits > 8) return theme.formats[format.exponent_bits >= 8 ? 2 : 3];
  return theme.formats[bits == 8 ? 4 : 5];
}

std::string format_tag(const FloatFormat& format, bool brief) {
  const std::string name = format_name(format);
  if (!brief && name.size() <= 4) return name;
  if (!brief && bits_of(format) <= 8) return name.substr(0, 4);  // e4m3fn
  if (name == "tf32") return "t32";
  if (name == "bf16") return "b16";
  // "16*" is fp16 with another range.
  return std::to_string(bits_of(format)) + (name.size() > 4 && bits_of(format) > 8 ? "*" : "");
}

const NodeDecision* decision_of(const Frame& frame, const LayerModel& layer) {
  return layer.decision < 0 ? nullptr
                            : &frame.lane().decisions[static_cast<size_t>(layer.decision)];
}

std::string decision_text(const NodeDecision& decision) {
  std::string text =
      fmt::format("Reads {}, writes {}.", format_name(decision.read), format_name(decision.write));
  if (decision.weights) {
    text += fmt::format(" Its weights are stored in {}.", format_name(*decision.weights));
  }
  if (decision.follows && !decision.inputs.empty()) {
    text += fmt::format(" It follows its inputs: {}.", decision.inputs);
  }
  return text + "\nWhy: " + decision.why + "\nTo change it: " + decision.change;
}

const NodeDecision* differing_decision(const Frame& frame, const LayerModel& layer) {
  const int other = frame.at.other_lane;
  if (other < 0 || other == frame.at.lane) return nullptr;
  const NodeDecision* own = decision_of(frame, layer);
  const int twin = frame.run.find_layer(other, layer.path);
  if (own == nullptr || twin < 0) return nullptr;
  const LaneModel& lane = frame.run.lane(other);
  const int decision = lane.layers[static_cast<size_t>(twin)].decision;
  if (decision < 0) return nullptr;
  const NodeDecision& theirs = lane.decisions[static_cast<size_t>(decision)];
  return same_formats(*own, theirs) ? nullptr : &theirs;
}

std::string difference_text(const Frame& frame, const NodeDecision& other) {
  std::string text = fmt::format(
      "In lane {} it {}", frame.run.view().lane(frame.at.other_lane).name, formats_text(other));
  if (other.weights) text += fmt::format(", with weights in {}", format_name(*other.weights));
  return text + ".";
}

float format_chip_width(const Frame& frame, bool brief) noexcept {
  return (brief ? kBriefChip : kChip) * frame.scale;
}

float draw_format_chip(const Frame& frame, const FloatFormat& read, const FloatFormat& write,
                       float right, float middle, bool brief) {
  const Theme& theme = frame.theme;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  ImFont& font = *frame.fonts.small;
  const float left = right - format_chip_width(frame, brief), round = 3.0f * frame.scale;
  const float half = std::round(8.0f * frame.scale), edge = std::round(3.0f * frame.scale);
  const float center = std::round((left + right) / 2.0f);
  const auto part = [&](float from, float to, const FloatFormat& format, const std::string& tag,
                        ImDrawFlags corners) {
    const ImU32 color = format_color(theme, format);
    const ImVec2 min{from, middle - half}, max{to, middle + half};
    draw.AddRectFilled(min, max, brief ? color : mix(color, theme.card, 0.7), round, corners);
    if (brief) return;
    draw.AddRectFilled({from, max.y - edge}, max, color, round,
                       corners & ImDrawFlags_RoundCornersBottom);
    const ImVec2 size = text_size(font, tag);
    draw.PushClipRect(min, max, true);
    draw.AddText(
        &font, font_size(font),
        {std::round((from + to - size.x) / 2.0f), std::round(middle - size.y / 2.0f - edge / 2.0f)},
        theme.ink, tag.c_str());
    draw.PopClipRect();
  };
  if (read == write) {
    part(left, right, read, format_tag(read), ImDrawFlags_RoundCornersAll);
  } else {
    part(left, center - 0.5f, read, format_tag(read, true), ImDrawFlags_RoundCornersLeft);
    part(center + 0.5f, right, write, format_tag(write, true), ImDrawFlags_RoundCornersRight);
  }
  return left;
}

void draw_format_bar(const Frame& frame, const FloatFormat& read, const FloatFormat& write,
                     ImVec2 min, ImVec2 max) {
  Canvas canvas(frame.picture);
  const float middle = std::round((min.x + max.x) / 2.0f);
  canvas.fill(min, {middle, max.y}, format_color(frame.theme, read));
  canvas.fill({middle, min.y}, max, format_color(frame.theme, write));
}

void draw_format_key(const Frame& frame, std::span<const int> layers) {
  const std::vector<KeyEntry> entries = key_of(frame, layers);
  if (entries.empty()) return;
  const float scale = frame.scale, height = std::round(20.0f * scale);
  const float chip = format_chip_width(frame, false);
  bool first = true;
  for (const KeyEntry& entry : entries) {
    const std::string count = std::to_string(entry.layers);
    const float width = chip + 5.0f * scale + text_size(*frame.fonts.small, count).x;
    if (!first) flow(width, 8.0f * scale);
    first = false;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::Dummy({width, height});
    draw_format_chip(frame, entry.read, entry.write, at.x + chip, at.y + height / 2.0f, false);
    ImGui::GetWindowDrawList()->AddText(
        frame.fonts.small, font_size(*frame.fonts.small),
        {at.x + chip + 5.0f * scale, at.y + (height - font_size(*frame.fonts.small)) / 2.0f},
        frame.theme.soft, count.c_str());
    std::string path = "layers/formats/" + format_name(entry.read);
    if (entry.read != entry.write) path += "-" + format_name(entry.write);
    track_item(path, count);
    ui::tip(key_tip(entry).c_str());
  }
  const int other = frame.at.other_lane;
  if (other < 0 || other == frame.at.lane) return;
  const auto differing = std::count_if(layers.begin(), layers.end(), [&](int each) {
    return differing_decision(frame, frame.lane().layers[static_cast<size_t>(each)]) != nullptr;
  });
  const std::string& name = frame.run.view().lane(other).name;
  const std::string text =
      differing == 0
          ? fmt::format("Same formats as {}", name)
          : fmt::format("{} {} from {}", frame.fonts.unicode ? "\u2260" : "!=",
                        counted(differing, "layer") + (differing == 1 ? " differs" : " differ"),
                        name);
  label("layers/differing", text, frame.fonts.small,
        differing == 0 ? frame.theme.soft : frame.theme.warn);
}

}  // namespace halfscope::gui
