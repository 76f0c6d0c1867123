// SPDX-License-Identifier: MIT
// lost_updates: variables kept in a narrow format whose updates are mostly too small to change
// them: an update below half the spacing at w is not zero, yet w + update rounds back to w. Moving
// averages of variables, which take small steps by their nature, are judged by themselves.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/format_limits.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "analysis/run_rates.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope {
namespace {

constexpr double kLostShare = 0.5;

/// What the plan keeps variables in; the update's own format if the plan does not say.
FloatFormat storage_of(const LaneFacts& lane, const SiteInfo& site) {
  const std::string storage = plan_text(lane.info().plan_json, "/variables/storage");
  return parse_format(storage).value_or(site.format);
}

/// New weights are rounded up or down at random, so that a small update moves one in many.
bool is_made_up_for(const LaneFacts& lane) {
  const auto rounding = parse_rounding(plan_text(lane.info().plan_json, "/variables/rounding"));
  return rounding && rounding->mode == RoundingMode::stochastic;
}

struct LostCounts {
  int64_t lost = 0, non_zero = 0;
  int64_t first_step = -1;
  double share() const { return share_of(lost, non_zero); }
};

LostCounts measure_site(const LaneFacts& lane, int site) {
  LostCounts result;
  for (const PackedWindow& window : lane.run().windows(lane.lane(), site)) {
    const TensorCounts counts = window.counts();
    result.lost += counts.lost;
    result.non_zero += non_zero_values(counts);
    if (counts.lost > 0 && result.first_step < 0) result.first_step = window.step;
  }
  return result;
}

/// What is added to a moving average.
bool moves_average(const LaneFacts& lane, const SiteInfo& site) {
  constexpr std::string_view kUpdate = "_update";
  const std::string name = site.name();
  if (site.role != Role::update || !name.ends_with(kUpdate)) return false;
  const std::optional<int> state =
      lane.run().find_site(lane.lane(), name.substr(0, name.size() - kUpdate.size()));
  return state && lane.is_average(lane.site(*state));
}

struct LostSites {
  std::vector<std::string> layers;
  LostCounts all;
  int worst_site = -1;
  double worst_share = kLostShare;
  int64_t first_step = -1;
  FloatFormat storage = kFp32;
};

/// Those of variables, or of their averages.
LostSites find_sites(const LaneFacts& lane, bool averages) {
  LostSites found;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::update || moves_average(lane, site) != averages) continue;
    const LostCounts lost = measure_site(lane, site.order);
    if (!(lost.share() > kLostShare)) continue;
    const FloatFormat kept_in = averages ? site.format : storage_of(lane, site);
    // fp32 may stand still too, at the end of training: nothing a format could change.
    if (full_precision(kept_in)) continue;
    found.storage = kept_in;
    found.layers.push_back(site.path);
    found.all.lost += lost.lost;
    found.all.non_zero += lost.non_zero;
    if (found.first_step < 0 || lost.first_step < found.first_step) {
      found.first_step = lost.first_step;
    }
    if (lost.share() > found.worst_share) {
      found.worst_share = lost.share();
      found.worst_site = site.order;
    }
  }
  found.layers = lane.in_order(std::move(found.layers));
  return found;
}

/// What findings of both kinds say alike.
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

void find_lost_averages(const LaneFacts& lane, std::vector<Finding>& findings) {
  const LostSites found = find_sites(lane, true);
  if (found.worst_site < 0 || is_made_up_for(lane)) return;
  Finding finding = finding_of(lane, found);
  const std::string format = format_name(found.storage);
  finding.mechanism = fmt::format("{} of the non-zero updates of {} leave the {} average unchanged",
                                  percent(found.worst_share), finding.site, format);
  finding.text = fmt::format(
      "The moving averages of the weights of {} stand still in {}: {} of their non-zero updates, 1 "
      "- decay "
      "of the way to the weight, are smaller than half the spacing of {} there, so adding them "
      "changes nothing (worst: {}, {}). Training itself takes no notice; whoever uses the averages "
      "gets old weights.",
      name_list(found.layers), format, percent(found.all.share()), format, finding.site,
      percent(found.worst_share));
  finding.action = {.layers = found.layers,
                    .text =
                        "Keep the averages in fp32: \"variables\": {\"ema\": \"fp32\"} in the "
                        "plan, or --ema DECAY:format=fp32."};
  const std::string compute = plan_text(lane.info().plan_json, "/variables/ema_compute");
  if (!compute.empty()) {
    finding.action.text += fmt::format(
        " Compute them in fp32, too, not in {}: \"ema_compute\": \"fp32\", or compute=fp32.",
        compute);
  }
  findings.push_back(std::move(finding));
}

void find_lost_weights(const LaneFacts& lane, std::vector<Finding>& findings) {
  const LostSites found = find_sites(lane, false);
  if (found.worst_site < 0) return;
  Finding finding = finding_of(lane, found);
  const std::string format = format_name(found.storage);
  finding.mechanism = fmt::format("{} of the non-zero updates of {} leave the {} weight unchanged",
                                  percent(found.worst_share), finding.site, format);
  finding.text = fmt::format(
      "Most updates are lost in {}: {} of the non-zero ones are smaller than half the spacing of "
      "{} at the weight, so adding them changes nothing (worst: {}, {}). A loss scale does not "
      "help, since it is divided out before the update; fp32 master weights do.",
      name_list(found.layers), percent(found.all.share()), format, finding.site,
      percent(found.worst_share));
  finding.action = {.edit = {.fp32_storage = true},
                    .layers = found.layers,
                    .text =
                        "Keep the variables in fp32 (master weights): "
                        "\"variables\": {\"storage\": \"fp32\"} in the plan."};
  if (is_made_up_for(lane)) {
    finding.severity = Severity::info;
    finding.mechanism += ", which stochastic rounding makes up for";
    finding.text = fmt::format(
        "{} of the non-zero updates of {} leave their {} weights unchanged, each by chance: "
        "rounded "
        "stochastically, they count in full on average.",
        percent(found.all.share()), name_list(found.layers), format);
    finding.action = {};
  }
  findings.push_back(std::move(finding));
}

void find_lost_updates(const LaneFacts& lane, std::vector<Finding>& findings) {
  find_lost_weights(lane, findings);
  find_lost_averages(lane, findings);
}

}  // namespace

const Rule rule::lost_updates{.id = "lost_updates", .run = find_lost_updates, .stands_alone = true};

}  // namespace halfscope
