// SPDX-License-Identifier: MIT
#include "analysis/causes/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/format_limits.h"
#include "analysis/rules/absorbed.h"
#include "analysis/rules/error_source.h"
#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/lost_energy.h"
#include "analysis/rules/site_words.h"
#include "analysis/rules/text.h"
#include "analysis/skipped_steps.h"
#include "core/numeric/statistics/rates.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// A share of a tensor counts from here on.
constexpr double kLeastShare = 0.001;
/// An operator that rounds once has an error of at most half an ulp in every element.
constexpr double kRoundings = 4.0;
/// Least share of a tensor that becomes 0 where sums and differences cancel, and behind them.
constexpr double kCancelledShare = 0.01, kZeroedShare = 0.1;

double unit_of(const FloatFormat& format) { return std::ldexp(1.0, -format.mantissa_bits - 1); }

/// Returns the statistics of a site over the whole run.
const TensorStats& total_of(const LaneFacts& lane, int site) {
  return lane.run().total(lane.lane(), site);
}

/// Returns whether the site is a constant that becomes 0 or infinite in its format. Infinities of a
/// mask do no harm.
bool is_bad_constant(const LaneFacts& lane, int site) {
  const TensorStats& stats = total_of(lane, site);
  if (!is_constant(lane.site(site)) || stats.overflow + stats.underflow == 0) return false;
  const auto harms = [&](const RecordedStep& step) { return step.is_bad(site); };
  const std::vector<RecordedStep>& steps = lane.recorded();
  return stats.underflow > 0 || std::any_of(steps.begin(), steps.end(), harms);
}

/// Returns the comparison of a site with the lane's reference that has the largest local error.
const SiteError* worst_error(const LaneFacts& lane, int site) {
  const int reference = reference_lane(lane.run(), lane.lane());
  const SiteError* worst = nullptr;
  const auto local = [](const SiteError& e) {
    const double own = std::isnan(e.local_fp64) ? e.local_fp32 : e.local_fp64;
    return std::isnan(own) ? -1.0 : own;
  };
  for (const SiteError& each : lane.run().errors(lane.lane())) {
    if (each.site != site || each.other_lane != reference) continue;
    if (worst == nullptr || local(each) > local(*worst)) worst = &each;
  }
  return worst;
}

double local_error(const SiteError& error) {
  return std::isnan(error.local_fp64) ? error.local_fp32 : error.local_fp64;
}

int64_t reference_zeros(const LaneFacts& lane, int site) {
  const std::optional<int> theirs = lane.reference_site(site);
  if (!theirs || lane.reference() < 0) return 0;
  const TensorStats& stats = lane.run().total(lane.reference(), *theirs);
  return stats.zero + stats.underflow;
}

/// Returns whether all numbers of a tensor in fp32 are integers, as far as statistics show it: the
/// smallest, the largest and the sums are integers. Large fp32 numbers are always integers, so it
/// must be unlikely enough (one in a thousand) for numbers of that size.
bool has_integers(const TensorStats& stats) {
  constexpr double kUnlikely = 1e-3;
  const auto whole = [](double x) { return std::isfinite(x) && x == std::floor(x); };
  const auto step = [](float x) {  // between neighbours in fp32: the chance to be whole
    return std::min(1.0, std::ldexp(1.0, std::ilogb(x) - kFp32.mantissa_bits));
  };
  if (stats.non_zero() == 0 || stats.non_finite() > 0 || stats.min_abs < 1.0f) return false;
  double chance = step(stats.min_abs);
  if (stats.max_abs > stats.min_abs) chance *= step(stats.max_abs);
  if (stats.n > 2) chance *= step(stats.min_abs);  // the sum
  return chance < kUnlikely && whole(static_cast<double>(stats.min_abs)) &&
         whole(static_cast<double>(stats.max_abs)) && whole(stats.sum) && whole(stats.sum_sq);
}

/// Returns the forward sites of a node: its narrowed operands, and its output.
std::vector<int> forward_sites(const LaneFacts& lane, int node) {
  std::vector<int> sites;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.phase == Phase::forward && site.role != Role::state &&
        lane.node_of(site.order) == node && !is_loss_scale(site)) {
      sites.push_back(site.order);
    }
  }
  return sites;
}

