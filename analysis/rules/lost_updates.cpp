// SPDX-License-Identifier: MIT
// lost_updates: variables kept in a narrow format whose updates are mostly too small to change
// them: an update below half the spacing at w is not zero, yet w + update rounds back to w. What
// fp32 loses at the same place does not count. Moving averages of variables, which take small steps
// by design, are judged separately.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/format_limits.h"
#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "core/numeric/formats/rounding.h"
#include "core/numeric/statistics/ulp.h"

namespace halfscope {
namespace {

constexpr double kLostShare = 0.5;
constexpr std::string_view kUpdate = "_update";

/// Returns the format of the variables; the update's own format if the plan does not say.
FloatFormat storage_of(const LaneFacts& lane, const SiteInfo& site) {
  return storage_format(lane.info()).value_or(site.format);
}

/// Returns whether new weights are rounded up or down at random, so that a small update moves a few
/// of them.
bool rounds_stochastically(const LaneFacts& lane) {
  const auto rounding = parse_rounding(plan_text(lane.info().plan_json, "/variables/rounding"));
  return rounding && rounding->mode == RoundingMode::stochastic;
}

/// Returns the share of non-zero updates that the format loses beyond those that fp32 loses.
double excess_share(const LaneFacts& lane, int site, const LostCounts& lost) {
  const std::optional<int> theirs = lane.reference_site(site);
  if (!theirs) return lost.share();
  return lost.share() - count_lost(lane.run(), lane.reference(), *theirs).share();
}

/// Returns whether the site is the update of a moving average.
bool moves_average(const LaneFacts& lane, const SiteInfo& site) {
  const std::string name = site.name();
  if (site.role != Role::update || !name.ends_with(kUpdate)) return false;
  const std::optional<int> state =
      lane.run().find_site(lane.lane(), name.substr(0, name.size() - kUpdate.size()));
  return state && lane.is_average(lane.site(*state));
}

/// Returns whether the gradient behind an update is known to be rounding noise, so that nothing is
/// lost with it.
bool is_noise(const LaneFacts& lane, const SiteInfo& update) {
  const std::string name = update.name();
  if (lane.reference() >= 0 || !name.ends_with(kUpdate)) return false;
  const std::optional<int> gradient =
      lane.run().find_site(lane.lane(), name.substr(0, name.size() - kUpdate.size()) + "_grad");
  return gradient && is_negligible_gradient(lane, lane.site(*gradient));
}

/// Returns whether the site is a weight decay step of the adamw that rounds each of its operations.
bool is_decay(const SiteInfo& site) { return site.tensor.ends_with("_decay_update"); }

/// Returns the name of the variable that an update changes.
std::string variable_of(const SiteInfo& update) {
  const std::string_view end = is_decay(update) ? "_decay_update" : kUpdate;
  const std::string name = update.name();
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

/// The updates of a layer, or its weight decay steps. Those made of rounding errors count for
/// nothing but the number of tensors.
struct LayerUpdates {
  std::string layer;
  std::vector<int> losing{};  ///< sites that lose most of theirs
  int tensors = 0;            ///< of the layer that have updates
  int64_t elements = 0, losing_elements = 0;
  LostCounts lost{};  ///< of the losing sites
  FloatFormat storage = kFp32;
  int worst_site = -1;  ///< with the most lost updates
  int64_t worst_lost = -1;

  /// Returns whether the layer loses updates: its losing tensors have at least half of its numbers.
  bool loses() const { return !losing.empty() && 2 * losing_elements >= elements; }
  bool loses_more_than(const LayerUpdates& other) const {
    // Among equal shares, the most lost updates win, however the variables are listed.
    return std::pair(lost.share(), lost.lost) > std::pair(other.lost.share(), other.lost.lost);
  }
};

struct LostSites {
  std::vector<std::string> layers;
  std::vector<std::string> names;  ///< of these layers, or of the only tensors that lose updates
  LostCounts all;
  LayerUpdates worst;
  std::string worst_name;
};

/// Returns the updates of each layer with updates that are not zero.
std::vector<LayerUpdates> updates_by_layer(const LaneFacts& lane, bool averages) {
  std::vector<LayerUpdates> all;
  std::map<std::pair<std::string, bool>, size_t> index;
  const std::set<int64_t> idle = idle_steps(lane.run(), lane.lane());
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::update || moves_average(lane, site) != averages) continue;
    const LostCounts lost = count_lost(lane.run(), lane.lane(), site.order, idle);
    if (lost.non_zero == 0) continue;
    const FloatFormat kept_in = averages ? site.format : storage_of(lane, site);
    // fp32 may stand still too, at the end of training: nothing a format could change.
    const bool loses = lost.share() > kLostShare && !full_precision(kept_in) &&
                       excess_share(lane, site.order, lost) > kLostShare;
    const auto [at, added] = index.try_emplace({site.path, is_decay(site)}, all.size());
    if (added) all.push_back({.layer = site.path});
    LayerUpdates& layer = all[at->second];
    ++layer.tensors;
    if (loses && is_noise(lane, site)) continue;
    layer.elements += element_count(site.shape);
    if (!loses) continue;
    layer.losing.push_back(site.order);
    layer.losing_elements += element_count(site.shape);
    layer.lost.add(lost);
    layer.storage = kept_in;
    if (lost.lost > layer.worst_lost) {
      layer.worst_lost = lost.lost;
      layer.worst_site = site.order;
    }
  }
  return all;
}

/// Returns the lost updates of variables or of their averages. A layer is judged as a whole: a bias
/// that does not move matters little beside a weight that does.
LostSites find_sites(const LaneFacts& lane, bool averages) {
  LostSites found;
  std::map<std::string, std::string> names;  // by layer
  for (const LayerUpdates& each : updates_by_layer(lane, averages)) {
    if (!each.loses()) continue;
    const bool whole = averages || each.tensors == 1 || each.losing.size() > 1;
    const std::string name = whole ? each.layer : variable_of(lane.site(each.worst_site));
    const auto [at, added] = names.try_emplace(each.layer, name);
    if (at->second != name) at->second = each.layer;
    if (added) found.layers.push_back(each.layer);
    found.all.add(each.lost);
    if (found.worst_name.empty() || each.loses_more_than(found.worst)) {
      found.worst = each;
      found.worst_name = name;
    }
  }
  found.layers = lane.in_order(std::move(found.layers));
  for (const std::string& layer : found.layers) found.names.push_back(names.at(layer));
  return found;
}

/// Returns a finding with the fields that both kinds have in common.
Finding finding_of(const LaneFacts& lane, const LostSites& found) {
  const SiteInfo& site = lane.site(found.worst.worst_site);
  Finding finding{.rule = "lost_updates", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.site = site.name();
  finding.layer = site.path;
  finding.step = found.all.first_step;
  finding.evidence = {{"lost_share", found.all.share()},
                      {"lost", static_cast<double>(found.all.lost)},
                      {"non_zero_updates", static_cast<double>(found.all.non_zero)},
                      {"worst_lost_share", found.worst.lost.share()},
                      {"layers", static_cast<double>(found.layers.size())},
                      {"storage", format_name(found.worst.storage)}};
  return finding;
}

/// Returns "updates", or "weight decay steps" for the adamw that rounds each of its operations.
const char* noun_of(const SiteInfo& site) {
  return is_decay(site) ? "weight decay steps" : "updates";
}

/// Returns "fc1 and fc2 lose updates in bf16: 80% of the non-zero ones ... Adding them changes
/// nothing."
std::string losses_text(const LostSites& found, const std::string& what, const std::string& format,
                        const std::string& of) {
  std::string text = fmt::format(
      "{} {} {} in {}: {} of the non-zero ones are smaller than half an ulp of the {}. Adding them "
      "changes nothing.",
      name_list(found.names), found.names.size() == 1 ? "loses" : "lose", what, format,
      percent(found.all.share()), of);
  const std::string worst = percent(found.worst.lost.share());
  if (worst != percent(found.all.share())) {
    text += fmt::format(" The worst is {} with {}.", found.worst_name, worst);
  }
  return text;
}

void find_lost_averages(const LaneFacts& lane, std::vector<Finding>& findings) {
  const LostSites found = find_sites(lane, true);
  if (found.layers.empty() || rounds_stochastically(lane)) return;
  Finding finding = finding_of(lane, found);
  const std::string format = format_name(found.worst.storage);
  finding.mechanism = fmt::format(
      "{} loses updates of its moving average: {} of the non-zero ones leave the {} average "
      "unchanged",
      finding.layer, percent(found.worst.lost.share()), format);
  finding.text =
      losses_text(found, "updates of moving averages", format, "average") +
      " Training does not use the averages, but evaluations with them use outdated weights.";
  finding.action = {.layers = found.layers,
                    .text =
                        "Keep the averages in fp32: \"variables\": {\"ema\": \"fp32\"} in the "
                        "plan, or --ema DECAY:format=fp32."};
  const std::string compute = plan_text(lane.info().plan_json, "/variables/ema_compute");
  if (!compute.empty()) {
    finding.action.text += fmt::format(
        " Also compute them in fp32 instead of {}: \"ema_compute\": \"fp32\", or compute=fp32.",
        compute);
  }
  findings.push_back(std::move(finding));
}

/// Returns whether the optimizer may carry what a weight loses in its state, as Kahan summation
/// does: it is none that is known, and a state of the weight is no larger than an ulp of it.
bool may_carry_rest(const LaneFacts& lane, int update) {
  if (!lane.captured() || recorded_optimizer(lane.run().info())) return false;
  const std::string variable = variable_of(lane.site(update));
  const std::optional<int> weight = lane.run().find_site(lane.lane(), variable);
  if (!weight) return false;
  const double largest = lane.run().total(lane.lane(), *weight).max_abs;
  const double ulp = ulp_size(largest, lane.site(*weight).format);
  return std::any_of(lane.info().sites.begin(), lane.info().sites.end(),
                     [&](const SiteInfo& state) {
                       if (state.role != Role::state || !state.name().starts_with(variable + "_"))
                         return false;
                       const TensorStats& stats = lane.run().total(lane.lane(), state.order);
                       return stats.max_abs > 0.0f && static_cast<double>(stats.max_abs) <= ulp;
                     });
}

/// Returns in a sentence why a weight that does not move may have lost nothing; "" if it has.
std::string doubt_about(const LaneFacts& lane, int update) {
  if (steps_on_signs(lane.run().info())) {
    return " Rprop leaves a weight unchanged on purpose where the sign of its gradient changes, so "
           "these updates may not be lost.";
  }
  if (may_carry_rest(lane, update)) {
    return " This optimizer is unknown here, and its state may hold what the weights lose, as with "
           "Kahan summation. Then nothing is lost.";
  }
  return "";
}

void find_lost_weights(const LaneFacts& lane, std::vector<Finding>& findings) {
  const LostSites found = find_sites(lane, false);
  if (found.layers.empty()) return;
  Finding finding = finding_of(lane, found);
  const std::string format = format_name(found.worst.storage);
  const SiteInfo& worst = lane.site(found.worst.worst_site);
  finding.mechanism =
      fmt::format("{} loses {}: {} of the non-zero ones leave the {} weight unchanged",
                  found.worst_name, noun_of(worst), percent(found.worst.lost.share()), format);
  if (rounds_stochastically(lane)) {
    finding.severity = Severity::info;
    finding.mechanism += ", which stochastic rounding compensates";
    finding.text = fmt::format(
        "{} of the non-zero updates of {} leave their {} weights unchanged, each by chance. "
        "Stochastic rounding compensates: on average, no update is lost.",
        percent(found.all.share()), name_list(found.names), format);
    findings.push_back(std::move(finding));
    return;
  }
  finding.text = losses_text(found, noun_of(worst), format, "weight");
  if (lane.scales_loss()) {
    finding.text += " A loss scale does not help, because it is divided out before the update.";
  }
  const std::string doubt = doubt_about(lane, found.worst.worst_site);
  if (!doubt.empty()) {
    finding.severity = Severity::info;
    finding.text += doubt;
    findings.push_back(std::move(finding));
    return;
  }
  finding.text += " Master weights in fp32 keep them.";
  finding.action = {.edit = PlanEdit::of(FixKind::weights_fp32),
                    .layers = found.layers,
                    .text =
                        "Keep fp32 master weights: "
                        "\"variables\": {\"storage\": \"fp32\"} in the plan."};
  findings.push_back(std::move(finding));
}

void find_lost_updates(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.full_precision()) return;
  find_lost_weights(lane, findings);
  find_lost_averages(lane, findings);
}

}  // namespace

const Rule rule::lost_updates{.id = "lost_updates",
                              .run = find_lost_updates,
                              .mechanism = Mechanism::lost_update,
                              .stands_alone = true};

}  // namespace halfscope
