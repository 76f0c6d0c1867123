// SPDX-License-Identifier: MIT
// lost_updates: variables kept in a narrow format whose updates are mostly too small to change
// them: an update below half the spacing at w is not zero, yet w + update rounds back to w. What
// fp32 loses at the same place does not count. Moving averages of variables, which take small steps
// by design, are judged separately.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "analysis/format_limits.h"
#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "core/numeric/formats/rounding.h"
#include "core/numeric/statistics/ulp.h"

namespace halfscope {
namespace {

constexpr double kLostShare = 0.5;

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
  constexpr std::string_view kUpdate = "_update";
  const std::string name = site.name();
  if (site.role != Role::update || !name.ends_with(kUpdate)) return false;
  const std::optional<int> state =
      lane.run().find_site(lane.lane(), name.substr(0, name.size() - kUpdate.size()));
  return state && lane.is_average(lane.site(*state));
}

/// Returns whether the gradient behind an update is known to be rounding noise, so that nothing is
/// lost with it.
bool is_noise(const LaneFacts& lane, const SiteInfo& update) {
  constexpr std::string_view kUpdate = "_update";
  const std::string name = update.name();
  if (lane.reference() >= 0 || !name.ends_with(kUpdate)) return false;
  const std::optional<int> gradient =
      lane.run().find_site(lane.lane(), name.substr(0, name.size() - kUpdate.size()) + "_grad");
  return gradient && is_negligible_gradient(lane, lane.site(*gradient));
}

struct LostSites {
  std::vector<int> sites;
  std::vector<std::string> layers;
  LostCounts all;
  int worst_site = -1;
  double worst_share = kLostShare;
  int64_t worst_lost = 0;
  int64_t first_step = -1;
  FloatFormat storage = kFp32;
};

/// Returns the lost updates of variables or of their averages.
LostSites find_sites(const LaneFacts& lane, bool averages) {
  LostSites found;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::update || moves_average(lane, site) != averages) continue;
    const LostCounts lost = count_lost(lane.run(), lane.lane(), site.order);
    if (!(lost.share() > kLostShare)) continue;
    if (!(excess_share(lane, site.order, lost) > kLostShare) || is_noise(lane, site)) continue;
    const FloatFormat kept_in = averages ? site.format : storage_of(lane, site);
    // fp32 may stand still too, at the end of training: nothing a format could change.
    if (full_precision(kept_in)) continue;
    found.storage = kept_in;
    found.sites.push_back(site.order);
    found.layers.push_back(site.path);
    found.all.lost += lost.lost;
    found.all.non_zero += lost.non_zero;
    if (found.first_step < 0 || lost.first_step < found.first_step) {
      found.first_step = lost.first_step;
    }
    // Among equal shares, the most lost updates win, however the variables are listed.
    if (std::pair(lost.share(), lost.lost) > std::pair(found.worst_share, found.worst_lost)) {
      found.worst_share = lost.share();
      found.worst_lost = lost.lost;
      found.worst_site = site.order;
    }
  }
  found.layers = lane.in_order(std::move(found.layers));
  return found;
}

/// Returns a finding with the fields that both kinds have in common.
Finding finding_of(const LaneFacts& lane, const LostSites& found) {
  const SiteInfo& site = lane.site(found.worst_site);
  Finding finding{.rule = "lost_updates", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.site = site.name();
  finding.layer = site.path;
  finding.step = found.first_step;
  finding.evidence = {{"lost_share", found.all.share()},
                      {"lost", static_cast<double>(found.all.lost)},
                      {"non_zero_updates", static_cast<double>(found.all.non_zero)},
                      {"worst_lost_share", found.worst_share},
                      {"layers", static_cast<double>(found.layers.size())},
                      {"storage", format_name(found.storage)}};
  return finding;
}

/// Returns "updates", or "weight decay steps" for the adamw that rounds each of its operations.
const char* noun_of(const SiteInfo& site) {
  return site.tensor.ends_with("_decay_update") ? "weight decay steps" : "updates";
}

/// Returns "fc1 and fc2 lose updates in bf16: 80% of the non-zero ones ... Adding them changes
/// nothing."
std::string losses_text(const LaneFacts& lane, const LostSites& found, const std::string& what,
                        const std::string& format, const std::string& of) {
  std::string text = fmt::format(
      "{} {} {} in {}: {} of the non-zero ones are smaller than half an ulp of the {}. Adding them "
      "changes nothing.",
      name_list(found.layers), found.layers.size() == 1 ? "loses" : "lose", what, format,
      percent(found.all.share()), of);
  const std::string worst = percent(found.worst_share);
  if (worst != percent(found.all.share())) {
    text += fmt::format(" The worst is {} with {}.", lane.site(found.worst_site).name(), worst);
  }
  return text;
}

void find_lost_averages(const LaneFacts& lane, std::vector<Finding>& findings) {
  const LostSites found = find_sites(lane, true);
  if (found.worst_site < 0 || rounds_stochastically(lane)) return;
  Finding finding = finding_of(lane, found);
  const std::string format = format_name(found.storage);
  finding.mechanism = fmt::format(
      "{} loses updates of its moving average: {} of the non-zero ones leave the {} average "
      "unchanged",
      finding.layer, percent(found.worst_share), format);
  finding.text =
      losses_text(lane, found, "updates of moving averages", format, "average") +
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
  const std::string end = "_update";
  const std::string name = lane.site(update).name();
  const std::string variable = name.substr(0, name.size() - end.size());
  const std::optional<int> weight = lane.run().find_site(lane.lane(), variable);
  if (!name.ends_with(end) || !weight) return false;
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

/// Returns the layer that loses most, or its variable if the layer's others make up most of it.
std::string loser_of(const LaneFacts& lane, const LostSites& found) {
  const SiteInfo& worst = lane.site(found.worst_site);
  int64_t all = 0, losing = 0;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::update || site.path != worst.path || moves_average(lane, site)) continue;
    all += element_count(site.shape);
    const bool loses =
        std::find(found.sites.begin(), found.sites.end(), site.order) != found.sites.end();
    if (loses) losing += element_count(site.shape);
  }
  if (2 * losing >= all) return worst.path;
  const std::string name = worst.name();
  return name.substr(0, name.rfind('_'));
}

void find_lost_weights(const LaneFacts& lane, std::vector<Finding>& findings) {
  const LostSites found = find_sites(lane, false);
  if (found.worst_site < 0) return;
  Finding finding = finding_of(lane, found);
  const std::string format = format_name(found.storage);
  const SiteInfo& worst = lane.site(found.worst_site);
  finding.mechanism =
      fmt::format("{} loses {}: {} of the non-zero ones leave the {} weight unchanged",
                  loser_of(lane, found), noun_of(worst), percent(found.worst_share), format);
  if (rounds_stochastically(lane)) {
    finding.severity = Severity::info;
    finding.mechanism += ", which stochastic rounding compensates";
    finding.text = fmt::format(
        "{} of the non-zero updates of {} leave their {} weights unchanged, each by chance. "
        "Stochastic rounding compensates: on average, no update is lost.",
        percent(found.all.share()), name_list(found.layers), format);
    findings.push_back(std::move(finding));
    return;
  }
  finding.text = losses_text(lane, found, noun_of(worst), format, "weight");
  if (lane.scales_loss()) {
    finding.text += " A loss scale does not help, because it is divided out before the update.";
  }
  if (may_carry_rest(lane, found.worst_site)) {
    finding.severity = Severity::info;
    finding.text +=
        " This optimizer is unknown here, and its state may hold what the weights lose, as with "
        "Kahan summation. Then nothing is lost.";
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
