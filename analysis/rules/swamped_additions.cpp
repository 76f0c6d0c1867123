// SPDX-License-Identifier: MIT
// swamped_additions: sums whose accumulator is so coarse, or has grown so large, that a good part
// of the products added to it change nothing. Only what the reference does not lose at the same
// place counts: terms that are tiny because the data are, like the tail of a softmax, change no sum
// in any format. If the output was computed again in double, it must have suffered, too.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/format_limits.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

/// A share of the additions of non-zero products. Measured on digits with lenet and an mlp: fp32
/// chains and tensor cores stay below 0.1%; chains in fp16 and bf16 lose up to 8% over 200 terms,
/// and 11 to 22 % (bf16) or 6 to 15 % (fp16) over 700 to 3000.
constexpr double kSwampedShare = 0.1;
/// Shorter sums add too few terms for it to matter.
constexpr double kFewProducts = 64.0;
/// A sum with an error below this many roundings of its output lost nothing that matters.
constexpr double kFewRoundings = 4.0;

/// Losses of the sums of a tensor.
struct Swamped {
  SumDiagnostics counts;
  double excess = 0.0;  ///< share of the products, beyond that of the reference
  int64_t first_step = -1;
  Accumulation accumulation{};
  std::string layer{};
};

double swamped_share(const SumDiagnostics& counts) {
  return share_of(counts.swamped, counts.products);
}

/// Sums in fp32 or wider; tensor cores cut terms off, but those of fp32 accumulators far below it.
bool sums_in_fp32(const Accumulation& accumulation, const FloatFormat& write) {
  if (accumulation.kind == Accumulation::tensor_core) return !accumulation.half_accumulator;
  return !accumulation.sums_in_format() || full_precision(write);
}

std::optional<double> reference_share(const LaneFacts& lane, int site) {
  const std::optional<int> theirs = lane.reference_site(site);
  if (!theirs) return std::nullopt;
  SumDiagnostics counts;
  for (const SiteSums& row : lane.run().sums(lane.reference())) {
    if (row.site == *theirs) counts.merge(row.counts);
  }
  return counts.products > 0 ? std::optional(swamped_share(counts)) : std::nullopt;
}

/// Returns the largest error that the operator itself added, over the compared steps; nothing if it
/// was not measured.
std::optional<double> own_error(const LaneFacts& lane, int site) {
  std::optional<double> largest;
  for (const SiteError& error : lane.run().errors(lane.lane())) {
    if (error.site != site || std::isnan(error.local_fp64)) continue;
    largest = std::max(largest.value_or(0.0), error.local_fp64);
  }
  return largest;
}

std::vector<Swamped> gather_sums(const LaneFacts& lane) {
  std::vector<Swamped> by_site(lane.info().sites.size());
  for (const SiteSums& row : lane.run().sums(lane.lane())) {
    Swamped& sums = by_site[static_cast<size_t>(row.site)];
    sums.counts.merge(row.counts);
    sums.accumulation = row.accumulation;
    sums.layer = row.layer;
    if (sums.first_step < 0 && swamped_share(row.counts) > kSwampedShare) {
      sums.first_step = row.step;
    }
  }
  return by_site;
}

bool loses_terms(const LaneFacts& lane, const SiteInfo& site, Swamped& sums) {
  const double share = swamped_share(sums.counts);
  const bool is_long = static_cast<double>(sums.counts.products) >=
                       kFewProducts * static_cast<double>(std::max<int64_t>(sums.counts.sums, 1));
  if (!(share > kSwampedShare) || !is_long) return false;
  const std::optional<double> theirs = reference_share(lane, site.order);
  if (!theirs && sums_in_fp32(sums.accumulation, site.format)) return false;
  sums.excess = share - theirs.value_or(0.0);
  if (!(sums.excess > kSwampedShare)) return false;
  const double rounding = std::ldexp(1.0, -site.format.mantissa_bits - 1);
  const std::optional<double> error = own_error(lane, site.order);
  return !error || *error > kFewRoundings * rounding;
}

std::string cures_of(const Accumulation& accumulation, const std::string& layers) {
  std::string text;
  if (accumulation.sums_in_format() || accumulation.half_accumulator) {
    text = fmt::format("Let {} accumulate in fp32 (\"accumulate\": \"fp32\" in a rule of the plan)",
                       layers);
  } else {
    text = fmt::format("Use another accumulation for {}: \"pairwise\"", layers);
  }
  constexpr int64_t kShort = 64;
  if (accumulation.promote == 0 || accumulation.promote > kShort) {
    Accumulation shorter = accumulation;
    shorter.promote = kShort;
    text += fmt::format(", or in short chains (\"{}\")", accumulation_name(shorter));
  }
  if (accumulation.sums_in_format()) {
    text += ", or with stochastic rounding (\"format:rounding=stochastic\")";
  }
  return text + ".";
}

void find_swamped_additions(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.full_precision()) return;
  std::vector<Swamped> by_site = gather_sums(lane);
  std::vector<std::string> layers;
  SumDiagnostics all;
  double worst_excess = 0.0;
  int worst_site = -1;
  int64_t step = -1;
  for (const SiteInfo& site : lane.info().sites) {
    Swamped& sums = by_site[static_cast<size_t>(site.order)];
    if (!loses_terms(lane, site, sums)) continue;
    layers.push_back(sums.layer);
    all.merge(sums.counts);
    if (sums.first_step >= 0 && (step < 0 || sums.first_step < step)) step = sums.first_step;
    if (sums.excess > worst_excess) {
      worst_excess = sums.excess;
      worst_site = site.order;
    }
  }
  if (worst_site < 0) return;
  layers = lane.in_order(std::move(layers));

  const SiteInfo& site = lane.site(worst_site);
  const Swamped& worst = by_site[static_cast<size_t>(worst_site)];
  const double worst_share = swamped_share(worst.counts);
  const std::string how = accumulation_name(worst.accumulation);
  const std::string format = format_name(site.format);
  Finding finding{.rule = "swamped_additions", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.site = site.name();
  finding.layer = worst.layer;
  finding.step = step;
  finding.mechanism = fmt::format(
      "{} accumulates in too few bits: {} of the non-zero products are too small to change the "
      "running sum",
      worst.layer, percent(worst_share));
  finding.evidence = {{"swamped_share", swamped_share(all)},
                      {"swamped", static_cast<double>(all.swamped)},
                      {"products", static_cast<double>(all.products)},
                      {"worst_swamped_share", worst_share},
                      {"worst_excess_share", worst_excess},
                      {"largest", worst.counts.largest},
                      {"layers", static_cast<double>(layers.size())},
                      {"accumulation", how},
                      {"format", format}};
  finding.text = fmt::format(
      "{} {} in too few bits: {} of the non-zero products are too small to change the running "
      "sum. The worst is {} with {}, summed as {} to {}.",
      name_list(layers), layers.size() == 1 ? "accumulates" : "accumulate",
      percent(swamped_share(all)), site.name(), percent(worst_share), how, format);
  const double theirs = worst_share - worst_excess;
  if (theirs > 0.0) {
    finding.text += fmt::format(" The fp32 lane loses {} there.", percent(theirs));
  }
  finding.action = {.text = cures_of(worst.accumulation, name_list(layers))};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::swamped_additions{
    .id = "swamped_additions", .run = find_swamped_additions, .mechanism = Mechanism::stalled_sum};

}  // namespace halfscope