/// Returns whether the node, or the reader of a variable or data, sums in the narrow format of its
/// output.
bool sums_in_its_format(const LaneFacts& lane, int node) {
  const Plan plan = plan_from_json(lane.info().plan_json);
  const std::vector<int> nodes = planned_nodes(lane, node);
  return std::any_of(nodes.begin(), nodes.end(), [&](int each) {
    const ForwardNode& own = lane.nodes()[static_cast<size_t>(each)];
    if (own.layer < 0) return false;
    const LayerInfo& layer = lane.info().layers[static_cast<size_t>(own.layer)];
    const NodePlan how = resolve(plan, layer.path, layer.op);
    return how.accumulation.sums_in_format() && how.write != kFp32;
  });
}

/// Returns a constant that becomes 0 or infinite in the format.
std::optional<Suspect> bad_constant(const LaneFacts& lane, int node,
                                    const std::vector<int>& sites) {
  for (const int order : sites) {
    const SiteInfo& site = lane.site(order);
    if (!is_bad_constant(lane, order)) continue;
    const TensorStats& stats = total_of(lane, order);
    const bool large = stats.overflow > 0;
    Suspect suspect{.node = node, .site = order, .mechanism = Mechanism::constant, .weight = 1.0};
    // Statistics know only the sign of the sum, which is the sign of the largest numbers.
    const double value = large || stats.min_abs == stats.max_abs
                             ? std::copysign(large ? stats.max_abs : stats.min_abs, stats.sum)
                             : static_cast<double>(stats.min_abs);
    suspect.text =
        fmt::format("{} reads the constant {}, which is {} in {}", site.path, short_number(value),
                    large ? "infinite" : "0", format_name(site.format));
    return suspect;
  }
  return std::nullopt;
}

/// Operands were corrupted elsewhere, or only because the node reads them again in a narrow format;
/// the node's own outputs count more.
constexpr double kReads = 0.45;

bool is_result(const SiteInfo& site) { return site.role == Role::activation; }

std::optional<Suspect> overflow_at(const LaneFacts& lane, int node, int order) {
  const SiteInfo& site = lane.site(order);
  const TensorStats& stats = total_of(lane, order);
  if (stats.overflow == 0 || stats.n == stats.non_finite()) return std::nullopt;
  Suspect suspect{.node = node, .site = order, .mechanism = Mechanism::forward_overflow};
  suspect.weight = site.role == Role::input ? kReads : 1.0;
  suspect.text = fmt::format("{} (the largest is {})", overflow_text(lane, site),
                             short_number(static_cast<double>(stats.max_abs)));
  return suspect;
}

/// Returns the overflow of data that the node reads, as the reason for an output that is NaN or
/// infinite.
std::optional<Suspect> overflow_of_data(const LaneFacts& lane, int node) {
  for (const int input : lane.nodes()[static_cast<size_t>(node)].inputs) {
    if (lane.nodes()[static_cast<size_t>(input)].layer >= 0) continue;
    for (const int order : forward_sites(lane, input)) {
      if (full_precision(lane.site(order).format) || !lane.site(order).scale.empty()) continue;
      std::optional<Suspect> found = overflow_at(lane, node, order);
      if (!found) continue;
      found->weight = 1.0;
      return found;
    }
  }
  return std::nullopt;
}

/// Returns the share of normally distributed values that becomes 0 where the largest of them, some
/// three standard deviations away, just fits: their density at 0 is 0.4 a standard deviation.
double usual_zeros(const FloatFormat& format) {
  constexpr double kDensity = 0.4, kLargest = 3.0;
  return 2.0 * kDensity * kLargest * flush_threshold(format) / format.max_finite();
}

