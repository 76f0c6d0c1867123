// SPDX-License-Identifier: MIT
// The list of layers: choices of lane and tensors, and a bar of losses for every layer.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "analysis/rules/text.h"
#include "analysis/what_if.h"
#include "gui/panels/layer_lines.h"
#include "gui/panels/plan_paint.h"
#include "gui/panels/spectrum.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kIndent = 12.0f;  ///< of a layer in a group

float line_height(const Frame& frame) { return ImGui::GetTextLineHeight() + 6 * frame.scale; }

void draw_lane_choice(const Frame& frame) {
  const RunView& run = frame.run.view();
  const std::string& name = frame.lane_info().name;
  if (ui::begin_combo("layers/lane", name.c_str(), -1)) {
    for (int lane = 0; lane < run.lane_count(); ++lane) {
      const std::string& each = run.lane(lane).name;
      if (ui::selectable("layers/lane/" + each, each.c_str(), lane == frame.at.lane)) {
        frame.view.lane = each;
      }
    }
    ImGui::EndCombo();
  } else {
    ui::tip("Lane: one training run under one precision plan.");
  }
}

void draw_role_choice(const Frame& frame) {
  struct Choice {
    RoleView role;
    const char *sign, *plain, *tip;
  };
  static constexpr Choice kChoices[] = {
      {RoleView::all, "All", "All", "All recorded tensors"},
      {RoleView::weights, "W", "W", "Weights"},
      {RoleView::activations, "A", "A", "Activations: outputs of the forward pass"},
      {RoleView::gradients, "\u2207", "Grad", "Gradients of activations and weights"},
      {RoleView::updates, "\u0394", "Upd", "Updates: the values added to the weights"}};
  const float gap = 3 * frame.scale;
  for (const Choice& choice : kChoices) {
    const char* label = frame.fonts.unicode ? choice.sign : choice.plain;
    if (choice.role != RoleView::all) ImGui::SameLine(0, gap);
    if (ui::segment(fmt::format("layers/role/{}", role_view_name(choice.role)), label,
                    frame.view.role == choice.role)) {
      frame.view.role = choice.role;
      frame.view.site.clear();  // the worst one of the role
    }
    ui::tip(choice.tip);
  }
}

void draw_row_menu(const Frame& frame, const LayerModel& layer, const std::string& path) {
  if (!ImGui::BeginPopupContextItem()) return;
  const bool kept = frame.view.edits.keeps(layer.path);
  const bool offered = kept || can_keep_in_fp32(frame.lane_info(), layer.info);
  if (offered && ui::menu_item(path + "/keep", "Keep in fp32 (what if)", nullptr, kept)) {
    frame.view.edits.keep(layer.path, !kept);
  }
  if (ui::menu_item(path + "/isolate", "Show only this layer")) frame.view.filter = layer.path;
  if (ui::menu_item(path + "/copy", "Copy name")) frame.ask(Request::Kind::copy, layer.path);
  ImGui::EndPopup();
}

/// Draws the formats of a layer left of `right`, and a mark if the other lane has different ones.
/// Returns where they begin.
float draw_formats(const Frame& frame, const LayerModel& layer, const std::string& path,
                   float right, float middle) {
  const NodeDecision* decision = decision_of(frame, layer);
  const bool brief = ImGui::GetContentRegionAvail().x < 190 * frame.scale;
  if (decision == nullptr) return right - format_chip_width(frame, brief);
  float left = draw_format_chip(frame, decision->read, decision->write, right, middle, brief);
  const std::string formats = format_name(decision->read) + " " + format_name(decision->write);
  const bool differs = differing_decision(frame, layer) != nullptr;
  if (tracker() != nullptr) {
    track_rect(path + "/formats", {left, middle - 8 * frame.scale},
               {right, middle + 8 * frame.scale}, formats + (differs ? " differs" : ""));
  }
  if (!differs) return left;
  const char* sign = frame.fonts.unicode ? "\u2260" : "!=";
  const ImVec2 size = text_size(*frame.fonts.bold, sign);
  left -= size.x + 4 * frame.scale;
  ImGui::GetWindowDrawList()->AddText(frame.fonts.bold, font_size(*frame.fonts.bold),
                                      {left, middle - size.y / 2}, frame.theme.warn, sign);
  return left;
}

/// Returns a path without its first letters, or all of it if nothing would be left.
std::string name_after(const std::string& path, size_t prefix) {
  return prefix < path.size() ? path.substr(prefix) : path;
}

/// Draws the bar of a line's rate left of `right`, striped for NaN and infinities. Returns where it
/// begins.
float draw_share(const Frame& frame, const LayerLine& line, float right, float width,
                 float middle) {
  const float scale = frame.scale, left = right - width;
  const float top = middle - 4 * scale, bottom = middle + 4 * scale;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled({left, top}, {right, bottom}, frame.theme.grid, 2 * scale);
  if (line.share > 0.0) {
    const double level = std::max(0.02, heat_level(heat_of(line.share)));
    draw.AddRectFilled({left, top}, {left + width * static_cast<float>(level), bottom},
                       heat_color(0.35 + 0.6 * level), 2 * scale);
  }
  if (line.non_finite) {
    draw.PushClipRect({left, top}, {right, bottom}, true);
    for (float x = left - 8 * scale; x < right; x += 6 * scale) {
      draw.AddLine({x, bottom}, {x + 8 * scale, top}, frame.theme.faint, 1.5f * scale);
    }
    draw.PopClipRect();
  }
  return left;
}

