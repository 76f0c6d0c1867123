// SPDX-License-Identifier: MIT
#include "analysis/rules/lane_facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "analysis/format_limits.h"
#include "analysis/rules/absorbed.h"
#include "core/backend/loss_scaler.h"
#include "core/error.h"
#include "core/ops/ops.h"
#include "core/policy/policy.h"
#include "core/train/probe.h"

namespace halfscope {
namespace {

/// Counts overflows, NaN and infinities. Codes of scaled operands saturate where others overflow.
int64_t count_non_finite(const SiteInfo& site, const TensorCounts& counts) {
  return (site.scale.empty() ? counts.overflow : 0) + counts.non_finite();
}

bool is_forward_result(const SiteInfo& site) {
  // Tensors that training does not read back say nothing about its forward pass.
  return site.phase == Phase::forward && site.role != Role::state && !is_loss_scale(site);
}

/// Returns whether finite operands have finite results, whatever they are: the operator moves,
/// chooses or drops numbers.
bool passes_values(const std::string& op) {
  const OpDef* def = lookup_op(op);
  return op == "Dropout" || (def != nullptr && def->selects);
}

int64_t first_update_in(std::span<const StepRow> rows) {
  const auto updates = [](const StepRow& row) { return !row.skipped; };
  const auto found = std::find_if(rows.begin(), rows.end(), updates);
  return found == rows.end() ? std::numeric_limits<int64_t>::max() : found->step;
}

/// Returns the rows of the steps that a window covers.
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

bool RecordedStep::is_silent(int site) const {
  return std::binary_search(silent.begin(), silent.end(), site);
}

LaneFacts::LaneFacts(const RunView& run, int lane)
    : run_(&run), lane_(lane), full_precision_(full_precision_lane(run.lane(lane))) {
  if (!full_precision_) reference_ = reference_lane(run, lane);
  last_equal_ = std::numeric_limits<int64_t>::max();
  if (!inference()) {
    last_equal_ = first_update();
    if (reference_ >= 0)
      last_equal_ = std::min(last_equal_, first_update_in(run.steps(reference_)));
  }
  find_last_finite();
  pair_sites();
  build_graph();
  gather_windows();
}

void LaneFacts::find_last_finite() {
  last_finite_ = std::numeric_limits<int64_t>::max();
  if (inference()) return;
  // Captures know the norm of recorded steps only.
  const bool known = !captured();
  const auto moves_by_nan = [known](const StepRow& row) {
    const bool finite = std::isfinite(row.grad_norm) || (!known && std::isnan(row.grad_norm));
    return !row.skipped && !finite;
  };
  const std::span<const StepRow> rows = steps();
  const auto found = std::find_if(rows.begin(), rows.end(), moves_by_nan);
  if (found != rows.end()) last_finite_ = found->step;
}

void LaneFacts::pair_sites() {
  reference_sites_.assign(info().sites.size(), -1);
  if (reference_ < 0) return;
  std::map<std::string, int> theirs;
  for (const SiteInfo& site : run_->lane(reference_).sites) theirs[site.name()] = site.order;
  for (const SiteInfo& site : info().sites) {
    const auto found = theirs.find(site.name());
    if (found != theirs.end()) reference_sites_[static_cast<size_t>(site.order)] = found->second;
  }
}

int64_t LaneFacts::first_update() const { return first_update_in(steps()); }

std::optional<int> LaneFacts::reference_site(int site) const {
  const int theirs = reference_sites_[static_cast<size_t>(site)];
  return theirs < 0 ? std::nullopt : std::optional(theirs);
}

std::optional<TensorCounts> LaneFacts::reference_counts(int site, int64_t step) const {
  const std::optional<int> theirs = reference_site(site);
  if (!theirs) return std::nullopt;
  const std::optional<PackedWindow> window = run_->windows(reference_, *theirs).find(step);
  return window ? std::optional(window->counts()) : std::nullopt;
}

/// Returns whether the infinities are the network's own: log(0), or a given mask.
bool LaneFacts::as_in_reference(const SiteInfo& site, int64_t step,
                                const TensorCounts& counts) const {
  const std::optional<TensorCounts> theirs = reference_counts(site.order, step);
  return theirs && count_non_finite(site, counts) <= theirs->overflow + theirs->non_finite();
}

void LaneFacts::gather_bad(std::map<int64_t, RecordedStep>& by_step) const {
  for (const SiteInfo& site : info().sites) {
    const bool wider = sums_wider(site);
    for (const PackedWindow& window : run_->windows(lane_, site.order)) {
      RecordedStep& record = by_step[window.step];
      record.step = window.step;
      record.step_count = std::max(record.step_count, window.step_count);
      TensorCounts counts = window.counts();
      if (wider) counts.overflow = 0;
      if (count_non_finite(site, counts) == 0) continue;
      if (as_in_reference(site, window.step, counts)) continue;
      record.bad.push_back(site.order);  // ascending, since sites are in execution order
      if (is_forward_result(site)) record.forward_bad = true;
      if (site.phase != Phase::backward && !is_loss_scale(site)) continue;
      if (!record.backward_bad) {
        const bool rounded = captured() && counts.pos_inf + counts.neg_inf > 0;
        record.gradients_overflow = counts.overflow > 0 || rounded;
      }
      record.backward_bad = true;
    }
  }
}

bool LaneFacts::observed(std::string_view fact) const {
  const std::vector<std::string>& facts = run_->info().observed;
  return std::find(facts.begin(), facts.end(), fact) != facts.end();
}

void LaneFacts::add_rows(RecordedStep& record) const {
  record.loss_scale = std::numeric_limits<double>::quiet_NaN();
  bool first = true;
  for (const StepRow& row : rows_of(steps(), record.step, record.step_count)) {
    if (first) record.loss_scale = row.loss_scale;
    if (row.loss_scale != record.loss_scale) {
      record.loss_scale = std::numeric_limits<double>::quiet_NaN();
    }
    first = false;
    record.skipped = record.skipped || row.skipped;
    record.loss_finite = record.loss_finite && loss_is_fine(row);
  }
}

void LaneFacts::gather_windows() {
  std::map<int64_t, RecordedStep> by_step;
  gather_bad(by_step);
  // A loss that is NaN in every step has gradients that are NaN in every step.
  const bool never = std::all_of(steps().begin(), steps().end(),
                                 [](const StepRow& row) { return std::isnan(row.loss); });
  const bool clean = std::any_of(by_step.begin(), by_step.end(),
                                 [](const auto& each) { return each.second.bad.empty(); });
  knows_loss_ = observed(observed::kLoss) ||
                !(is_capture(info().backend) && never && (clean || by_step.empty()));
  Absorption absorption(*this);
  for (auto& [step, record] : by_step) {
    add_rows(record);
    if (captured()) absorption.learn_masks(record);
  }
  for (auto& [step, record] : by_step) {
    if (record.forward_bad) {
      absorption.sort_out(record);
      record.forward_bad = std::any_of(record.bad.begin(), record.bad.end(),
                                       [&](int order) { return is_forward_result(site(order)); });
    }
    if (!has_loss()) record.loss_finite = outputs_finite(record);
    recorded_.push_back(std::move(record));
  }
}

/// Activations that no layer reads stand for the loss where there is none.
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
  if (const auto scaler = read_loss_scale(info().loss_scale)) return !is_static(*scaler);
  const std::span<const StepRow> rows = steps();
  const auto changes = [](const StepRow& a, const StepRow& b) {
    return a.loss_scale != b.loss_scale;
  };
  // A single step does not show what comes after it; dynamic is what frameworks do.
  if (rows.size() == 1) return rows[0].skipped;
  return std::adjacent_find(rows.begin(), rows.end(), changes) != rows.end();
}

bool LaneFacts::scales_loss() const {
  const std::optional<LossScalerConfig> scaler = read_loss_scale(info().loss_scale);
  const bool plain = !scaler || scaler->kind == LossScalerConfig::Kind::none ||
                     scaler->kind == LossScalerConfig::Kind::deepspeed_bf16;
  if (!plain) return !inference();
  const std::span<const StepRow> rows = steps();
  return std::any_of(rows.begin(), rows.end(),
                     [](const StepRow& row) { return row.loss_scale != 1.0; });
}

std::optional<TensorStats> LaneFacts::stats(int site, int64_t step) const {
  const std::optional<PackedWindow> window = run_->windows(lane_, site).find(step);
  return window ? std::optional(window->stats()) : std::nullopt;
}

std::optional<TensorCounts> LaneFacts::counts(int site, int64_t step) const {
  const std::optional<PackedWindow> window = run_->windows(lane_, site).find(step);
  return window ? std::optional(window->counts()) : std::nullopt;
}

bool LaneFacts::is_function(int node) const {
  const int layer = nodes_[static_cast<size_t>(node)].layer;
  return layer >= 0 && captured() && info().layers[static_cast<size_t>(layer)].op == kFunctionOp;
}

bool LaneFacts::runs_own_code(int node) const {
  const int layer = nodes_[static_cast<size_t>(node)].layer;
  return layer >= 0 && halfscope::runs_own_code(info(), info().layers[static_cast<size_t>(layer)]);
}

bool LaneFacts::is_whole_model(int node) const {
  const int layer = nodes_[static_cast<size_t>(node)].layer;
  if (layer < 0 || !captured()) return false;
  const LayerInfo& own = info().layers[static_cast<size_t>(layer)];
  return own.path == own.op;
}

bool LaneFacts::contains(int outer, int inner) const {
  if (outer == inner || !captured()) return false;
  const std::string& path = nodes_[static_cast<size_t>(outer)].path;
  const std::string& other = nodes_[static_cast<size_t>(inner)].path;
  const bool below =
      other.size() > path.size() && other[path.size()] == '.' && other.starts_with(path);
  return below || (is_whole_model(outer) && nodes_[static_cast<size_t>(inner)].layer >= 0);
}

std::vector<int> LaneFacts::layers_behind(int site) const {
  const int node = node_of(site);
  const ForwardNode& owner = nodes_[static_cast<size_t>(node)];
  return owner.layer < 0 ? owner.readers : std::vector<int>{node};
}

bool LaneFacts::sums_wider(const SiteInfo& site) const {
  return captured() && site.phase == Phase::backward && run_->total(lane_, site.order).overflow > 0;
}

bool LaneFacts::infinity_is_overflow(const SiteInfo& site) const {
  return captured() && !halfscope::full_precision(site.format);
}

std::vector<bool> LaneFacts::reached_from(int node, std::vector<int> ForwardNode::*next) const {
  std::vector<bool> reached(nodes_.size(), false);
  std::vector<int> open{node};
  reached[static_cast<size_t>(node)] = true;
  while (!open.empty()) {
    const ForwardNode& from = nodes_[static_cast<size_t>(open.back())];
    open.pop_back();
    for (const int each : from.*next) {
      if (reached[static_cast<size_t>(each)]) continue;
      reached[static_cast<size_t>(each)] = true;
      open.push_back(each);
    }
  }
  return reached;
}

std::vector<bool> LaneFacts::downstream(int node) const {
  return reached_from(node, &ForwardNode::readers);
}

std::vector<bool> LaneFacts::upstream(int node) const {
  const bool structured = std::any_of(nodes_.begin(), nodes_.end(),
                                      [](const ForwardNode& each) { return !each.inputs.empty(); });
  return structured ? reached_from(node, &ForwardNode::inputs)
                    : std::vector<bool>(nodes_.size(), true);
}

std::vector<bool> LaneFacts::bad_nodes(const RecordedStep& step) const {
  std::vector<bool> bad(nodes_.size(), false);
  for (const int order : step.bad) {
    if (is_forward_result(site(order))) bad[static_cast<size_t>(node_of(order))] = true;
  }
  return bad;
}

/// Returns the nodes that are not finite although they only pass on values, and all that they read
/// is finite. A capture adds up all calls of a module and knows what the first one read, so these
/// are not finite in a later call.
std::vector<bool> LaneFacts::called_again(const RecordedStep& step) const {
  std::vector<bool> again = bad_nodes(step);
  const std::vector<bool> bad = again;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const ForwardNode& node = nodes_[i];
    const auto is_bad = [&](int input) { return bad[static_cast<size_t>(input)]; };
    again[i] = bad[i] && captured() && node.layer >= 0 && !node.inputs.empty() &&
               passes_values(info().layers[static_cast<size_t>(node.layer)].op) &&
               std::none_of(node.inputs.begin(), node.inputs.end(), is_bad);
  }
  return again;
}