/// Returns zeros that the reference does not have.
std::optional<Suspect> flush_at(const LaneFacts& lane, int node, int order,
                                const std::string& reader) {
  const SiteInfo& site = lane.site(order);
  const TensorStats& stats = total_of(lane, order);
  const int64_t more = stats.zero + stats.underflow - reference_zeros(lane, order);
  if (stats.underflow == 0 || more <= 0) return std::nullopt;
  const double share = rates_of(stats, site.format).underflow;
  const double usual = site.scale.empty() ? 0.0 : 2.0 * usual_zeros(site.format);
  if (share < kLeastShare + usual) return std::nullopt;
  Suspect suspect{.node = node, .site = order};
  suspect.mechanism = site.scale.empty() ? Mechanism::forward_flush : Mechanism::outlier_scale;
  suspect.weight = std::min(share, 0.9) * (site.role == Role::input ? kReads : 1.0);
  const std::string what =
      is_result(site) ? "its non-zero outputs" : "the non-zero values it reads";
  suspect.text =
      site.scale.empty()
          ? fmt::format("{} underflows {}: {} of {} become 0, because the smallest number is {}",
                        site.path, format_name(site.format), percent(share), what,
                        short_number(site.format.min_subnormal()))
          : fmt::format(
                "{} reads {} with scales that fit the largest values, so {} of the others become "
                "0",
                reader, format_name(site.format), percent(share));
  return suspect;
}

/// Returns weights that are 0 or infinite as stored: their readers show no loss of their own.
std::optional<Suspect> lost_weights(const LaneFacts& lane, int node, int order) {
  const SiteInfo& site = lane.site(order);
  const TensorStats& stats = total_of(lane, order);
  const std::optional<int> theirs = lane.reference_site(order);
  if (site.role != Role::weight || !lane.inference() || !theirs || lane.reference() < 0) {
    return std::nullopt;
  }
  const TensorStats& reference = lane.run().total(lane.reference(), *theirs);
  const int64_t infinite = stats.non_finite() - reference.non_finite();
  const int64_t zeros = stats.zero - reference.zero;
  const bool large = infinite > 0;
  const double share = static_cast<double>(large ? infinite : zeros) / static_cast<double>(stats.n);
  if (!large && !(share >= kLeastShare)) return std::nullopt;
  Suspect suspect{.node = node, .site = order};
  suspect.mechanism = large ? Mechanism::forward_overflow : Mechanism::forward_flush;
  suspect.weight = large ? 1.0 : std::min(share, 0.9);
  suspect.text = fmt::format(
      "{} has weights that {} cannot represent: {} of them become {}, because the {} number is {}",
      site.path, format_name(site.format), percent(share), large ? "infinite" : "0",
      large ? "largest" : "smallest",
      short_number(large ? site.format.max_finite() : site.format.min_subnormal()));
  return suspect;
}

/// Returns scales that clip the largest values of blocks.
std::optional<Suspect> clipped_at(const LaneFacts& lane, int node, int order,
                                  const std::string& reader) {
  const SiteInfo& site = lane.site(order);
  const TensorStats& stats = total_of(lane, order);
  if (site.scale.empty() || stats.overflow == 0) return std::nullopt;
  const double share = static_cast<double>(stats.overflow) / static_cast<double>(stats.n);
  if (share < kLeastShare) return std::nullopt;
  return Suspect{.node = node,
                 .site = order,
                 .mechanism = Mechanism::clipped_blocks,
                 .weight = std::min(0.9, 10.0 * share),
                 .text = fmt::format("{} reads {} with scales that clip {} of the values", reader,
                                     format_name(site.format), percent(share))};
}

/// Returns the reason for an output that is too far from the exact one.
std::optional<Suspect> own_error(const LaneFacts& lane, int node) {
  const int order = lane.nodes()[static_cast<size_t>(node)].output_site;
  if (order < 0 || lane.nodes()[static_cast<size_t>(node)].layer < 0) return std::nullopt;
  const SiteInfo& site = lane.site(order);
  const SiteError* error = worst_error(lane, order);
  if (error == nullptr) return std::nullopt;
  const double local = local_error(*error);
  if (std::isnan(local)) return std::nullopt;
  const double unit = unit_of(site.format);
  Suspect suspect{.node = node, .site = order};
  if (local >= kRoundings * unit) {
    const bool stalls = sums_in_its_format(lane, node);
    suspect.mechanism = stalls                 ? Mechanism::stalled_sum
                        : std::isfinite(local) ? Mechanism::rounding
                                               : Mechanism::forward_overflow;
    suspect.weight = std::min(1.0, local);
    suspect.text =
        std::isfinite(local)
            ? own_error_text(lane, site, site.path, local, stalls)
            : fmt::format("{} is NaN or infinite in {}, although its operands are finite",
                          site.path, format_name(site.format));
    return suspect;
  }
  return std::nullopt;
}

