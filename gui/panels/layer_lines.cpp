// SPDX-License-Identifier: MIT
#include "gui/panels/layer_lines.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "analysis/run_rates.h"
#include "analysis/spectrum/groups.h"
#include "gui/panels/spectrum.h"

namespace halfscope::gui {
namespace {

/// Everything that the lines depend on, except for the run.
struct LineKey {
  const Report* report = nullptr;
  int lane = -1;
  RoleView role = RoleView::all;
  Metric metric = Metric::worst;
  bool has_groups = false;
  std::vector<int> layers{};
  std::vector<std::string> opened{}, closed{};
  friend bool operator==(const LineKey&, const LineKey&) = default;
};

struct LineCache {
  std::weak_ptr<const RunView> view{};
  LineKey key{};
  std::vector<LayerLine> lines{};
};

const LayerModel& layer_at(const Frame& frame, int index) {
  return frame.lane().layers[static_cast<size_t>(index)];
}

size_t prefix_of(const std::vector<std::string>& groups) {
  return groups.empty() ? 0 : groups.back().size() + 1;
}

/// Returns the lines in execution order, with a head before every group.
std::vector<LayerLine> tree_of(const Frame& frame, const LineKey& key) {
  std::vector<std::string> paths;
  for (const int layer : key.layers) paths.push_back(layer_at(frame, layer).path);
  std::vector<LayerLine> lines;
  std::vector<std::string> around;
  for (const LayerRow& row : fold_layers(paths, paths.size(), key.opened, key.closed)) {
    const auto end =
        std::mismatch(around.begin(), around.end(), row.groups.begin(), row.groups.end());
    around.erase(end.first, around.end());
    for (auto group = end.second; group != row.groups.end(); ++group) {
      lines.push_back({.group = *group,
                       .depth = static_cast<int>(around.size()),
                       .open = true,
                       .prefix = prefix_of(around)});
      around.push_back(*group);
    }
    LayerLine& line = lines.emplace_back(LayerLine{.group = row.folded ? row.name : "",
                                                   .depth = static_cast<int>(around.size()),
                                                   .prefix = prefix_of(around)});
    for (const int layer : row.layers)
      line.layers.push_back(key.layers[static_cast<size_t>(layer)]);
  }
  // An open head stands for all layers below it that are deeper.
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].open) continue;
    for (size_t j = i + 1; j < lines.size() && lines[j].depth > lines[i].depth; ++j) {
      if (lines[j].open) continue;
      lines[i].layers.insert(lines[i].layers.end(), lines[j].layers.begin(), lines[j].layers.end());
    }
  }
  return lines;
}

/// The worst of a layer's tensors in the selected role, over the whole run.
struct LayerState {
  double share = 0.0;
  bool non_finite = false;
};

LayerState state_of(const Frame& frame, int index) {
  LayerState state;
  const RunView& run = frame.run.view();
  const int lane = frame.at.lane;
  state.share = frame.run.worst_share(lane, index, frame.view.role, frame.view.metric);
  const std::vector<int>& sites = layer_at(frame, index).sites;
  state.non_finite = std::any_of(sites.begin(), sites.end(), [&](int site) {
    return shows(frame.view.role, frame.lane_info().sites[static_cast<size_t>(site)].role) &&
           run_rates(run, lane, site).non_finite() > 0.0;
  });
  return state;
}

void add_worst(const Frame& frame, std::vector<LayerLine>& lines) {
  std::vector<std::optional<LayerState>> known(frame.lane().layers.size());
  for (LayerLine& line : lines) {
    double worst_share = -1.0;  // of the most severe layers
    for (const int layer : line.layers) {
      std::optional<LayerState>& state = known[static_cast<size_t>(layer)];
      if (!state) state = state_of(frame, layer);
      const std::optional<Severity>& severity = layer_at(frame, layer).severity;
      if (line.worst < 0 ||
          std::pair(severity, state->share) > std::pair(line.severity, worst_share)) {
        line.worst = layer;
        line.severity = severity;
        worst_share = state->share;
      }
      line.share = std::max(line.share, state->share);
      line.non_finite |= state->non_finite;
    }
  }
}

}  // namespace

bool LayerLine::stands_for(int layer) const {
  return !open && std::find(layers.begin(), layers.end(), layer) != layers.end();
}

const std::vector<LayerLine>& layer_lines(const Frame& frame) {
  LineCache& cache = frame.caches.get<LineCache>();
  LineKey key{.report = frame.run.report(),
              .lane = frame.at.lane,
              .role = frame.view.role,
              .metric = frame.view.metric,
              .has_groups = frame.view.order == LayerOrder::execution,
              .layers = frame.visible_layers(),
              .opened = frame.view.opened,
              .closed = frame.view.closed};
  if (cache.view.lock() == frame.run.shared_view() && cache.key == key) return cache.lines;
  cache.lines.clear();
  if (key.has_groups) {
    cache.lines = tree_of(frame, key);
  } else {
    for (const int layer : key.layers) cache.lines.push_back({.layers = {layer}});
  }
  add_worst(frame, cache.lines);
  cache.view = frame.run.shared_view();
  cache.key = std::move(key);
  return cache.lines;
}

int layer_after(const std::vector<LayerLine>& lines, int layer, int by) {
  std::vector<int> stops;
  int here = -1;
  for (const LayerLine& line : lines) {
    if (line.open) continue;
    if (line.stands_for(layer)) here = static_cast<int>(stops.size());
    stops.push_back(line.worst);
  }
  if (stops.empty()) return -1;
  const int last = static_cast<int>(stops.size()) - 1;
  // From elsewhere, both directions lead to the first stop.
  const int next = here < 0 ? 0 : std::clamp(here + by, 0, last);
  return next == here ? layer : stops[static_cast<size_t>(next)];
}

void fold_around_layer(const Frame& frame, int layer) {
  const LayerLine* innermost = nullptr;
  for (const LayerLine& line : layer_lines(frame)) {
    const bool around =
        std::find(line.layers.begin(), line.layers.end(), layer) != line.layers.end();
    if (line.open && around) innermost = &line;
  }
  if (innermost != nullptr) fold_group(frame.view, std::string(innermost->group));
}

void open_around_layer(const Frame& frame, int layer) {
  for (const LayerLine& line : layer_lines(frame)) {
    if (!line.is_head() || !line.stands_for(layer)) continue;
    return open_group(frame.view, std::string(line.group));
  }
}

}  // namespace halfscope::gui
