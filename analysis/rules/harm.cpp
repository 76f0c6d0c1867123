// SPDX-License-Identifier: MIT
// harm: a result of the lane is too far from its reference's. It comes before all causes, and where
// no other rule knows one it says where the error grows.
#include "analysis/rules/harm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

Finding finding_of(const LaneFacts& lane, const Harm& harm) {
  const HarmItem& worst = harm.items.front();
  Finding finding;
  finding.rule = "harm";
  finding.lane = lane.lane();
  finding.severity = worst.severe ? Severity::error : Severity::warning;
  finding.step = worst.step;
  finding.mechanism = worst.text;
  finding.evidence = {{"result", std::string(harm_name(worst.of))},
                      {"name", worst.name},
                      {"error", worst.error},
                      {"tolerance", worst.tolerance}};
  finding.text = lane.info().name + ": " + worst.text + ".";
  for (size_t i = 1; i < harm.items.size(); ++i) {
    std::string text = harm.items[i].text;
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    finding.text += " " + text + ".";
  }
  return finding;
}

double local_of(const SiteError& error) {
  return std::isnan(error.local_fp64) ? error.local_fp32 : error.local_fp64;
}

/// The largest error among what a node reads, in the same step.
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

/// Where the error of a lane comes about, as far as comparisons show it; "" if they do not.
std::string where_it_grows(const LaneFacts& lane, double harm) {
  constexpr double kPart = 0.3, kLeastError = 1e-4;
  const int reference = reference_lane(lane.run(), lane.lane());
  const std::span<const SiteError> errors = lane.run().errors(lane.lane());
  const SiteError *most = nullptr, *grows = nullptr;
  double factor = 3.0;  // the error of an operator with several operands grows by as much
  for (const SiteError& error : errors) {
    if (error.other_lane != reference) continue;
    const double local = local_of(error);
    if (!std::isnan(local) && (most == nullptr || local > local_of(*most))) most = &error;
    const bool is_forward = lane.site(error.site).phase == Phase::forward;
    if (!is_forward || !(error.total >= kPart * harm) || !std::isfinite(error.total)) continue;
    const double before = std::max(error_of_inputs(lane, errors, error), kLeastError);
    if (error.total / before <= factor) continue;
    factor = error.total / before;
    grows = &error;
  }
  if (most == nullptr) return "";
  const std::string site = lane.site(most->site).name();
  if (std::isinf(local_of(*most))) {
    return fmt::format("{} is the first operator to give results that are of no use", site);
  }
  if (local_of(*most) < kPart * harm && grows != nullptr) {
    return fmt::format("the error grows at {}, from {} to {}", lane.site(grows->site).name(),
                       percent(error_of_inputs(lane, errors, *grows)), percent(grows->total));
  }
  return fmt::format("{} adds the largest error of a single operator, {}", site,
                     percent(local_of(*most)));
}

void find_harm(const LaneFacts& lane, std::vector<Finding>& findings) {
  const Harm harm = harm_of(lane);
  if (harm.items.empty()) return;
  Finding finding = finding_of(lane, harm);
  const bool has_cause = std::any_of(findings.begin(), findings.end(), [](const Finding& each) {
    return each.severity >= Severity::warning;
  });
  if (!has_cause) {
    const std::string where = where_it_grows(lane, std::min(harm.items.front().error, 1.0));
    finding.action.text = "The cause was not found";
    finding.action.text += where.empty() ? "." : ": " + where + ".";
    finding.text += " " + finding.action.text;
  }
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::harm{.id = "harm", .run = find_harm};

}  // namespace halfscope
