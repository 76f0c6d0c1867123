// SPDX-License-Identifier: MIT
// swamped_additions: sums whose accumulator is so coarse, or has grown so large, that a good part
// of the products added to it change nothing. The share says so by itself: a chain that loses only
// what is far below its own rounding errors loses a few per cent.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// Of the additions of products that are not zero. Measured on digits with lenet and an mlp: fp32
/// chains and tensor cores stay below 0.1 %; chains in fp16 and bf16 lose up to 8 % over 200 terms,
/// and 11 to 22 % (bf16) or 6 to 15 % (fp16) over 700 to 3000.
constexpr double kSwampedShare = 0.1;
/// Shorter sums add too little up for it to matter.
constexpr double kFewProducts = 64.0;

void find_swamped_additions(const LaneFacts& lane, std::vector<Finding>& findings) {
  std::vector<SumDiagnostics> by_site(lane.info().sites.size());
  std::vector<int64_t> first_step(by_site.size(), -1);
  std::vector<Accumulation> accumulations(by_site.size());
  std::vector<std::string> layer_of(by_site.size());
  const auto swamped_share = [](const SumDiagnostics& counts) {
    return counts.products > 0
               ? static_cast<double>(counts.swamped) / static_cast<double>(counts.products)
               : 0.0;
  };
  for (const SiteSums& row : lane.run().sums(lane.lane())) {
    const size_t site = static_cast<size_t>(row.site);
    by_site[site].merge(row.counts);
    accumulations[site] = row.accumulation;
    layer_of[site] = row.layer;
    if (first_step[site] < 0 && swamped_share(row.counts) > kSwampedShare) {
      first_step[site] = row.step;
    }
  }
  std::vector<std::string> layers;
  SumDiagnostics all;
  double worst_share = kSwampedShare;
  int worst_site = -1;
  int64_t step = -1;
  for (const SiteInfo& site : lane.info().sites) {
    const size_t at = static_cast<size_t>(site.order);
    const SumDiagnostics& counts = by_site[at];
    const double share = swamped_share(counts);
    const bool is_long = static_cast<double>(counts.products) >=
                         kFewProducts * static_cast<double>(std::max<int64_t>(counts.sums, 1));
    if (!(share > kSwampedShare) || !is_long) continue;
    layers.push_back(layer_of[at]);
    all.merge(counts);
    if (first_step[at] >= 0 && (step < 0 || first_step[at] < step)) step = first_step[at];
    if (share > worst_share) {
      worst_share = share;
      worst_site = site.order;
    }
  }
  if (worst_site < 0) return;
  layers = lane.in_order(std::move(layers));

  const SiteInfo& site = lane.site(worst_site);
  const Accumulation& accumulation = accumulations[static_cast<size_t>(worst_site)];
  const std::string how = accumulation_name(accumulation);
  const SumDiagnostics& worst = by_site[static_cast<size_t>(worst_site)];
  Finding finding{.rule = "swamped_additions", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.site = site.name();
  finding.layer = layer_of[static_cast<size_t>(worst_site)];
  finding.step = step;
  finding.mechanism =
      fmt::format("{} of the non-zero products summed into {} leave the sum as it was",
                  percent(worst_share), site.name());
  finding.evidence = {{"swamped_share", swamped_share(all)},
                      {"swamped", static_cast<double>(all.swamped)},
                      {"products", static_cast<double>(all.products)},
                      {"worst_swamped_share", worst_share},
                      {"largest", worst.largest},
                      {"layers", static_cast<double>(layers.size())},
                      {"accumulation", how},
                      {"format", format_name(site.format)}};
  finding.text = fmt::format(
      "Sums of {} lose their terms: {} of the products that are not zero change nothing when they "
      "are added (worst: {}, {}, under the accumulation {} to {}). A long sum of terms of one sign "
      "stands still like that.",
      name_list(layers), percent(swamped_share(all)), site.name(), percent(worst_share), how,
      format_name(site.format));
  std::string cures =
      fmt::format("Give {} a wider accumulation (\"accumulate\": \"fp32\" in a rule of the plan)",
                  name_list(layers));
  constexpr int64_t kShort = 64;
  if (accumulation.promote == 0 || accumulation.promote > kShort) {
    Accumulation shorter = accumulation;
    shorter.promote = kShort;
    cures += fmt::format(", or short chains (\"{}\")", accumulation_name(shorter));
  }
  if (accumulation.sums_in_format()) {
    cures += ", or stochastic rounding (\"format:rounding=stochastic\")";
  }
  finding.action = {.text = cures + "."};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::swamped_additions{.id = "swamped_additions", .run = find_swamped_additions};

}  // namespace halfscope
