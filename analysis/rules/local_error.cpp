// SPDX-License-Identifier: MIT
// local_error: if no other rule knows why a lane's results are wrong, names the operator whose own
// arithmetic causes most of the error, measured against fp64 on the same operands.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/error_source.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

/// Returns "mul flushes 98% of its outputs to zero in fp16"; without such a reason, the error.
std::string what_it_does(const LaneFacts& lane, const ErrorSource& source) {
  constexpr double kMany = 0.01;
  const SiteInfo& site = lane.site(source.site);
  const std::string format = format_name(site.format);
  const std::string what =
      site.phase == Phase::backward ? "the gradient of " + site.path : site.path;
  if (const std::optional<TensorStats> stats = lane.stats(source.site, source.step)) {
    const double share = rates_of(*stats, site.format).underflow;
    if (share >= kMany) {
      return site.phase == Phase::backward
                 ? fmt::format("{} of {} that is not 0 becomes 0 in {}", percent(share), what,
                               format)
                 : fmt::format("{} flushes {} of its non-zero outputs to zero in {}", what,
                               percent(share), format);
    }
  }
  if (!std::isfinite(source.after)) {
    return fmt::format("{} is NaN or infinite in {}, although its operands are finite", what,
                       format);
  }
  return own_error_text(lane, site, what, source.after, false);
}

void find_local_error(const LaneFacts& lane, std::vector<Finding>& findings) {
  const Harm harm = harm_of(lane);
  if (harm.items.empty() || cause_is_known(lane, harm, findings)) return;
  if (!harm.in_batches()) return;  // operators that are right for equal weights are not the cause
  const std::optional<ErrorSource> source = makes_error(lane, harm);
  if (!source) return;
  const SiteInfo& site = lane.site(source->site);
  Finding finding{.rule = "local_error", .lane = lane.lane()};
  finding.severity = harm.severe() ? Severity::error : Severity::warning;
  finding.site = site.name();
  finding.layer = site.path;
  finding.step = source->step;
  finding.mechanism = what_it_does(lane, *source);
  finding.evidence = {{"local_error", source->after}};
  finding.text = fmt::format("{}. No other operator adds a larger error.", finding.mechanism);
  if (finding.text.starts_with("the gradient of ")) finding.text[0] = 'T';
  std::vector<std::string> layers;
  for (const int layer : lane.layers_behind(source->site)) {
    layers.push_back(lane.info().layers[static_cast<size_t>(layer)].path);
  }
  if (!layers.empty()) finding.action = keep_in_fp32(lane.in_order(std::move(layers)));
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::local_error{
    .id = "local_error", .run = find_local_error, .mechanism = Mechanism::rounding};

}  // namespace halfscope
