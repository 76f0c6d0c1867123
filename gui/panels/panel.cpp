// SPDX-License-Identifier: MIT
// Looks up the names of a ViewState in this run, and lists the rows that all panels share.
#include "gui/panels/panel.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "gui/widgets/plot.h"

namespace halfscope::gui {

Selection resolve_selection(const RunModel& run, const ViewState& view) {
  Selection at;
  at.lane = run.view().find_lane(view.lane).value_or(run.first_lane());
  if (at.lane < 0) return at;
  at.other_lane = run.view().find_lane(view.other_lane).value_or(-1);
  at.step = view.cursor >= 0 ? std::min(view.cursor, run.step_count() - 1) : run.step_count() - 1;
  at.column = run.column_of(at.step);
  at.layer = run.find_layer(at.lane, view.layer);
  at.site = run.view().find_site(at.lane, view.site).value_or(-1);
  if (at.site < 0 && at.layer >= 0) {
    at.site = run.worst_site(at.lane, at.layer, view.role, view.metric, -1);
  }
  if (at.site >= 0) at.layer = run.lane(at.lane).layer_of_site[static_cast<size_t>(at.site)];
  return at;
}

const SiteInfo* Frame::site_info() const {
  return at.site < 0 ? nullptr : &lane_info().sites[static_cast<size_t>(at.site)];
}

const LayerModel* Frame::layer() const {
  return at.layer < 0 ? nullptr : &lane().layers[static_cast<size_t>(at.layer)];
}

std::vector<int> Frame::visible_layers() const {
  std::vector<int> rows;
  const std::vector<LayerModel>& layers = lane().layers;
  const std::vector<SiteInfo>& sites = lane_info().sites;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool has_role = std::any_of(
        layers[i].sites.begin(), layers[i].sites.end(),
        [&](int site) { return shows(view.role, sites[static_cast<size_t>(site)].role); });
    if (has_role && passes_filter(layers[i].path, view.filter)) rows.push_back(static_cast<int>(i));
  }
  const auto layer = [&](int row) -> const LayerModel& { return layers[static_cast<size_t>(row)]; };
  if (view.order == LayerOrder::name) {
    std::stable_sort(rows.begin(), rows.end(),
                     [&](int a, int b) { return layer(a).path < layer(b).path; });
  } else if (view.order == LayerOrder::severity) {
    const auto weight = [&](int row) {
      return layer(row).severity ? 1 + static_cast<int>(*layer(row).severity) : 0;
    };
    std::stable_sort(rows.begin(), rows.end(), [&](int a, int b) { return weight(a) > weight(b); });
  }
  return rows;
}

void Frame::select_layer(int layer) const {
  const int site = run.worst_site(at.lane, layer, view.role, view.metric, -1);
  view.layer = lane().layers[static_cast<size_t>(layer)].path;
  view.site = site < 0 ? "" : lane_info().sites[static_cast<size_t>(site)].name();
}

void Frame::select_site(int site) const {
  const SiteInfo& info = lane_info().sites[static_cast<size_t>(site)];
  view.layer = info.path;
  view.site = info.name();
}

void picture_text(const PlotLook& look, std::string_view text, bool bold) {
  ImFont& font = bold ? *look.fonts.bold : *look.fonts.small;
  Canvas canvas(look.picture);
  canvas.text(font, ImGui::GetCursorScreenPos(), bold ? look.theme.ink : look.theme.soft, text,
              bold);
  ImGui::Dummy(text_size(font, text));
}

void picture_text(const Frame& frame, std::string_view text, bool bold) {
  picture_text(PlotLook{frame.theme, frame.fonts, frame.scale, frame.picture}, text, bold);
}

void Frame::ask(Request::Kind kind, std::string text) const {
  requests.push_back({.kind = kind, .text = std::move(text)});
}

}  // namespace halfscope::gui
