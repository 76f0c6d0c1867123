// SPDX-License-Identifier: MIT
#include "analysis/rules/lane_facts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/format_limits.h"
#include "core/error.h"
#include "core/observe/mask.h"
#include "core/policy/policy.h"
#include "core/train/probe.h"

namespace halfscope {
namespace {

/// Codes of scaled operands saturate where others overflow.
bool left_the_finite(const SiteInfo& site, const TensorCounts& counts) {
  if (holds_a_mask(site, counts)) return false;
  return (site.scale.empty() && counts.overflow > 0) || counts.non_finite() > 0;
}

/// Rows of the steps a window covers.
std::span<const StepRow> rows_of(std::span<const StepRow> rows, int64_t step, int64_t count) {
  const auto before = [](const StepRow& row, int64_t value) { return row.step < value; };
  const auto first = std::lower_bound(rows.begin(), rows.end(), step, before);
  const auto last = std::lower_bound(first, rows.end(), step + count, before);
  return {first, last};
}

}  // namespace

bool RecordedStep::is_bad(int site) const {
  return std::binary_search(bad.begin(), bad.end(), site);
}

LaneFacts::LaneFacts(const RunView& run, int lane) : run_(&run), lane_(lane) {
  build_graph();
  gather_windows();
}

void LaneFacts::gather_windows() {
  std::map<int64_t, RecordedStep> by_step;
  const std::vector<SiteInfo>& sites = info().sites;
  for (const SiteInfo& site : sites) {
    for (const PackedWindow& window : run_->windows(lane_, site.order)) {
      RecordedStep& record = by_step[window.step];
      record.step = window.step;
      record.step_count = std::max(record.step_count, window.step_count);
      if (!left_the_finite(site, window.counts())) continue;
      record.bad.push_back(site.order);  // ascending, since sites stand in execution order
      // What training does not read back says nothing of its forward pass.
      if (site.phase == Phase::forward && site.role != Role::state) record.forward_bad = true;
      if (site.phase == Phase::backward) record.backward_bad = true;
    }
  }
  for (auto& [step, record] : by_step) {
    record.loss_scale = std::numeric_limits<double>::quiet_NaN();
    bool first = true;
    for (const StepRow& row : rows_of(steps(), step, record.step_count)) {
      if (first) record.loss_scale = row.loss_scale;
      if (row.loss_scale != record.loss_scale) {
        record.loss_scale = std::numeric_limits<double>::quiet_NaN();
      }
      first = false;
      record.skipped = record.skipped || row.skipped;
      record.loss_finite = record.loss_finite && (inference() || std::isfinite(row.loss));
    }
    if (inference()) record.loss_finite = outputs_finite(record);
    recorded_.push_back(std::move(record));
  }
}

/// In inference they stand for the loss: the activations that no layer reads.
bool LaneFacts::outputs_finite(const RecordedStep& record) const {
  return std::none_of(record.bad.begin(), record.bad.end(), [&](int order) {
    const ForwardNode& node = nodes_[static_cast<size_t>(node_of(order))];
    return node.readers.empty() && node.output_site == order;
  });
}

void LaneFacts::build_graph() {
  const LaneInfo& lane = info();
  for (size_t i = 0; i < lane.layers.size(); ++i) {
    node_by_path_.emplace(lane.layers[i].path, static_cast<int>(nodes_.size()));
    nodes_.push_back({.path = lane.layers[i].path, .layer = static_cast<int>(i)});
  }
  for (const SiteInfo& site : lane.sites) {
    const auto [place, fresh] = node_by_path_.emplace(site.path, static_cast<int>(nodes_.size()));
    if (fresh) nodes_.push_back({.path = site.path});
    node_of_site_.push_back(place->second);
    ForwardNode& node = nodes_[static_cast<size_t>(place->second)];
    if (site.role == Role::weight) node.weight_sites.push_back(site.order);
    if (site.role == Role::activation || site.role == Role::input) node.output_site = site.order;
  }
  for (size_t i = 0; i < lane.layers.size(); ++i) {
    for (const std::string& input : lane.layers[i].inputs) {
      const auto place = node_by_path_.find(input);
      if (place == node_by_path_.end()) continue;  // an input that is not recorded
      nodes_[i].inputs.push_back(place->second);
      nodes_[static_cast<size_t>(place->second)].readers.push_back(static_cast<int>(i));
    }
  }
}

bool LaneFacts::scales_dynamically() const {
  if (!info().loss_scale.empty()) return info().loss_scale.starts_with("dynamic");
  const std::span<const StepRow> rows = steps();
  const auto changes = [](const StepRow& a, const StepRow& b) {
    return a.loss_scale != b.loss_scale;
  };
  // A single step does not show what comes after it; dynamic is what frameworks do.
  if (rows.size() == 1) return rows[0].skipped;
  return std::adjacent_find(rows.begin(), rows.end(), changes) != rows.end();
}

std::optional<TensorStats> LaneFacts::stats(int site, int64_t step) const {
  const std::optional<PackedWindow> window = run_->windows(lane_, site).find(step);
  return window ? std::optional(window->stats()) : std::nullopt;
}

std::vector<int> LaneFacts::layers_behind(int site) const {
  const int node = node_of(site);
  const ForwardNode& owner = nodes_[static_cast<size_t>(node)];
  return owner.layer < 0 ? owner.readers : std::vector<int>{node};
}

std::vector<bool> LaneFacts::downstream(int node) const {
  std::vector<bool> reached(nodes_.size(), false);
  std::vector<int> open{node};
  reached[static_cast<size_t>(node)] = true;
  while (!open.empty()) {
    const ForwardNode& next = nodes_[static_cast<size_t>(open.back())];
    open.pop_back();
    for (int reader : next.readers) {
      if (reached[static_cast<size_t>(reader)]) continue;
      reached[static_cast<size_t>(reader)] = true;
      open.push_back(reader);
    }
  }
  return reached;
}

std::vector<int> LaneFacts::forward_roots(const RecordedStep& step) const {
  std::vector<int> roots;
  if (!step.forward_bad) return roots;
  std::vector<bool> bad_node(nodes_.size(), false), infected(nodes_.size(), false);
  std::vector<int> open;
  for (int site : step.bad) {
    if (this->site(site).phase != Phase::forward || this->site(site).role == Role::state) continue;
    const size_t node = static_cast<size_t>(node_of(site));
    if (!bad_node[node]) open.push_back(static_cast<int>(node));
    bad_node[node] = true;
  }
  while (!open.empty()) {  // everything below a bad node reads what it spoiled
    const int node = open.back();
    open.pop_back();
    for (int reader : nodes_[static_cast<size_t>(node)].readers) {
      if (infected[static_cast<size_t>(reader)]) continue;
      infected[static_cast<size_t>(reader)] = true;
      open.push_back(reader);
    }
  }
  bool earlier = false;  // a bad forward site before this one in execution order
  for (int order : step.bad) {
    const SiteInfo& info = site(order);
    if (info.phase != Phase::forward) break;  // the forward sites come first
    if (info.role == Role::state) continue;   // what it holds is from earlier steps
    const ForwardNode& node = nodes_[static_cast<size_t>(node_of(order))];
    const TensorStats counts = *stats(order, step.step);
    bool root = false;
    if (info.role == Role::activation) {
      // Without structure, whatever ran before may have been read.
      const bool spoiled_input =
          node.layer >= 0 ? infected[static_cast<size_t>(node_of(order))] : earlier;
      const bool spoiled_weight = std::any_of(node.weight_sites.begin(), node.weight_sites.end(),
                                              [&](int weight) { return step.is_bad(weight); });
      root = !spoiled_input && !spoiled_weight;
    } else {
      // Data and variables come from outside the pass: only their own rounding can be at fault.
      root = counts.overflow > 0 && counts.non_finite() == 0;
    }
    if (root) roots.push_back(order);
    earlier = true;
  }
  return roots;
}

bool LaneFacts::is_average(const SiteInfo& state) const {
  return state.role == Role::state && run_->find_site(lane_, state.name() + "_update").has_value();
}

std::vector<std::string> LaneFacts::in_order(std::vector<std::string> paths) const {
  const auto rank = [&](const std::string& path) {
    const auto place = node_by_path_.find(path);
    return place == node_by_path_.end() ? static_cast<int>(nodes_.size()) : place->second;
  };
  std::sort(paths.begin(), paths.end(), [&](const std::string& a, const std::string& b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a < b;
  });
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::string plan_text(const std::string& plan_json, const std::string& pointer) {
  const auto plan = nlohmann::json::parse(plan_json, nullptr, false);
  const nlohmann::json::json_pointer place(pointer);
  return plan.contains(place) && plan[place].is_string() ? plan[place].get<std::string>() : "";
}

bool full_precision_lane(const LaneInfo& lane) {
  if (lane.backend == "float64") return true;
  const bool layers = std::all_of(lane.layers.begin(), lane.layers.end(), [](const LayerInfo& l) {
    return full_precision(l.read) && full_precision(l.write);
  });
  const bool sites = std::all_of(lane.sites.begin(), lane.sites.end(),
                                 [](const SiteInfo& s) { return full_precision(s.format); });
  return layers && sites;
}

namespace {

/// The lane's plan; of one that cannot be read a plan that is as wide as the lane's layers.
Plan readable_plan(const LaneInfo& lane) {
  Plan plan;
  try {
    plan = plan_from_json(lane.plan_json);
  } catch (const Error&) {
    if (!full_precision_lane(lane)) plan.defaults.read = plan.defaults.write = kFp16;
  }
  plan.double_precision = plan.double_precision || lane.backend == "float64";
  return plan;
}

}  // namespace

bool full_precision_plan(const LaneInfo& lane) { return is_full_precision(readable_plan(lane)); }

int reference_lane(const RunView& run) {
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    if (full_precision_plan(run.lane(lane))) return lane;
  }
  return -1;
}

int reference_lane(const RunView& run, int lane) {
  std::vector<LaneConfig> lanes;
  for (const LaneInfo& each : run.info().lanes) {
    lanes.push_back({.plan = readable_plan(each), .scaler = {}});
  }
  return reference_for(lanes, static_cast<size_t>(lane));
}

bool is_reference(const RunView& run, int lane) {
  return full_precision_plan(run.lane(lane)) && reference_lane(run, lane) < 0;
}

}  // namespace halfscope
