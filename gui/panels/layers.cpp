// SPDX-License-Identifier: MIT
// The list of layers: choices of lane and tensors, and a bar of losses for every layer.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/rules/text.h"
#include "analysis/run_rates.h"
#include "analysis/spectrum/groups.h"
#include "analysis/what_if.h"
#include "gui/panels/plan_paint.h"
#include "gui/panels/spectrum.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

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

/// Returns whether a tensor of the selected role has NaN or infinities anywhere in the run.
bool has_non_finite(const Frame& frame, const LayerModel& layer) {
  return std::any_of(layer.sites.begin(), layer.sites.end(), [&](int site) {
    const SiteInfo& info = frame.lane_info().sites[static_cast<size_t>(site)];
    return shows(frame.view.role, info.role) &&
           run_rates(frame.run.view(), frame.at.lane, site).non_finite() > 0.0;
  });
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

/// A line of the list: a layer, or the head of a group of layers.
struct ListLine {
  std::string group{};  ///< path of a head; "" of a layer
  std::vector<int> layers{};
  int depth = 0;
  bool open = true;   ///< of a head
  size_t prefix = 0;  ///< letters of the path that its group says already
};

/// Returns a path without its first letters, or all of it if nothing would be left.
std::string name_after(const std::string& path, size_t prefix) {
  return prefix < path.size() ? path.substr(prefix) : path;
}

/// Returns the lines in order of execution, with a head before every group.
std::vector<ListLine> tree_of(const Frame& frame, const std::vector<int>& rows) {
  std::vector<std::string> paths;
  for (const int row : rows) paths.push_back(frame.lane().layers[static_cast<size_t>(row)].path);
  std::vector<ListLine> lines;
  std::vector<std::string> around;
  const auto prefix_of = [](const std::vector<std::string>& groups) {
    return groups.empty() ? size_t{0} : groups.back().size() + 1;
  };
  for (const LayerRow& row :
       fold_layers(paths, paths.size(), frame.view.opened, frame.view.closed)) {
    std::vector<int> layers;
    for (const int layer : row.layers) layers.push_back(rows[static_cast<size_t>(layer)]);
    size_t same = 0;
    while (same < std::min(around.size(), row.groups.size()) && around[same] == row.groups[same]) {
      ++same;
    }
    around.resize(same);
    for (; same < row.groups.size(); ++same) {
      const size_t prefix = prefix_of(around);
      lines.push_back(
          {.group = row.groups[same], .depth = static_cast<int>(same), .prefix = prefix});
      around.push_back(row.groups[same]);
    }
    lines.push_back({.group = row.folded ? row.name : "",
                     .layers = std::move(layers),
                     .depth = static_cast<int>(row.groups.size()),
                     .open = false,
                     .prefix = prefix_of(row.groups)});
  }
  // A head stands for all lines below it that are deeper.
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].open) continue;
    for (size_t j = i + 1; j < lines.size() && lines[j].depth > lines[i].depth; ++j) {
      if (lines[j].open) continue;
      lines[i].layers.insert(lines[i].layers.end(), lines[j].layers.begin(), lines[j].layers.end());
    }
  }
  return lines;
}

/// The lines of the tree and their sources.
struct LayerTree {
  std::weak_ptr<const RunView> view{};
  int lane = -1;
  std::vector<int> rows{};
  std::vector<std::string> opened{}, closed{};
  std::vector<ListLine> lines{};

  const std::vector<ListLine>& of(const Frame& frame, const std::vector<int>& shown) {
    const std::shared_ptr<const RunView> now = frame.run.shared_view();
    const bool same = !view.owner_before(now) && !now.owner_before(view) && lane == frame.at.lane &&
                      rows == shown && opened == frame.view.opened && closed == frame.view.closed;
    if (same) return lines;
    view = now;
    lane = frame.at.lane;
    rows = shown;
    opened = frame.view.opened;
    closed = frame.view.closed;
    lines = tree_of(frame, rows);
    return lines;
  }
};

double share_of_layer(const Frame& frame, int index) {
  const int site =
      frame.run.worst_site(frame.at.lane, index, frame.view.role, frame.view.metric, -1);
  if (site < 0) return 0.0;
  return metric_share(run_rates(frame.run.view(), frame.at.lane, site), frame.view.metric);
}

/// Draws the bar of a rate left of `right`. Returns where it begins.
float draw_share(const Frame& frame, double share, float right, float width, float middle) {
  const float scale = frame.scale, left = right - width;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled({left, middle - 4 * scale}, {right, middle + 4 * scale}, frame.theme.grid,
                     2 * scale);
  if (share > 0.0) {
    const double level = std::max(0.02, heat_level(heat_of(share)));
    draw.AddRectFilled({left, middle - 4 * scale},
                       {left + width * static_cast<float>(level), middle + 4 * scale},
                       heat_color(0.35 + 0.6 * level), 2 * scale);
  }
  return left;
}