int LaneFacts::first_bad(const RecordedStep& step) const {
  const std::vector<bool> again = called_again(step);
  const auto found = std::find_if(step.bad.begin(), step.bad.end(), [&](int order) {
    return !is_forward_result(site(order)) || !again[static_cast<size_t>(node_of(order))];
  });
  return found == step.bad.end() ? step.bad.front() : *found;
}

std::vector<int> LaneFacts::forward_roots(const RecordedStep& step) const {
  std::vector<int> roots;
  if (!step.forward_bad) return roots;
  const std::vector<bool> bad = bad_nodes(step), again = called_again(step);
  std::vector<bool> infected(nodes_.size(), false);
  std::vector<int> open;
  int first = static_cast<int>(nodes_.size());  // the first node that is bad for another reason
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (!bad[node] || again[node]) continue;
    open.push_back(static_cast<int>(node));
    first = std::min(first, nodes_[node].layer < 0 ? -1 : static_cast<int>(node));
  }
  const auto infect = [&](int node, int after) {
    for (const int reader : nodes_[static_cast<size_t>(node)].readers) {
      if (infected[static_cast<size_t>(reader)] || reader <= after) continue;
      infected[static_cast<size_t>(reader)] = true;
      open.push_back(reader);
    }
  };
  // A later call of a node reaches only what comes after the cause.
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (again[node]) infect(static_cast<int>(node), first);
  }
  while (!open.empty()) {  // everything downstream of a bad node reads corrupt values
    const int node = open.back();
    open.pop_back();
    infect(node, -1);
  }
  for (size_t outer = 0; outer < nodes_.size(); ++outer) {
    for (size_t inner = 0; inner < nodes_.size() && bad[outer] && !infected[outer]; ++inner) {
      infected[outer] = bad[inner] && contains(static_cast<int>(outer), static_cast<int>(inner));
    }
  }
  bool earlier = false;  // a bad forward site before this one in execution order
  for (int order : step.bad) {
    const SiteInfo& info = site(order);
    if (info.phase != Phase::forward) break;  // the forward sites come first
    if (!is_forward_result(info)) continue;   // a state's values are from earlier steps
    const ForwardNode& node = nodes_[static_cast<size_t>(node_of(order))];
    const TensorStats counts = *stats(order, step.step);
    bool root = false;
    if (info.role == Role::activation) {
      // Without structure, whatever ran before may have been read.
      const bool spoiled_input =
          node.layer >= 0 ? infected[static_cast<size_t>(node_of(order))] : earlier;
      const bool spoiled_weight = std::any_of(node.weight_sites.begin(), node.weight_sites.end(),
                                              [&](int weight) { return step.is_bad(weight); });
      root = !spoiled_input && !spoiled_weight && !again[static_cast<size_t>(node_of(order))];
    } else {
      // Data and variables come from outside the pass: only their own rounding can be at fault.
      root = counts.overflow > 0 && counts.non_finite() == 0;
    }
    if (root) roots.push_back(order);
    earlier = true;
  }
  return roots;
}

