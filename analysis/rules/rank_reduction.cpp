// SPDX-License-Identifier: MIT
// rank_reduction: the sum of the ranks' gradients is further from the exact one than a sum that is
// rounded once, or so far that the gradient is harmed. An all-reduce in few bits rounds at every
// hop, so the error grows with the number of ranks, and terms that are small beside the sum are
// lost.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/rules/rank_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "core/numeric/statistics/rates.h"
#include "core/plan/causes.h"

namespace halfscope {
namespace {

/// "0.18% over 2 ranks, 0.34% over 8": the same gradients, by how many of them were summed.
std::string growth(const LaneFacts& lane, const ReductionError& worst) {
  std::vector<std::string> parts;
  for (const ReductionError& row : lane.run().reductions(lane.lane())) {
    if (row.step != worst.step || row.site != worst.site || row.broken > 0) continue;
    const bool first = parts.empty();
    parts.push_back(
        fmt::format("{} over {}{}", percent(row.error), row.ranks, first ? " ranks" : ""));
  }
  return parts.size() < 2 ? "" : name_list(parts, parts.size());
}

std::string how_it_helps(const Reduction& advised) {
  if (advised.algorithm == Reduction::Algorithm::all_to_all && advised.format != kFp32) {
    Reduction fp32 = advised;
    fp32.format = kFp32;
    return fmt::format(
        "Let each rank sum its part of the gradients in fp32 and round it once (\"reduce\": \"{}\" "
        "under \"variables\" in the plan). This sends no more bytes. Or reduce in fp32 (\"{}\").",
        reduction_text(advised), reduction_text(fp32));
  }
  return fmt::format("Reduce in fp32 (\"reduce\": \"{}\" under \"variables\" in the plan).",
                     reduction_text(advised));
}

void find_rank_reduction(const LaneFacts& lane, std::vector<Finding>& findings) {
  const std::vector<InexactReduction> inexact = inexact_reductions(lane);
  if (inexact.empty()) return;
  const auto weight = [](const InexactReduction& each) {
    return std::tuple(each.matters, each.worst.broken, each.worst.error);
  };
  const InexactReduction& most = *std::max_element(
      inexact.begin(), inexact.end(),
      [&](const InexactReduction& a, const InexactReduction& b) { return weight(a) < weight(b); });
  const ReductionError& worst = most.worst;
  const SiteInfo& site = lane.site(worst.site);
  const Reduction how = reduction_of_lane(lane);
  const std::string format = format_name(site.format);
  const std::string named = std::string(reduction_names()[static_cast<size_t>(how.algorithm)]);

  Finding finding{.rule = "rank_reduction", .lane = lane.lane()};
  finding.severity = most.matters ? Severity::warning : Severity::info;
  finding.site = site.name();
  finding.layer = site.path;
  finding.step = most.first_step;
  const std::string off = worst.broken > 0
                              ? fmt::format("{} values of {} overflow while {} ranks sum them",
                                            worst.broken, site.name(), worst.ranks)
                              : fmt::format("the sum over {} ranks makes {} wrong by {}",
                                            worst.ranks, site.name(), difference_by(worst.error));
  finding.mechanism = fmt::format("{} ({} in {})", off, named, format);
  std::vector<std::string> layers;
  for (const InexactReduction& each : inexact) layers.push_back(lane.site(each.worst.site).path);
  layers = lane.in_order(std::move(layers));
  finding.evidence = {{"cause", mechanism_name(Mechanism::gradient_sum)},
                      {"error", worst.error},
                      {"stored_error", worst.stored},
                      {"broken", static_cast<double>(worst.broken)},
                      {"ranks", static_cast<double>(worst.ranks)},
                      {"swamped_share", share_of(worst.swamped, worst.additions)},
                      {"layers", static_cast<double>(layers.size())},
                      {"reduction", reduction_text(how)},
                      {"format", format}};
  finding.text = fmt::format(
      "The reduction over {} ranks ({} in {}) loses precision in {}. The worst is {}: it differs "
      "from the exact mean of the ranks' gradients by {} at step {}. Rounded once, it would differ "
      "by {}.",
      worst.ranks, named, format, name_list(layers), site.name(), percent(worst.error), worst.step,
      percent(worst.stored));
  if (worst.broken > 0) {
    finding.text += fmt::format(" {} of its values overflow in partial sums.", worst.broken);
  }
  if (const std::string grows = growth(lane, worst); !grows.empty()) {
    finding.text += fmt::format(" The error by number of ranks: {}.", grows);
  }
  if (worst.swamped > 0) {
    finding.text += fmt::format(" {} of the additions change nothing.",
                                percent(share_of(worst.swamped, worst.additions)));
  }
  finding.action.layers = layers;
  if (const std::optional<Reduction> advised = advised_reduction(lane); advised && most.matters) {
    finding.action.edit = reduction_edit(lane);
    finding.action.text = how_it_helps(*advised);
  } else {
    finding.action.text =
        "Nothing to do: this is less than the rounding error of the gradients themselves.";
  }
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::rank_reduction{
    .id = "rank_reduction", .run = find_rank_reduction, .mechanism = Mechanism::gradient_sum};

}  // namespace halfscope