/// Returns the sites of a node's scaled operands, data and variables included.
std::vector<int> scaled_operands(const LaneFacts& lane, int node) {
  std::vector<int> sites = forward_sites(lane, node);
  for (const int input : lane.nodes()[static_cast<size_t>(node)].inputs) {
    if (lane.nodes()[static_cast<size_t>(input)].layer >= 0) continue;
    const std::vector<int> more = forward_sites(lane, input);
    sites.insert(sites.end(), more.begin(), more.end());
  }
  std::erase_if(sites, [&](int order) {
    return lane.site(order).scale.empty() || is_result(lane.site(order));
  });
  return sites;
}

/// Returns the worst loss by scales among a node's operands.
std::optional<Suspect> lost_by_scales(const LaneFacts& lane, int node) {
  const std::string& path = lane.nodes()[static_cast<size_t>(node)].path;
  std::optional<Suspect> worst;
  for (const int order : scaled_operands(lane, node)) {
    for (std::optional<Suspect> found :
         {clipped_at(lane, node, order, path), flush_at(lane, node, order, path)}) {
      if (found && (!worst || found->weight > worst->weight)) worst = std::move(found);
    }
  }
  return worst;
}

/// Returns integers beyond the range in which the format represents every integer.
std::optional<Suspect> lost_integers(const LaneFacts& lane, int node, int order) {
  const SiteInfo& site = lane.site(order);
  const TensorStats& stats = total_of(lane, order);
  const double end = std::ldexp(1.0, site.format.mantissa_bits + 1);
  if (static_cast<double>(stats.max_abs) <= end || stats.overflow > 0) return std::nullopt;
  const std::optional<int> theirs = lane.reference_site(order);
  if (!theirs || lane.reference() < 0) return std::nullopt;
  if (!has_integers(lane.run().total(lane.reference(), *theirs))) return std::nullopt;
  Suspect suspect{.node = node, .site = order, .mechanism = Mechanism::integer_in_float};
  suspect.weight = 0.95;
  suspect.text =
      fmt::format("{} contains integers up to {}, but {} represents all of them only up to {}",
                  subject_of(site).name, short_number(static_cast<double>(stats.max_abs)),
                  format_name(site.format), short_number(end));
  return suspect;
}

/// Returns the share of a gradient's non-zero values that become 0; 0 if the gradient hardly needs
/// them.
double lost_share(const TensorStats& stats, const FloatFormat& format) {
  if (stats.n == 0) return 0.0;
  const double lost = flushed_energy_bound(stats, format);
  const bool matters = lost > kFlushedEnergy * std::max(stats.sum_sq, lost);
  return matters ? rates_of(stats, format).underflow : 0.0;
}

}  // namespace

std::vector<int> planned_nodes(const LaneFacts& lane, int node) {
  const ForwardNode& own = lane.nodes()[static_cast<size_t>(node)];
  return own.layer < 0 ? own.readers : std::vector<int>{node};
}

