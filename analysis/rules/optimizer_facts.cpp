// SPDX-License-Identifier: MIT
#include "analysis/rules/optimizer_facts.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/error.h"

namespace halfscope {
namespace {

/// The rounding error of a zero sum of some thousand fp32 terms, relative to the largest term.
constexpr double kRoundingError = 0x1p-20;
constexpr double kMostlyLost = 0.5;
constexpr std::string_view kGradient = "_grad";

/// Returns the statistics of a reference site over the run; nullptr if it has none.
const TensorStats* reference_total(const LaneFacts& lane, const std::string& name) {
  const std::optional<int> site = lane.run().find_site(lane.reference(), name);
  if (!site) return nullptr;
  const TensorStats& stats = lane.run().total(lane.reference(), *site);
  return stats.n > 0 ? &stats : nullptr;
}

double largest_input(const LaneFacts& lane, const ForwardNode& node) {
  double largest = 0.0;
  for (const int input : node.inputs) {
    const int site = lane.nodes()[static_cast<size_t>(input)].output_site;
    const TensorStats* stats = site < 0 ? nullptr : reference_total(lane, lane.site(site).name());
    if (stats != nullptr) largest = std::max(largest, static_cast<double>(stats->max_abs));
  }
  return largest;
}

/// The gradient of a variable: sums of gradients of the node's output, and of products with what it
/// reads.
bool is_negligible_weight(const LaneFacts& lane, const SiteInfo& site) {
  const TensorStats* stats = reference_total(lane, site.name());
  if (stats == nullptr || stats->non_finite() > 0) return false;
  if (stats->non_zero() == 0) return true;
  const TensorStats* terms = reference_total(lane, site.path + ".activation_grad");
  const ForwardNode& node = lane.nodes()[static_cast<size_t>(lane.node_of(site.order))];
  const double size = std::min(largest_input(lane, node), 1.0);
  if (terms != nullptr && static_cast<double>(stats->max_abs) <
                              kRoundingError * size * static_cast<double>(terms->max_abs)) {
    return true;
  }
  if (!site.tensor.ends_with(kGradient)) return false;
  const std::string variable = site.tensor.substr(0, site.tensor.size() - kGradient.size());
  const std::optional<int> update =
      lane.run().find_site(lane.reference(), site.path + "." + variable + "_update");
  return update && count_lost(lane.run(), lane.reference(), *update).share() > kMostlyLost;
}

/// Returns whether the gradient of a bias is no larger than rounding makes it: it is a sum of the
/// gradients of its layer's outputs, each of which is off by a third of an ulp on average (unit /
/// sqrt(3)). So is a bias whose true gradient is 0: behind it, a softmax or a normalization takes
/// the same from all elements.
bool is_rounding_noise(const LaneFacts& lane, const SiteInfo& bias) {
  constexpr double kDeviations = 4.0;
  if (bias.role != Role::weight_grad || bias.shape.size() != 1) return false;
  const TensorStats& gradient = lane.run().total(lane.lane(), bias.order);
  if (gradient.n == 0) return false;
  return std::any_of(lane.info().sites.begin(), lane.info().sites.end(), [&](const SiteInfo& each) {
    if (each.role != Role::activation_grad || each.path != bias.path) return false;
    const double unit = std::ldexp(1.0, -each.format.mantissa_bits - 1);
    const double terms = lane.run().total(lane.lane(), each.order).sum_sq;
    return gradient.sum_sq <= kDeviations * kDeviations * unit * unit / 3.0 * terms;
  });
}

}  // namespace

std::optional<Optimizer> recorded_optimizer(const RunInfo& info) {
  try {
    return parse_optimizer(info.optimizer);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool steps_on_signs(const RunInfo& info) {
  return info.optimizer.substr(0, info.optimizer.find(':')) == "rprop";
}

bool divides_steps(const SiteInfo& state) {
  return state.role == Role::state && state.phase == Phase::update &&
         (state.tensor.ends_with("_adam_v") || state.tensor.ends_with("_adam_v_max") ||
          state.tensor.ends_with("_square_avg") || state.tensor.ends_with("_grad_squared") ||
          state.tensor.ends_with("_adagrad_sum"));
}

void LostCounts::add(const LostCounts& other) {
  lost += other.lost;
  non_zero += other.non_zero;
  if (first_step < 0 || (other.first_step >= 0 && other.first_step < first_step)) {
    first_step = other.first_step;
  }
}

LostCounts count_lost(const RunView& run, int lane, int site, const std::set<int64_t>& without) {
  LostCounts result;
  for (const PackedWindow& window : run.windows(lane, site)) {
    if (without.contains(window.step)) continue;
    const TensorCounts counts = window.counts();
    result.lost += counts.lost;
    result.non_zero += non_zero_values(counts);
    if (counts.lost > 0 && result.first_step < 0) result.first_step = window.step;
  }
  return result;
}

std::set<int64_t> idle_steps(const RunView& run, int lane) {
  std::set<int64_t> still;
  for (const StepRow& row : run.steps(lane)) {
    if (row.learning_rate == 0.0) still.insert(row.step);
  }
  std::set<int64_t> idle = still;
  for (const SiteInfo& site : run.lane(lane).sites) {
    if (idle.empty()) break;
    if (site.role != Role::update) continue;
    for (const PackedWindow& window : run.windows(lane, site.order)) {
      const TensorCounts counts = window.counts();
      // A row has only the rate of the first parameter group. Other groups may have another one.
      bool moves = non_zero_values(counts) > counts.lost;
      for (int64_t i = 1; i < window.step_count && !moves; ++i) {
        moves = !still.contains(window.step + i);
      }
      if (moves) idle.erase(window.step);
    }
  }
  return idle;
}

bool updates_in_full_precision(const LaneFacts& lane, const std::string& variable) {
  bool updates = false;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.phase != Phase::update || !site.name().starts_with(variable + "_")) continue;
    if (!full_precision(site.format)) return false;
    updates = updates || site.role == Role::update;
  }
  return updates;
}

bool is_negligible_gradient(const LaneFacts& lane, const SiteInfo& site) {
  if (lane.reference() < 0) return is_rounding_noise(lane, site);
  if (site.role == Role::weight_grad) return is_negligible_weight(lane, site);
  if (const TensorStats* stats = reference_total(lane, site.name());
      stats != nullptr && stats->non_finite() == 0 && stats->non_zero() == 0) {
    return true;
  }
  // Gradients flow from a node to everything that it was computed from.
  std::vector<bool> reached(lane.nodes().size(), false);
  std::vector<int> open{lane.node_of(site.order)};
  reached[static_cast<size_t>(open.back())] = true;
  while (!open.empty()) {
    const ForwardNode& node = lane.nodes()[static_cast<size_t>(open.back())];
    open.pop_back();
    for (const int input : node.inputs) {
      if (reached[static_cast<size_t>(input)]) continue;
      reached[static_cast<size_t>(input)] = true;
      open.push_back(input);
    }
  }
  bool any = false;
  for (const SiteInfo& each : lane.info().sites) {
    if (each.role != Role::weight_grad || each.phase != Phase::backward) continue;
    if (!reached[static_cast<size_t>(lane.node_of(each.order))]) continue;
    if (!is_negligible_weight(lane, each)) return false;
    any = true;
  }
  return any;
}

}  // namespace halfscope