/// Draws the head of a group, with the worst of its layers. A click folds or opens it.
void draw_head(const Frame& frame, const ListLine& line) {
  const Theme& theme = frame.theme;
  const float scale = frame.scale, height = ImGui::GetTextLineHeight() + 6 * scale;
  const ImVec2 start = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const std::string path = "layers/group/" + line.group;
  if (ui::selectable(path, "##group", false, {width, height})) {
    line.open ? fold_group(frame.view, line.group) : open_group(frame.view, line.group);
  }
  ui::tip(fmt::format("{}: {}. Its bar is the worst of them. Click to {}.", line.group,
                      counted(static_cast<int64_t>(line.layers.size()), "layer"),
                      line.open ? "fold" : "open")
              .c_str());
  std::optional<Severity> severity;
  double share = 0.0;
  for (const int index : line.layers) {
    const LayerModel& layer = frame.lane().layers[static_cast<size_t>(index)];
    if (layer.severity && (!severity || *severity < *layer.severity)) severity = layer.severity;
    share = std::max(share, share_of_layer(frame, index));
  }
  const float middle = start.y + height / 2, bar = std::min(48 * scale, width * 0.25f);
  draw_share(frame, share, start.x + width - 4 * scale, bar, middle);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float indent = start.x + static_cast<float>(line.depth) * 12 * scale;
  if (severity) {
    draw_severity(draw, {indent + 8 * scale, middle}, 3.5f * scale, *severity,
                  theme.severity(*severity));
  }
  const char* sign = !frame.fonts.unicode ? (line.open ? "- " : "+ ")
                     : line.open          ? "\u25be "
                                          : "\u25b8 ";
  draw.AddText({indent + 18 * scale, start.y + 3 * scale}, theme.soft,
               (sign + name_after(line.group, line.prefix)).c_str());
}

void draw_row(const Frame& frame, int index, int depth, size_t prefix) {
  const Theme& theme = frame.theme;
  const LayerModel& layer = frame.lane().layers[static_cast<size_t>(index)];
  const float scale = frame.scale, height = ImGui::GetTextLineHeight() + 6 * scale;
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
  const float indent = start.x + static_cast<float>(depth) * 12 * scale;
  if (layer.severity) {
    draw_severity(draw, {indent + 8 * scale, middle}, mark, *layer.severity,
                  theme.severity(*layer.severity));
  }
  const int site =
      frame.run.worst_site(frame.at.lane, index, frame.view.role, frame.view.metric, -1);
  const double share = share_of_layer(frame, index);
  const float bar_width = std::min(48 * scale, width * 0.25f);
  const float bar_left = end.x - bar_width - 4 * scale, text_left = indent + 18 * scale;
  const bool kept = frame.view.edits.keeps(layer.path);
  const float text_right = draw_formats(frame, layer, path, bar_left - 6 * scale, middle);
  draw.PushClipRect({text_left, start.y}, {text_right - 4 * scale, end.y}, true);
  draw.AddText({text_left, start.y + 3 * scale}, kept ? theme.good : theme.ink,
               (name_after(layer.path, prefix) + (kept ? "  fp32" : "")).c_str());
  draw.PopClipRect();
  const float bar_top = middle - 4 * scale, bar_bottom = middle + 4 * scale;
  draw_share(frame, share, bar_left + bar_width, bar_width, middle);
  const bool non_finite = has_non_finite(frame, layer);
  if (non_finite) {
    draw.PushClipRect({bar_left, bar_top}, {bar_left + bar_width, bar_bottom}, true);
    for (float x = bar_left - 8 * scale; x < bar_left + bar_width; x += 6 * scale) {
      draw.AddLine({x, bar_bottom}, {x + 8 * scale, bar_top}, theme.faint, 1.5f * scale);
    }
    draw.PopClipRect();
  }
  if (hovered) {
    std::string tip = fmt::format("{}  ({})", layer.path, layer.op);
    if (const NodeDecision* decision = decision_of(frame, layer))
      tip += "\n" + decision_text(*decision);
    if (const NodeDecision* other = differing_decision(frame, layer))
      tip += "\n" + difference_text(frame, *other);
    if (site >= 0) {
      tip += fmt::format(
          "\n{} {} {} in {}, whole run\nThe bar is logarithmic, from one in a million to all.{}",
          metric_name(frame.view.metric), percent(share), metric_whole(frame.view.metric),
          frame.lane_info().sites[static_cast<size_t>(site)].tensor,
          non_finite ? "\nStriped: contains NaN or Inf, created here or passed on." : "");
    }
    if (frame.run.report() != nullptr) {
      for (const int finding : layer.findings) {
        tip += "\n- " + frame.run.report()->findings[static_cast<size_t>(finding)].mechanism;
      }
    }
    ui::tip(tip.c_str());
  }
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
                                                 : fmt::format("{} of {}", rows.size(), layers));
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
  std::vector<ListLine> flat;
  const bool is_tree = frame.view.order == LayerOrder::execution;
  if (!is_tree) {
    for (const int row : rows) flat.push_back({.layers = {row}, .open = false});
  }
  const std::vector<ListLine>& lines =
      is_tree ? frame.caches.get<LayerTree>().of(frame, rows) : flat;
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(lines.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const ListLine& line = lines[static_cast<size_t>(i)];
      if (line.group.empty()) {
        draw_row(frame, line.layers[0], line.depth, line.prefix);
      } else {
        draw_head(frame, line);
      }
    }
  }
  ImGui::PopStyleVar();
  ImGui::EndChild();
  ImGui::PopStyleColor();
}

}  // namespace halfscope::gui