std::optional<Suspect> examine(const LaneFacts& lane, int node) {
  const std::vector<int> sites = forward_sites(lane, node);
  std::optional<Suspect> worst = bad_constant(lane, node, sites);
  const auto consider = [&](std::optional<Suspect> found) {
    if (found && (!worst || found->weight > worst->weight)) worst = std::move(found);
  };
  bool narrow_operand_lost = false;
  std::optional<Suspect> error = own_error(lane, node);
  for (const int order : sites) {
    const SiteInfo& site = lane.site(order);
    if (full_precision(site.format)) continue;
    const bool scaled = !site.scale.empty();
    const std::optional<Suspect> overflow =
        scaled ? clipped_at(lane, node, order, site.path) : overflow_at(lane, node, order);
    const std::optional<Suspect> flush = flush_at(lane, node, order, site.path);
    narrow_operand_lost = narrow_operand_lost || (!is_result(site) && (overflow || flush));
    consider(overflow);
    consider(flush);
    if (!overflow && !flush) consider(lost_weights(lane, node, order));
    // Integers that are only too large have an error of one rounding, not of several.
    if (!scaled && !error) consider(lost_integers(lane, node, order));
  }
  // An output that is not finite because an operand was read as 0 or infinity.
  if (error && error->weight >= 1.0 && narrow_operand_lost && worst) return worst;
  if (error && error->mechanism == Mechanism::forward_overflow) {
    if (std::optional<Suspect> data = overflow_of_data(lane, node)) return data;
  }
  // The scales of its operands explain the error of a product.
  if (error && error->mechanism == Mechanism::rounding) {
    if (std::optional<Suspect> scales = lost_by_scales(lane, node)) {
      scales->weight = std::max(scales->weight, error->weight);
      return scales;
    }
  }
  // Outputs that are 0 have the same error; that they are 0 says more.
  const bool explained = error && worst && worst->mechanism == Mechanism::forward_flush &&
                         worst->weight >= 0.5 * error->weight;
  if (!explained) consider(std::move(error));
  return worst;
}

bool reads_bad_constant(const LaneFacts& lane, const std::string& path) {
  const std::vector<SiteInfo>& sites = lane.info().sites;
  return std::any_of(sites.begin(), sites.end(), [&](const SiteInfo& site) {
    const bool is_of = site.path == path || site.path.starts_with(path + "/");
    return is_of && is_bad_constant(lane, site.order);
  });
}

bool counts(const LaneFacts& lane, int node) {
  const int site = lane.nodes()[static_cast<size_t>(node)].output_site;
  const std::optional<int> theirs = site < 0 ? std::nullopt : lane.reference_site(site);
  return theirs && lane.reference() >= 0 &&
         has_integers(lane.run().total(lane.reference(), *theirs));
}

std::vector<Suspect> forward_suspects(const LaneFacts& lane) {
  std::vector<Suspect> all;
  for (size_t node = 0; node < lane.nodes().size(); ++node) {
    if (std::optional<Suspect> found = examine(lane, static_cast<int>(node))) {
      all.push_back(std::move(*found));
    }
  }
  // An earlier node explains later ones; among equals, the one with more weight comes first.
  std::vector<bool> below(all.size(), false);
  for (const Suspect& above : all) {
    const std::vector<bool> reached = lane.downstream(above.node);
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_below = all[i].node != above.node && reached[static_cast<size_t>(all[i].node)];
      below[i] = below[i] || is_below;
    }
  }
  std::vector<size_t> order(all.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool lost_a = all[a].weight >= 1.0, lost_b = all[b].weight >= 1.0;
    if (lost_a != lost_b) return lost_a;
    if (lost_a && below[a] != below[b]) return static_cast<bool>(below[b]);
    return all[a].weight > all[b].weight;
  });
  std::vector<Suspect> sorted;
  for (const size_t i : order) sorted.push_back(std::move(all[i]));
  return sorted;
}

std::optional<Suspect> scaled_suspect(const LaneFacts& lane) {
  std::optional<Suspect> worst;
  for (size_t i = 0; i < lane.nodes().size(); ++i) {
    const ForwardNode& own = lane.nodes()[i];
    if (own.layer < 0) continue;
    const int node = static_cast<int>(i);
    for (const int order : scaled_operands(lane, node)) {
      if (total_of(lane, order).nan == 0) continue;
      return Suspect{.node = node,
                     .site = order,
                     .mechanism = Mechanism::zero_block,
                     .weight = 1.0,
                     .text = fmt::format("{} reads {} with a scale for each block, but a block of "
                                         "zeros has no valid scale (0 / 0 is NaN)",
                                         own.path, format_name(lane.site(order).format))};
    }
    std::optional<Suspect> found = lost_by_scales(lane, node);
    if (found && (!worst || found->weight > worst->weight)) worst = std::move(found);
  }
  return worst;
}