constexpr const char* kStriped = "\nStriped: contains NaN or Inf, created here or passed on.";

/// Returns what the head of a group stands for, its worst layer, and what a click does.
std::string head_text(const Frame& frame, const LayerLine& line) {
  const LayerModel& worst = frame.lane().layers[static_cast<size_t>(line.worst)];
  return fmt::format("{}: {}\n{}: at most {} {}\nWorst layer: {}{}\nClick to {}.", line.group,
                     counted(static_cast<int64_t>(line.layers.size()), "layer"),
                     metric_name(frame.view.metric), percent(line.share),
                     metric_whole(frame.view.metric), worst.path, line.non_finite ? kStriped : "",
                     line.open ? "fold" : "open");
}

/// Draws the head of a group, with the worst of its layers. A click folds or opens it.
void draw_head(const Frame& frame, const LayerLine& line) {
  const Theme& theme = frame.theme;
  const float scale = frame.scale, height = line_height(frame);
  const ImVec2 start = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const std::string path = "layers/group/" + line.group;
  if (ui::selectable(path, "##group", line.stands_for(frame.at.layer), {width, height})) {
    line.open ? fold_group(frame.view, line.group) : open_group(frame.view, line.group);
  }
  if (ImGui::IsItemHovered()) ui::tip(head_text(frame, line).c_str());
  const float middle = start.y + height / 2, bar = std::min(48 * scale, width * 0.25f);
  const float bar_left = draw_share(frame, line, start.x + width - 4 * scale, bar, middle);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float indent = start.x + static_cast<float>(line.depth) * kIndent * scale;
  if (line.severity) {
    draw_severity(draw, {indent + 8 * scale, middle}, 3.5f * scale, *line.severity,
                  theme.severity(*line.severity));
  }
  const char* sign = !frame.fonts.unicode ? (line.open ? "- " : "+ ")
                     : line.open          ? "\u25be "
                                          : "\u25b8 ";
  const float text_left = indent + 18 * scale;
  draw.PushClipRect({text_left, start.y}, {bar_left - 4 * scale, start.y + height}, true);
  draw.AddText({text_left, start.y + 3 * scale}, theme.soft,
               (sign + name_after(line.group, line.prefix)).c_str());
  draw.PopClipRect();
}

void draw_row(const Frame& frame, const LayerLine& line) {
  const Theme& theme = frame.theme;
  const int index = line.layers[0];
  const LayerModel& layer = frame.lane().layers[static_cast<size_t>(index)];
  const float scale = frame.scale, height = line_height(frame);
  const ImVec2 start = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const std::string path = "layers/row/" + layer.path;
  if (ui::selectable(path, "##row", index == frame.at.layer, {width, height})) {
    frame.select_layer(index);
  }
  const bool hovered = ImGui::IsItemHovered();
  if (hovered) frame.view.hovered_layer = layer.path;
  draw_row_menu(frame, layer, path);

  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 end{start.x + width, start.y + height};
  if (!hovered && frame.view.lit_layer == layer.path && index != frame.at.layer) {
    draw.AddRectFilled(start, end, with_alpha(theme.accent, 0.12f), 3 * scale);
  }
  const float middle = (start.y + end.y) / 2, mark = 3.5f * scale;
  const float indent = start.x + static_cast<float>(line.depth) * kIndent * scale;
  if (layer.severity) {
    draw_severity(draw, {indent + 8 * scale, middle}, mark, *layer.severity,
                  theme.severity(*layer.severity));
  }
  const int site =
      frame.run.worst_site(frame.at.lane, index, frame.view.role, frame.view.metric, -1);
  const float bar_width = std::min(48 * scale, width * 0.25f);
  const float bar_left = end.x - bar_width - 4 * scale, text_left = indent + 18 * scale;
  const bool kept = frame.view.edits.keeps(layer.path);
  const float text_right = draw_formats(frame, layer, path, bar_left - 6 * scale, middle);
  draw.PushClipRect({text_left, start.y}, {text_right - 4 * scale, end.y}, true);
  draw.AddText({text_left, start.y + 3 * scale}, kept ? theme.good : theme.ink,
               (name_after(layer.path, line.prefix) + (kept ? "  fp32" : "")).c_str());
  draw.PopClipRect();
  draw_share(frame, line, bar_left + bar_width, bar_width, middle);
  if (hovered) {
    std::string tip = fmt::format("{}  ({})", layer.path, layer.op);
    if (const NodeDecision* decision = decision_of(frame, layer))
      tip += "\n" + decision_text(*decision);
    if (const NodeDecision* other = differing_decision(frame, layer))
      tip += "\n" + difference_text(frame, *other);
    if (site >= 0) {
      tip += fmt::format(
          "\n{} {} {} in {}, whole run\nThe bar is logarithmic, from one in a million to all.{}",
          metric_name(frame.view.metric), percent(line.share), metric_whole(frame.view.metric),
          frame.lane_info().sites[static_cast<size_t>(site)].tensor,
          line.non_finite ? kStriped : "");
    }
    if (frame.run.report() != nullptr) {
      for (const int finding : layer.findings) {
        tip += "\n- " + frame.run.report()->findings[static_cast<size_t>(finding)].mechanism;
      }
    }
    ui::tip(tip.c_str());
  }
}

