// SPDX-License-Identifier: MIT
// One pass over all windows reads counters only. Histograms are unpacked when they are shown.
#include "gui/data/run_model.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/plans/recorded_decisions.h"
#include "analysis/rules/lane_facts.h"
#include "analysis/run_rates.h"
#include "core/policy/policy.h"

namespace halfscope::gui {
namespace {

/// Returns the windows of all tensors, which are the same for all tensors of a run file.
std::vector<Column> columns_of(const RunView& view) {
  std::map<int64_t, int64_t> counts;
  for (int lane = 0; lane < view.lane_count(); ++lane) {
    const int sites = static_cast<int>(view.lane(lane).sites.size());
    size_t known = 0;
    for (int site = 0; site < sites; ++site) {
      const WindowRange windows = view.windows(lane, site);
      // Tensors of one lane mostly share their windows: add only new ones.
      if (windows.size() == known && known > 0) continue;
      known = windows.size();
      for (const PackedWindow& window : windows) {
        int64_t& count = counts[window.step];
        count = std::max(count, window.step_count);
      }
    }
  }
  std::vector<Column> columns;
  columns.reserve(counts.size());
  for (const auto& [step, count] : counts) columns.push_back({step, count});
  return columns;
}

/// Returns the paths of a lane's sites in the order in which their nodes run. The order of first
/// tensors differs: a convolution reads its weight before the node runs that computes its input.
/// Paths without a node, such as the batch, come first.
std::vector<std::string_view> paths_of(const LaneInfo& lane) {
  std::unordered_map<std::string_view, int> nodes;
  for (size_t i = 0; i < lane.layers.size(); ++i) {
    nodes.try_emplace(lane.layers[i].path, static_cast<int>(i));
  }
  const auto node_of = [&](std::string_view path) {
    const auto found = nodes.find(path);
    return found == nodes.end() ? -1 : found->second;
  };
  std::vector<std::string_view> paths;
  std::unordered_set<std::string_view> seen;
  for (const SiteInfo& site : lane.sites) {
    if (seen.insert(site.path).second) paths.push_back(site.path);
  }
  std::stable_sort(paths.begin(), paths.end(),
                   [&](std::string_view a, std::string_view b) { return node_of(a) < node_of(b); });
  return paths;
}

/// Returns the share that a tensor has in excess of the reference's.
Rates excess(const Rates& own, const Rates& reference) noexcept {
  return {.overflow = std::max(0.0, own.overflow - reference.overflow),
          .infinite = std::max(0.0, own.infinite - reference.infinite),
          .nan = std::max(0.0, own.nan - reference.nan),
          .zero = std::max(0.0, own.zero - reference.zero),
          .underflow = std::max(0.0, own.underflow - reference.underflow),
          .subnormal = std::max(0.0, own.subnormal - reference.subnormal),
          .lost = std::max(0.0, own.lost - reference.lost)};
}

std::optional<Plan> plan_of(const LaneInfo& lane) {
  try {
    return plan_from_json(lane.plan_json);
  } catch (const std::exception&) {
    return std::nullopt;  // from another version: the lane is shown but not explained
  }
}

}  // namespace

std::shared_ptr<const RunModel> RunModel::make(std::string file,
                                               std::shared_ptr<const RunView> view,
                                               bool with_report) {
  return std::shared_ptr<const RunModel>(
      new RunModel(std::move(file), std::move(view), with_report));
}

std::shared_ptr<const RunModel> RunModel::open(const std::string& file) {
  return make(file, std::make_shared<const RunView>(RunView::open(file)), true);
}

RunModel::RunModel(std::string file, std::shared_ptr<const RunView> view, bool with_report)
    : file_(std::move(file)),
      view_(std::move(view)),
      columns_(columns_of(*view_)),
      reference_(reference_lane(*view_)) {
  for (int lane = 0; lane < lane_count(); ++lane) {
    const std::span<const StepRow> steps = view_->steps(lane);
    if (!steps.empty()) step_count_ = std::max(step_count_, steps.back().step + 1);
    add_lane(lane);
  }
  if (!columns_.empty()) step_count_ = std::max(step_count_, columns_.back().last() + 1);
  if (with_report) {
    report_ = make_report(*view_);
    add_findings();
  }
  if (report_ && report_->sick >= 0) {
    first_lane_ = report_->sick;
  } else {
    int any = -1;
    for (int lane = 0; lane < lane_count() && first_lane_ < 0; ++lane) {
      // A lane that failed before its first step has nothing to show.
      if (view_->steps(lane).empty() && view_->lost(lane)) continue;
      if (any < 0) any = lane;
      const std::optional<Plan> plan = plan_of(view_->lane(lane));
      if (plan && !is_full_precision(*plan)) first_lane_ = lane;
    }
    if (first_lane_ < 0 && lane_count() > 0) first_lane_ = std::max(any, 0);
  }
}

void RunModel::add_lane(int lane_index) {
  const LaneInfo& info = view_->lane(lane_index);
  LaneModel lane;
  std::unordered_map<std::string_view, int> index;
  for (const std::string_view path : paths_of(info)) {
    index.emplace(path, static_cast<int>(lane.layers.size()));
    lane.layers.push_back({.path = std::string(path)});
  }
  lane.layer_of_site.reserve(info.sites.size());
  for (const SiteInfo& site : info.sites) {
    const int place = index.at(site.path);
    LayerModel& layer = lane.layers[static_cast<size_t>(place)];
    if (layer.sites.empty()) layer.op = site.op;
    layer.sites.push_back(site.order);
    lane.layer_of_site.push_back(place);
  }
  for (const LayerInfo& layer : info.layers) {
    const auto found = index.find(layer.path);
    if (found == index.end()) continue;
    LayerModel& model = lane.layers[static_cast<size_t>(found->second)];
    model.info = &layer;
    model.op = layer.op;
  }
  lane.decisions = recorded_decisions(info);
  for (size_t i = 0; i < lane.decisions.size(); ++i) {
    const auto found = index.find(lane.decisions[i].path);
    if (found != index.end())
      lane.layers[static_cast<size_t>(found->second)].decision = static_cast<int>(i);
  }
  add_heat(lane_index, lane);
  lanes_.push_back(std::move(lane));
  layer_index_.push_back(std::move(index));
}

void RunModel::add_heat(int lane_index, LaneModel& lane) const {
  const std::vector<SiteInfo>& sites = view_->lane(lane_index).sites;
  const int reference = reference_of(lane_index);
  for (HeatGrid& grid : lane.grids) grid = HeatGrid(sites.size(), columns_.size());
  lane.spread = HeatGrid(sites.size(), columns_.size());
  for (size_t site = 0; site < sites.size(); ++site) {
    const FloatFormat& format = sites[site].format;
    const int twin =
        reference < 0 ? -1 : view_->find_site(reference, sites[site].name()).value_or(-1);
    const WindowRange theirs = twin < 0 ? WindowRange({}, {}) : view_->windows(reference, twin);
    auto their = theirs.begin();
    size_t column = 0;
    for (const PackedWindow& window : view_->windows(lane_index, static_cast<int>(site))) {
      while (column < columns_.size() && columns_[column].step < window.step) ++column;
      const TensorCounts counts = window.counts();
      if (counts.n == 0 || column == columns_.size()) continue;
      Rates rates = rates_of(counts, format);
      while (their != theirs.end() && (*their).step < window.step) ++their;
      if (their != theirs.end() && (*their).step == window.step) {
        const FloatFormat& wide = view_->lane(reference).sites[static_cast<size_t>(twin)].format;
        rates = excess(rates, rates_of((*their).counts(), wide));
      }
      for (const Metric metric : kMetrics) {
        lane.grids[static_cast<size_t>(metric)].set(site, column,
                                                    heat_of(metric_share(rates, metric)));
      }
      if (rates.non_finite() <= 0.0) continue;
      // Non-finite values in a variable came with an earlier update.
      const bool held = sites[site].role == Role::weight && counts.overflow == 0;
      lane.spread.set(site, column, static_cast<Heat>(held ? Spread::passes : Spread::starts));
    }
  }
  const std::vector<std::vector<int>> read = sites_read(view_->lane(lane_index));
  for (size_t column = 0; column < columns_.size(); ++column) {
    const std::span<const Heat> spread = lane.spread.column(column);
    for (size_t site = 0; site < sites.size(); ++site) {
      if (spread[site] != static_cast<Heat>(Spread::starts)) continue;
      const bool passes = std::any_of(read[site].begin(), read[site].end(), [&](int from) {
        return spread[static_cast<size_t>(from)] != static_cast<Heat>(Spread::none);
      });
      if (passes) lane.spread.set(site, column, static_cast<Heat>(Spread::passes));
    }
  }
}

void RunModel::add_findings() {
  for (size_t i = 0; i < report_->findings.size(); ++i) {
    const Finding& finding = report_->findings[i];
    const int layer = find_layer(finding.lane, finding.layer);
    if (layer < 0) continue;
    LayerModel& model =
        lanes_[static_cast<size_t>(finding.lane)].layers[static_cast<size_t>(layer)];
    model.findings.push_back(static_cast<int>(i));
    if (!model.severity || *model.severity < finding.severity) model.severity = finding.severity;
  }
}

int RunModel::column_of(int64_t step) const noexcept {
  const auto after =
      std::upper_bound(columns_.begin(), columns_.end(), step,
                       [](int64_t value, const Column& column) { return value < column.step; });
  return static_cast<int>(after - columns_.begin()) - 1;
}

int RunModel::find_layer(int lane, std::string_view path) const noexcept {
  if (lane < 0 || lane >= lane_count()) return -1;
  const auto& index = layer_index_[static_cast<size_t>(lane)];
  const auto found = index.find(path);
  return found == index.end() ? -1 : found->second;
}

std::optional<TensorStats> RunModel::stats(int lane, int site, int column) const {
  if (column < 0 || column >= static_cast<int>(columns_.size())) return std::nullopt;
  const std::optional<PackedWindow> window =
      view_->windows(lane, site).find(columns_[static_cast<size_t>(column)].step);
  if (!window) return std::nullopt;
  TensorStats stats = window->stats();
  if (stats.n == 0) return std::nullopt;
  return stats;
}

std::optional<Rates> RunModel::rates(int lane, int site, int column) const {
  const FloatFormat& format = view_->lane(lane).sites[static_cast<size_t>(site)].format;
  if (column < 0) {
    const TensorStats& total = view_->total(lane, site);
    return total.n > 0 ? std::optional(rates_of(total, format)) : std::nullopt;
  }
  const std::optional<TensorStats> found = stats(lane, site, column);
  return found ? std::optional(rates_of(*found, format)) : std::nullopt;
}

const StepRow* RunModel::step_row(int lane, int64_t step) const noexcept {
  if (lane < 0 || lane >= lane_count()) return nullptr;
  const std::span<const StepRow> rows = view_->steps(lane);
  const auto found =
      std::lower_bound(rows.begin(), rows.end(), step,
                       [](const StepRow& row, int64_t value) { return row.step < value; });
  return found != rows.end() && found->step == step ? &*found : nullptr;
}

int RunModel::worst_site(int lane_index, int layer, RoleView role, Metric metric,
                         int column) const {
  const LaneModel& lane = this->lane(lane_index);
  const LaneInfo& info = view_->lane(lane_index);
  int worst = -1;
  double most = -1.0;
  for (const int site : lane.layers.at(static_cast<size_t>(layer)).sites) {
    if (!shows(role, info.sites[static_cast<size_t>(site)].role)) continue;
    double share = 0.0;
    if (column >= 0) {
      share = lane.grid(metric).at(static_cast<size_t>(site), static_cast<size_t>(column));
    } else {
      share = metric_share(run_rates(*view_, lane_index, site), metric);
    }
    if (share > most) {
      most = share;
      worst = site;
    }
  }
  return worst;
}

double RunModel::worst_share(int lane, int layer, RoleView role, Metric metric) const {
  const int worst = worst_site(lane, layer, role, metric, -1);
  return worst < 0 ? 0.0 : metric_share(run_rates(*view_, lane, worst), metric);
}

}  // namespace halfscope::gui
