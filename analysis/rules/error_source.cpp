// SPDX-License-Identifier: MIT
#include "analysis/rules/error_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/format_limits.h"
#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/shown_rate.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

double local_of(const SiteError& error) {
  return std::isnan(error.local_fp64) ? error.local_fp32 : error.local_fp64;
}

/// Returns the smallest relative error of an operator that explains the harm.
double explained_from(const Harm& harm) {
  return kExplainingPart * std::min(harm.items.front().error, 1.0);
}

/// Outputs and losses come from the forward pass alone.
bool may_cause(const SiteInfo& site, HarmItem::Of of) {
  if (of == HarmItem::Of::output || of == HarmItem::Of::loss) return site.phase == Phase::forward;
  return site.phase != Phase::update;
}

/// Returns the largest error among a node's operands in the same step.
double error_of_inputs(const LaneFacts& lane, std::span<const SiteError> errors,
                       const SiteError& of) {
  const ForwardNode& node = lane.nodes()[static_cast<size_t>(lane.node_of(of.site))];
  double most = 0.0;
  for (const SiteError& each : errors) {
    if (each.step != of.step || each.other_lane != of.other_lane) continue;
    const int owner = lane.node_of(each.site);
    const auto is_in = [](const std::vector<int>& all, int one) {
      return std::find(all.begin(), all.end(), one) != all.end();
    };
    const bool is_result = lane.nodes()[static_cast<size_t>(owner)].output_site == each.site;
    const bool reads =
        (is_result && is_in(node.inputs, owner)) || is_in(node.weight_sites, each.site);
    if (reads && std::isfinite(each.total)) most = std::max(most, each.total);
  }
  return most;
}

}  // namespace

bool may_explain(const LaneFacts& lane, const Harm& harm, const Finding& finding) {
  if (harm.items.empty() || !of_batch(harm.items.front())) return true;
  const HarmItem& worst = harm.items.front();
  // A loss scale that is too large skips steps. The gradients of others are finite.
  if (finding.cause == Mechanism::loss_scale && std::isfinite(worst.error)) return false;
  const std::optional<int> site = lane.run().find_site(lane.lane(), finding.site);
  if (!site || lane.site(*site).phase != Phase::update) return true;
  // Lost updates cannot make a result wrong that is compared at equal weights. Weights that were
  // updated wrongly can, after the first update.
  const Rule* rule = rule_of(finding);
  const bool stands_still = rule != nullptr && rule->mechanism == Mechanism::lost_update;
  if (!stands_still && !worst.from_start) return true;
  const auto excess = [](const HarmItem& item) { return item.error / item.tolerance; };
  return std::any_of(harm.items.begin(), harm.items.end(), [&](const HarmItem& item) {
    const bool moved = item.of == HarmItem::Of::weight || item.of == HarmItem::Of::average;
    return moved && item.severe == worst.severe && excess(item) > excess(worst);
  });
}

bool cause_is_known(const LaneFacts& lane, const Harm& harm, std::span<const Finding> findings) {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& each) {
    return each.severity >= Severity::warning && may_explain(lane, harm, each);
  });
}

std::string own_error_text(const LaneFacts& lane, const SiteInfo& site, const std::string& name,
                           double error, bool sums_narrow) {
  const std::string by = difference_by(error);
  if (sums_narrow) {
    return fmt::format("{} accumulates in {}, so its output differs from the exact one by {}", name,
                       format_name(site.format), by);
  }
  for (const LayerInfo& layer : lane.info().layers) {
    const bool reads_less = !full_precision(layer.read) && layer.read != site.format;
    if (layer.path != site.path || site.phase != Phase::forward || !reads_less) continue;
    return fmt::format(
        "{} reads its operands in {}, so its output differs from the exact one by {}", name,
        format_name(layer.read), by);
  }
  const std::string how =
      full_precision(site.format) ? "" : " computed in " + format_name(site.format);
  const std::string text = fmt::format("{}{} differs from its exact value by {}", name, how, by);
  constexpr double kMany = 0.1;
  const double tiny = run_rates(lane.run(), lane.lane(), site.order).subnormal;
  if (!(tiny >= kMany)) return text;
  return fmt::format("{}: {} of its numbers are subnormal, with few bits", text, percent(tiny));
}

std::optional<ErrorSource> makes_error(const LaneFacts& lane, const Harm& harm) {
  constexpr double kRoundings = 4.0;
  const int reference = reference_lane(lane.run(), lane.lane());
  const SiteError* most = nullptr;
  for (const SiteError& error : lane.run().errors(lane.lane())) {
    const SiteInfo& site = lane.site(error.site);
    const double local = local_of(error);
    if (error.other_lane != reference || !may_cause(site, harm.items.front().of)) continue;
    const double rounding = std::ldexp(1.0, -site.format.mantissa_bits - 1);
    if (!(local >= explained_from(harm)) || local < kRoundings * rounding) continue;
    const bool gradient = site.phase == Phase::backward;
    if (gradient && is_negligible_gradient(lane, site)) continue;
    if (most == nullptr || local > local_of(*most)) most = &error;
  }
  if (most == nullptr) return std::nullopt;
  return ErrorSource{.site = most->site, .step = most->step, .after = local_of(*most)};
}

std::optional<ErrorSource> grows_error(const LaneFacts& lane, const Harm& harm) {
  constexpr double kLeastError = 1e-4;
  const int reference = reference_lane(lane.run(), lane.lane());
  const std::span<const SiteError> errors = lane.run().errors(lane.lane());
  std::optional<ErrorSource> found;
  double factor = 3.0;  // the error of an operator with several operands grows by as much
  for (const SiteError& error : errors) {
    const SiteInfo& site = lane.site(error.site);
    if (error.other_lane != reference || site.phase != Phase::forward) continue;
    // Variables that went another way do not make results wrong for equal weights.
    if (of_batch(harm.items.front()) && site.role == Role::weight) continue;
    if (!(error.total >= explained_from(harm)) || !std::isfinite(error.total)) continue;
    const double before = error_of_inputs(lane, errors, error);
    const double growth = error.total / std::max(before, kLeastError);
    if (growth <= factor) continue;
    factor = growth;
    found = {.site = error.site, .step = error.step, .before = before, .after = error.total};
  }
  return found;
}

}  // namespace halfscope
