// SPDX-License-Identifier: MIT
#include "analysis/rules/error_source.h"

#include <algorithm>
#include <cmath>

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
    const bool reads =
        std::find(node.inputs.begin(), node.inputs.end(), owner) != node.inputs.end();
    const bool is_result = lane.nodes()[static_cast<size_t>(owner)].output_site == each.site;
    if (reads && is_result && std::isfinite(each.total)) most = std::max(most, each.total);
  }
  return most;
}

}  // namespace

bool cause_is_known(std::span<const Finding> findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& each) { return each.severity >= Severity::warning; });
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
    const bool is_forward = lane.site(error.site).phase == Phase::forward;
    if (error.other_lane != reference || !is_forward) continue;
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