std::vector<int> LaneFacts::forward_causes(const RecordedStep& step) const {
  std::vector<int> causes = forward_roots(step);
  if (step.step > last_finite_) {
    std::erase_if(causes, [&](int order) { return counts(order, step.step)->overflow == 0; });
  }
  return causes;
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

bool runs_own_code(const LaneInfo& lane, const LayerInfo& layer) {
  // Operators of frameworks that captures name, too, although no lane of ours has them.
  static constexpr std::array<std::string_view, 15> kOthers{
      "Celu", "ConvTranspose",   "DepthToSpace", "Einsum", "GRU",    "GlobalMaxPool",
      "LSTM", "LpNormalization", "Mean",         "RNN",    "Resize", "NegativeLogLikelihoodLoss",
      "Selu", "Softsign",        "Tile"};
  const bool known = lookup_op(layer.op) != nullptr ||
                     std::find(kOthers.begin(), kOthers.end(), layer.op) != kOthers.end();
  return is_capture(lane.backend) && (layer.op == kFunctionOp || !known);
}

bool is_loss_scale(const SiteInfo& site) {
  return site.role == Role::input && site.tensor.starts_with("loss_scale");
}

bool is_running_statistic(const SiteInfo& site) {
  return site.role == Role::state && site.phase == Phase::forward;
}

namespace {

/// Rules ask for the same few plans many times, and reading one takes longer than most rules.
template <typename Value>
class Remembered {
 public:
  /// Returns make(text), from the last few texts.
  template <typename Make>
  const Value& get(const std::string& text, const Make& make) {
    for (const auto& [known, value] : values_) {
      if (known == text) return value;
    }
    constexpr size_t kMost = 8;
    if (values_.size() == kMost) values_.pop_front();
    return values_.emplace_back(text, make(text)).second;
  }

 private:
  std::deque<std::pair<std::string, Value>> values_;
};

}  // namespace

std::string plan_text(const std::string& plan_json, const std::string& pointer) {
  thread_local Remembered<nlohmann::json> plans;
  const nlohmann::json& plan = plans.get(plan_json, [](const std::string& text) {
    return nlohmann::json::parse(text, nullptr, false);
  });
  const nlohmann::json::json_pointer place(pointer);
  return plan.contains(place) && plan[place].is_string() ? plan[place].get<std::string>() : "";
}

std::optional<FloatFormat> default_format(const LaneInfo& lane) {
  return parse_format(plan_text(lane.plan_json, "/default/read"));
}

std::optional<FloatFormat> storage_format(const LaneInfo& lane) {
  return parse_format(plan_text(lane.plan_json, "/variables/storage"));
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

/// Returns the lane's plan; if it cannot be read, a plan as wide as the lane's layers.
Plan readable_plan(const LaneInfo& lane) {
  thread_local Remembered<std::optional<Plan>> plans;
  const std::optional<Plan>& known =
      plans.get(lane.plan_json, [](const std::string& text) -> std::optional<Plan> {
        try {
          return plan_from_json(text);
        } catch (const Error&) {
          return std::nullopt;
        }
      });
  Plan plan = known.value_or(Plan{});
  if (!known && !full_precision_lane(lane)) plan.defaults.read = plan.defaults.write = kFp16;
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
