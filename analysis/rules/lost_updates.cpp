// SPDX-License-Identifier: MIT
// lost_updates: variables kept in a narrow format whose updates are mostly too small to change
// them: an update below half the spacing at w is not zero, yet w + update rounds back to w.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/rules/format_limits.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "core/numeric/rounding.h"

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

struct Lost {
  int64_t lost = 0, non_zero = 0;
  int64_t first_step = -1;
  double share() const {
    return non_zero > 0 ? static_cast<double>(lost) / static_cast<double>(non_zero) : 0.0;
  }
};

Lost measure_site(const LaneFacts& lane, int site) {
  Lost result;
  for (const PackedWindow& window : lane.run().windows(lane.lane(), site)) {
    const TensorCounts counts = window.counts();
    result.lost += counts.lost;
    result.non_zero += counts.n - counts.zero - counts.non_finite();
    if (counts.lost > 0 && result.first_step < 0) result.first_step = window.step;
  }
  return result;
}

}  // namespace

void find_lost_updates(const LaneFacts& lane, std::vector<Finding>& findings) {
  std::vector<std::string> layers;
  Lost all;
  int worst_site = -1;
  double worst_share = kLostShare;
  int64_t first_step = -1;
  FloatFormat storage = kFp32;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::update) continue;
    const Lost lost = measure_site(lane, site.order);
    if (!(lost.share() > kLostShare)) continue;
    const FloatFormat kept_in = storage_of(lane, site);
    // fp32 may stand still too, at the end of training: nothing a format could change.
    if (full_precision(kept_in)) continue;
    storage = kept_in;
    layers.push_back(site.path);
    all.lost += lost.lost;
    all.non_zero += lost.non_zero;
    if (first_step < 0 || lost.first_step < first_step) first_step = lost.first_step;
    if (lost.share() > worst_share) {
      worst_share = lost.share();
      worst_site = site.order;
    }
  }
  if (worst_site < 0) return;
  layers = lane.in_order(std::move(layers));

  const SiteInfo& site = lane.site(worst_site);
  const std::string format = format_name(storage);
  Finding finding{.rule = "lost_updates", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.site = site.name();
  finding.layer = site.path;
  finding.step = first_step;
  finding.mechanism = fmt::format("{} of the non-zero updates of {} leave the {} weight unchanged",
                                  percent(worst_share), site.name(), format);
  finding.evidence = {{"lost_share", all.share()},
                      {"lost", static_cast<double>(all.lost)},
                      {"non_zero_updates", static_cast<double>(all.non_zero)},
                      {"worst_lost_share", worst_share},
                      {"layers", static_cast<double>(layers.size())},
                      {"storage", format}};
  finding.text = fmt::format(
      "Most updates are lost in {}: {} of them are not zero, yet smaller than half the spacing of "
      "{} at the weight, so adding them changes nothing (worst: {}, {}). A loss scale does not "
      "help, since it is divided out before the update; fp32 master weights do.",
      name_list(layers), percent(all.share()), format, site.name(), percent(worst_share));
  finding.action = {.kind = Action::Kind::format,
                    .layers = layers,
                    .text =
                        "Keep the variables in fp32 (master weights): "
                        "\"variables\": {\"storage\": \"fp32\"} in the plan."};
  if (is_made_up_for(lane)) {
    finding.severity = Severity::info;
    finding.mechanism += ", which stochastic rounding makes up for";
    finding.text = fmt::format(
        "{} of the updates of {} leave their {} weights unchanged, each by chance: rounded "
        "stochastically, they count in full on average.",
        percent(all.share()), name_list(layers), format);
    finding.action = {.kind = Action::Kind::none, .layers = {}, .text = ""};
  }
  findings.push_back(std::move(finding));
}

}  // namespace halfscope
