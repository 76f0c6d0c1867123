// SPDX-License-Identifier: MIT
// cancellation: a sum or difference whose result is much smaller than an operand that was rounded
// before. The operand's rounding error is small beside the operand and large beside the result.
//
// Rounding to nearest moves a number by a third of half an ulp or more on average. So an operand of
// p significant bits that is c times as large as the result adds an error of about 0.4 c 2^-p.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "analysis/format_limits.h"
#include "analysis/rules/error_source.h"
#include "analysis/rules/rounded_sources.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// A result this many times smaller than an operand cancels most of it.
constexpr double kCancels = 8.0;
constexpr double kUsualError = 0.4;

double mean_size(const TensorStats& stats) {
  const int64_t finite = stats.n - stats.non_finite();
  return finite > 0 ? std::sqrt(stats.sum_sq / static_cast<double>(finite)) : 0.0;
}

/// Returns the mean size of a node's output over the run; 0 if it is unknown. The reference's,
/// which no earlier error has changed.
double size_of(const LaneFacts& lane, int node) {
  const int site = lane.nodes()[static_cast<size_t>(node)].output_site;
  const std::optional<int> theirs = site < 0 ? std::nullopt : lane.reference_site(site);
  return theirs ? mean_size(lane.run().total(lane.reference(), *theirs)) : 0.0;
}

/// A difference, and the operand of which it leaves little.
struct Cancelled {
  int node = -1, operand = -1;
  int64_t step = -1;
  double times = 0.0;  ///< how much smaller the result is
  double error = 0.0;  ///< of the result
};

/// Returns the operand whose rounding explains a part of the node's error.
std::optional<Cancelled> cancelled_at(const LaneFacts& lane, const SiteError& error) {
  const int node = lane.node_of(error.site);
  const ForwardNode& own = lane.nodes()[static_cast<size_t>(node)];
  if (own.layer < 0 || own.output_site != error.site) return std::nullopt;
  const std::string& op = lane.info().layers[static_cast<size_t>(own.layer)].op;
  const double result = size_of(lane, node);
  if ((op != "Add" && op != "Sub" && op != "Sum") || !(result > 0.0)) return std::nullopt;
  std::optional<Cancelled> worst;
  for (const int operand : own.inputs) {
    if (!is_rounded(lane, operand)) continue;
    const SiteInfo& site = lane.site(lane.nodes()[static_cast<size_t>(operand)].output_site);
    const double times = size_of(lane, operand) / result;
    const double usual = kUsualError * times * std::ldexp(1.0, -site.format.mantissa_bits - 1);
    if (times < kCancels || usual < kExplainingPart * std::min(error.total, 1.0)) continue;
    if (worst && times <= worst->times) continue;
    worst = Cancelled{node, operand, error.step, times, error.total};
  }
  return worst;
}

std::optional<Cancelled> worst_cancellation(const LaneFacts& lane, const Harm& harm) {
  const int reference = reference_lane(lane.run(), lane.lane());
  const double least = kExplainingPart * std::min(harm.items.front().error, 1.0);
  std::optional<Cancelled> worst;
  for (const SiteError& error : lane.run().errors(lane.lane())) {
    if (error.other_lane != reference || lane.site(error.site).phase != Phase::forward) continue;
    if (!(error.total >= least) || !std::isfinite(error.total)) continue;
    const std::optional<Cancelled> found = cancelled_at(lane, error);
    if (found && (!worst || found->error > worst->error)) worst = found;
  }
  return worst;
}

/// Adds the nodes that round the large numbers or what these are products of.
void add_sources(const LaneFacts& lane, int node, double least, std::vector<std::string>& paths) {
  const ForwardNode& own = lane.nodes()[static_cast<size_t>(node)];
  if (!is_rounded(lane, node) || size_of(lane, node) < least) return;
  if (std::find(paths.begin(), paths.end(), own.path) != paths.end()) return;
  paths.push_back(own.path);
  const std::string& op = lane.info().layers[static_cast<size_t>(own.layer)].op;
  if (!hands_on(op)) return;
  const bool is_product = op == "Mul" || op == "Div" || op == "Pow" || op == "Sqrt";
  for (const int input : own.inputs) add_sources(lane, input, is_product ? 0.0 : least, paths);
}

void find_cancellation(const LaneFacts& lane, std::vector<Finding>& findings) {
  constexpr double kAsLarge = 0.5;
  if (lane.full_precision() || lane.reference() < 0) return;
  const Harm harm = harm_of(lane);
  if (harm.items.empty() || !harm.in_batches() || cause_is_known(lane, harm, findings)) return;
  const std::optional<Cancelled> found = worst_cancellation(lane, harm);
  if (!found) return;
  const ForwardNode& node = lane.nodes()[static_cast<size_t>(found->node)];
  const ForwardNode& operand = lane.nodes()[static_cast<size_t>(found->operand)];
  const SiteInfo& rounded = lane.site(operand.output_site);
  Finding finding{.rule = "cancellation", .lane = lane.lane()};
  finding.severity = harm.severe() ? Severity::error : Severity::warning;
  finding.site = rounded.name();
  finding.layer = operand.path;
  finding.step = found->step;
  finding.mechanism = fmt::format(
      "{} rounds its output to {}, and {} cancels most of it: the result is {} times smaller",
      operand.path, format_name(rounded.format), node.path, short_number(found->times));
  finding.evidence = {{"times_smaller", found->times}, {"error", found->error}};
  finding.text = fmt::format(
      "{}. So the last bits that {} rounds away count {} times as much, and the result differs "
      "from fp32's by {}.",
      finding.mechanism, operand.path, short_number(found->times), difference_by(found->error));
  std::vector<std::string> layers{node.path};
  const double least = kAsLarge * size_of(lane, found->operand);
  for (const int input : node.inputs) add_sources(lane, input, least, layers);
  finding.action = keep_in_fp32(lane.in_order(std::move(layers)));
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::cancellation{
    .id = "cancellation", .run = find_cancellation, .mechanism = Mechanism::early_rounding};

}  // namespace halfscope