/// Folds and opens groups by arrow keys while the list has the keyboard.
void steer_groups(const Frame& frame) {
  const ImGuiIO& io = ImGui::GetIO();
  if (!ImGui::IsWindowFocused() || io.WantTextInput || io.KeyAlt || io.KeyCtrl || io.KeyShift) {
    return;
  }
  if (named_key_pressed(ImGuiKey_LeftArrow)) fold_around_layer(frame, frame.at.layer);
  if (named_key_pressed(ImGuiKey_RightArrow)) open_around_layer(frame, frame.at.layer);
}

/// The layer that was selected in the last frame.
struct ListedLayer {
  int layer = -1;
};

/// Scrolls to a layer that was just selected in any panel.
void follow_selection(const Frame& frame, const std::vector<LayerLine>& lines) {
  if (std::exchange(frame.caches.get<ListedLayer>().layer, frame.at.layer) == frame.at.layer)
    return;
  const auto line = std::find_if(lines.begin(), lines.end(), [&](const LayerLine& each) {
    return each.stands_for(frame.at.layer);
  });
  if (line == lines.end()) return;
  const float height = line_height(frame), room = ImGui::GetWindowHeight();
  const float top = static_cast<float>(line - lines.begin()) * height, scroll = ImGui::GetScrollY();
  if (top < scroll || top + height > scroll + room) ImGui::SetScrollY(top - (room - height) / 2);
}

/// Returns "3 of 21, worst 38%": the layers that the filter found, and the worst rate in them.
std::string found_text(const Frame& frame, const std::vector<int>& rows) {
  double most = 0.0;
  for (const int layer : rows) {
    most = std::max(
        most, frame.run.worst_share(frame.at.lane, layer, frame.view.role, frame.view.metric));
  }
  std::string text = fmt::format("{} of {}", rows.size(), frame.lane().layers.size());
  if (most > 0.0) text += ", worst " + percent(most);
  return text;
}

}  // namespace

void draw_layers(const Frame& frame) {
  draw_lane_choice(frame);
  draw_role_choice(frame);
  if (frame.focus_filter) ImGui::SetKeyboardFocusHere();
  ui::input_text("layers/filter", "filter layers (Ctrl+F)", &frame.view.filter, -1);
  const std::vector<int> rows = frame.visible_layers();
  struct Choice {
    LayerOrder order;
    const char *name, *tip;
  };
  static constexpr Choice kOrders[] = {
      {LayerOrder::execution, "in order", "Execution order"},
      {LayerOrder::severity, "worst first", "Most severe findings first"},
      {LayerOrder::name, "by name", "Alphabetical order"}};
  const auto current = std::find_if(std::begin(kOrders), std::end(kOrders),
                                    [&](const Choice& c) { return c.order == frame.view.order; });
  ImGui::AlignTextToFramePadding();
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  const size_t layers = frame.lane().layers.size();
  ui::text("layers/count", rows.size() == layers ? counted(static_cast<int64_t>(layers), "layer")
                                                 : found_text(frame, rows));
  ImGui::PopStyleColor();
  ImGui::SameLine();
  const float combo = std::min(110 * frame.scale, ImGui::GetContentRegionAvail().x);
  ImGui::SetCursorPosX(ImGui::GetContentRegionMax().x - combo);
  if (ui::begin_combo("layers/order", current->name, combo)) {
    for (const Choice& choice : kOrders) {
      if (ui::selectable(fmt::format("layers/order/{}", choice.name), choice.name,
                         choice.order == frame.view.order)) {
        frame.view.order = choice.order;
      }
      ui::tip(choice.tip);
    }
    ImGui::EndCombo();
  }
  draw_format_key(frame, rows);
  if (rows.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
    ui::text_wrapped("layers/empty", frame.view.filter.empty()
                                         ? "No tensor of this kind was recorded."
                                         : "No layer matches the filter.");
    ImGui::PopStyleColor();
    return;
  }
  ImGui::PushStyleColor(ImGuiCol_ChildBg, 0);
  ImGui::BeginChild("rows", {0, 0}, false);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2{0, 0});
  const std::vector<LayerLine>& lines = layer_lines(frame);
  follow_selection(frame, lines);
  steer_groups(frame);
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(lines.size()), line_height(frame));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const LayerLine& line = lines[static_cast<size_t>(i)];
      line.is_head() ? draw_head(frame, line) : draw_row(frame, line);
    }
  }
  ImGui::PopStyleVar();
  ImGui::EndChild();
  ImGui::PopStyleColor();
}

}  // namespace halfscope::gui