int cancelled_site(const LaneFacts& lane, int node) {
  const std::vector<bool> below = lane.downstream(node);
  for (const SiteInfo& site : lane.info().sites) {
    const int owner = lane.node_of(site.order);
    if (!is_result(site) || site.phase != Phase::forward || owner == node) continue;
    if (!below[static_cast<size_t>(owner)] || !lane.reference_site(site.order)) continue;
    int64_t n = 0, flushed = 0, more = 0;  // in steps that differ by rounding alone
    for (const RecordedStep& step : lane.recorded()) {
      if (!lane.has_equal_weights(step.step + step.step_count - 1)) continue;
      const std::optional<TensorStats> own = lane.stats(site.order, step.step);
      const std::optional<TensorCounts> theirs = lane.reference_counts(site.order, step.step);
      if (!own || !theirs) continue;
      n += own->n;
      flushed += own->underflow;
      more += own->zero - theirs->zero - theirs->underflow;
    }
    // Single values become 0 by chance, as where a ReLU's operand changes its sign.
    const bool cancels = site.op == "Sub" || site.op == "Add";
    const double least = (cancels ? kCancelledShare : kZeroedShare) * static_cast<double>(n);
    if (flushed == 0 && more > 0 && static_cast<double>(more) >= least) {
      return site.order;
    }
  }
  return -1;
}

/// Returns how many values of a gradient overflow, without the steps that a loss scale skips on its
/// way to a scale that works.
int64_t overflow_beyond_scaling(const LaneFacts& lane, int site) {
  const std::span<const StepRow> rows = lane.steps();
  if (!lane.scales_dynamically() || !skips_are_normal(skipped_steps(rows), rows)) {
    return total_of(lane, site).overflow;
  }
  int64_t overflow = 0;
  for (const RecordedStep& step : lane.recorded()) {
    const std::optional<TensorStats> stats = lane.stats(site, step.step);
    if (!step.skipped && stats) overflow += stats->overflow;
  }
  return overflow;
}

std::vector<Suspect> backward_suspects(const LaneFacts& lane) {
  std::vector<Suspect> all;
  std::set<int> seen;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.phase != Phase::backward || full_precision(site.format)) continue;
    const TensorStats& stats = total_of(lane, site.order);
    const SiteError* error = worst_error(lane, site.order);
    const double share = lost_share(stats, site.format);
    const double local = error == nullptr ? 0.0 : local_error(*error);
    const bool rounds = local >= kRoundings * unit_of(site.format) && std::isfinite(local);
    // Values that become 0 have the same error; that they are 0 says more.
    const bool flushes = share > kFlushedShare && (!rounds || share >= 0.5 * std::min(local, 1.0));
    Suspect suspect{.node = lane.node_of(site.order), .site = site.order};
    const int64_t overflow = overflow_beyond_scaling(lane, site.order);
    if (overflow > 0 && stats.n > stats.non_finite()) {
      suspect.mechanism = Mechanism::gradient_overflow;
      suspect.weight = 1.0;
      suspect.text =
          fmt::format("{} overflows {}: {} of its values are larger than {}", site.name(),
                      format_name(site.format),
                      percent(static_cast<double>(overflow) / static_cast<double>(stats.n)),
                      short_number(site.format.max_finite()));
    } else if (flushes) {
      suspect.mechanism = Mechanism::gradient_flush;
      suspect.weight = rounds ? std::max(share, std::min(local, 1.0)) : std::min(share, 0.9);
      suspect.text = fmt::format("{} underflows {}: {} of the non-zero values of {} become 0",
                                 site.path, format_name(site.format), percent(share), site.name());
    } else if (rounds) {
      const bool stalls = sums_in_its_format(lane, suspect.node);
      suspect.mechanism = stalls ? Mechanism::stalled_sum : Mechanism::rounding;
      suspect.weight = std::min(1.0, local);
      suspect.text = own_error_text(lane, site, site.name(), local, stalls);
    } else {
      continue;
    }
    if (seen.insert(suspect.node).second) all.push_back(std::move(suspect));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Suspect& a, const Suspect& b) { return a.weight > b.weight; });
  return all;
}

}  // namespace halfscope
