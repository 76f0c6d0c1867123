// SPDX-License-Identifier: MIT
// scaled_operands: operands whose scale and format lose too much of them. Codes saturate (the scale
// is too large for the values it met), are flushed to zero (one scale cannot serve values so far
// apart), or are too coarse (evenly spaced codes, as int8's, have too few steps): more than 0.1% of
// the operand's energy, on the average of the recorded steps and in units of the scales, or a
// quarter of its values flushed. An operand has one finding, about the largest loss. No loss scale
// changes any of this.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/format_limits.h"
#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/lost_energy.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/shown_rate.h"
#include "analysis/rules/text.h"
#include "core/numeric/scaling/tensor_scale.h"

namespace halfscope {
namespace {

/// This share of the non-zero values shows by itself that one scale cannot serve them: a few
/// outliers may contain nearly all of the energy.
constexpr double kFlushedMost = 0.25;

/// Delayed scaling knows nothing in its first step. Values that saturate there change the next
/// layers' values, and so their first scales.
constexpr int64_t kSettling = 10;

/// Magnitudes this many times the root mean square are outliers: a normal distribution's largest of
/// a billion values is 6 times as large.
constexpr double kOutlier = 12.0;

enum class Loss : uint8_t { clipped, flushed, coarse };

struct LostValues {
  int64_t n = 0, clipped = 0, non_zero = 0, flushed = 0;
  int64_t windows = 0;
  /// Shares of the energy, summed over the windows.
  double clipped_energy = 0.0, flushed_energy = 0.0, coarse_energy = 0.0;
  double max_abs = 0.0;
  double crest = 0.0;  ///< largest code as a multiple of the root mean square, in any window
  int64_t first_clipped = -1, first_flushed = -1, first = -1;

  double mean(double shares) const {
    return windows > 0 ? shares / static_cast<double>(windows) : 0.0;
  }
  double clipped_share() const { return share_of(clipped, n); }
  double flushed_share() const { return share_of(flushed, non_zero); }
  double energy(Loss loss) const {
    return mean(loss == Loss::clipped   ? clipped_energy
                : loss == Loss::flushed ? flushed_energy
                                        : coarse_energy);
  }
};

/// Returns an estimate of the error energy of rounding to whole steps. A value of half a step or
/// more loses a twelfth of a squared step on average, as an error that is uniform between half a
/// step down and half a step up (B. Widrow, I. Kollar, "Quantization Noise", 2008). A smaller one
/// loses itself: 7/3 of the squared lower end of its bin, if values are uniform within the bin.
double coarse_energy(const TensorStats& stats, const FloatFormat& format) {
  const double step = format.min_subnormal();
  double energy = 0.0, low = std::ldexp(1.0, kMinExponentBin);
  for (const int64_t count : stats.exponents) {
    const double each = low < 0.5 * step ? 7.0 / 3.0 * low * low : step * step / 12.0;
    energy += static_cast<double>(count) * each;
    low *= 2.0;
  }
  return energy;
}

LostValues measure(const LaneFacts& lane, const SiteInfo& site) {
  LostValues lost;
  const bool delayed = site.scale.starts_with("delayed");
  for (const RecordedStep& step : lane.recorded()) {
    if (!step.finite() || (delayed && step.step < kSettling)) continue;
    const std::optional<TensorStats> stats = lane.stats(site.order, step.step);
    if (!stats || stats->n == 0) continue;
    lost.n += stats->n;
    lost.non_zero += non_zero_values(*stats);
    lost.clipped += stats->overflow;
    lost.flushed += stats->underflow;
    // Scales differ from step to step, so energies are not added but their shares are.
    ++lost.windows;
    if (lost.first < 0) lost.first = step.step;
    if (stats->sum_sq > 0.0) {
      const auto share = [&](double energy) { return std::min(energy / stats->sum_sq, 1.0); };
      lost.clipped_energy += share(clipped_energy_bound(*stats, site.format));
      // Values that become zero in a format of even steps are part of its rounding error.
      if (site.format.evenly_spaced()) {
        lost.coarse_energy += share(coarse_energy(*stats, site.format));
      } else {
        lost.flushed_energy += share(flushed_energy_bound(*stats, site.format));
      }
      const double mean_square = stats->sum_sq / static_cast<double>(stats->n);
      const double largest =
          std::min(static_cast<double>(stats->max_abs), site.format.max_finite());
      lost.crest = std::max(lost.crest, largest / std::sqrt(mean_square));
    }
    lost.max_abs = std::max(lost.max_abs, static_cast<double>(stats->max_abs));
    if (stats->overflow > 0 && lost.first_clipped < 0) lost.first_clipped = step.step;
    if (stats->underflow > 0 && lost.first_flushed < 0) lost.first_flushed = step.step;
  }
  return lost;
}

/// Returns the way in which the operand loses most, if it loses enough to report.
std::optional<Loss> worst_loss(const LostValues& lost, const FloatFormat& format) {
  std::optional<Loss> worst;
  const auto consider = [&](Loss loss, bool enough) {
    if (enough && (!worst || lost.energy(loss) > lost.energy(*worst))) worst = loss;
  };
  const double flushed = lost.flushed_share();
  if (format.evenly_spaced()) {
    consider(Loss::coarse, lost.energy(Loss::coarse) > kFlushedEnergy);
  } else {
    consider(Loss::flushed,
             flushed > kFlushedMost ||
                 (flushed > kFlushedShare && lost.energy(Loss::flushed) > kFlushedEnergy));
  }
  consider(Loss::clipped, lost.energy(Loss::clipped) > kFlushedEnergy);
  return worst;
}

std::string energy_text(double energy) {
  return energy < 1e-4 ? "Less than 0.01%" : "Up to " + percent(energy);
}

/// Fills in what is said about codes that saturate.
void say_clipped(Finding& finding, const SiteInfo& site, const LostValues& lost, double share) {
  const std::string format = format_name(site.format);
  finding.cause = Mechanism::clipped_blocks;
  finding.step = lost.first_clipped;
  finding.mechanism = fmt::format(
      "{} saturates {}: {} of its values are larger than {} (scaled by {})", site.name(), format,
      percent(share), short_number(site.format.max_finite()), site.scale);
  finding.text = fmt::format(
      "{} outgrows its scale: {} of its values saturate, the largest at {} times the largest {} "
      "value. {} of its energy is lost. Use current scaling, which always fits the tensor, or add "
      "a margin.",
      site.name(), percent(share), short_number(lost.max_abs / site.format.max_finite()), format,
      energy_text(lost.energy(Loss::clipped)));
}

/// Returns whether parts of the tensor have their own scales already.
bool has_blocks(const SiteInfo& site) {
  const std::optional<TensorScale> scale = parse_scale(site.scale);
  return scale && scale->by_block();
}

/// Fills in what is said about codes that become zero.
void say_flushed(Finding& finding, const SiteInfo& site, const LostValues& lost, double share) {
  const std::string format = format_name(site.format);
  finding.cause = Mechanism::outlier_scale;
  finding.step = lost.first_flushed;
  finding.mechanism =
      fmt::format("{} underflows {}: {} of its non-zero values become 0 (scaled by {})",
                  site.name(), format, percent(share), site.scale);
  finding.text = fmt::format(
      "{} spans more than {} can represent with one scale{}: {} of its non-zero values become 0. "
      "{} of its energy is lost. {}",
      site.name(), format, has_blocks(site) ? " per block" : "", percent(share),
      energy_text(lost.energy(Loss::flushed)),
      has_blocks(site) ? "Use smaller blocks, or a format with more exponent bits."
                       : "Use block scales, or a format with more exponent bits.");
}

/// Fills in what is said about codes with too few steps.
void say_coarse(Finding& finding, const SiteInfo& site, const LostValues& lost, double zeros) {
  const std::string format = format_name(site.format);
  const double error = std::sqrt(lost.energy(Loss::coarse));
  const bool outliers = lost.crest > kOutlier;
  finding.cause = outliers ? Mechanism::outlier_scale : Mechanism::rounding;
  finding.step = lost.first;
  finding.evidence["crest_factor"] = lost.crest;
  finding.mechanism = fmt::format(
      "{} has too few steps in {}: rounding changes it by about {}, and {} of its "
      "non-zero values become 0 (scaled by {})",
      site.name(), format, percent(error), percent(zeros), site.scale);
  finding.text = fmt::format(
      "{} has too few steps in {}: rounding changes it by about {} ({:.1f} dB), and {} of its "
      "non-zero values become 0. {}",
      site.name(), format, percent(error), -20.0 * std::log10(error), percent(zeros),
      outliers ? fmt::format("Its largest value is {} times its root mean square and sets the "
                             "scale. Use more bits there, or clip such values if they do not "
                             "matter (halfscope quantize --method percentile:99.9).",
                             short_number(lost.crest))
      : has_blocks(site) ? "Use more bits there."
                         : "Use more bits there, or a scale for each channel or block.");
}

Finding finding_about(const LaneFacts& lane, const SiteInfo& site, const LostValues& lost,
                      Loss loss) {
  const Rates rates = run_rates(lane.run(), lane.lane(), site.order);
  const bool clips = loss == Loss::clipped;
  const double share = clips ? rates.overflow : rates.underflow;
  const double judged = clips ? lost.clipped_share() : lost.flushed_share();
  Finding finding{.rule = "scaled_operands", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.site = site.name();
  finding.layer = site.path;
  finding.weight = lost.energy(loss);
  finding.evidence = {
      {"scale", site.scale},
      {"format", format_name(site.format)},
      {clips ? "clipped_share" : "flushed_share", share},
      {clips ? "judged_clipped_share" : "judged_flushed_share", judged},
      {loss == Loss::coarse ? "lost_energy_share" : "lost_energy_share_at_most", lost.energy(loss)},
      {"largest_code", lost.max_abs},
      {"max_finite", site.format.max_finite()}};
  const auto say = clips ? say_clipped : loss == Loss::flushed ? say_flushed : say_coarse;
  say(finding, site, lost, share);
  if (loss != Loss::coarse && far_apart(share, judged)) {
    finding.text += fmt::format(
        " Without the steps that overflow{}, the share is {}.",
        site.scale.starts_with("delayed") ? fmt::format(" and the first {}", kSettling) : "",
        percent(judged));
  }
  std::vector<std::string> layers;
  for (const int node : lane.layers_behind(site.order)) {
    layers.push_back(lane.nodes()[static_cast<size_t>(node)].path);
  }
  if (!layers.empty()) finding.action = keep_in_fp32(lane.in_order(std::move(layers)));
  return finding;
}

void find_scaled_operands(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.full_precision()) return;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.scale.empty()) continue;
    const LostValues lost = measure(lane, site);
    const std::optional<Loss> loss = worst_loss(lost, site.format);
    if (loss) findings.push_back(finding_about(lane, site, lost, *loss));
  }
}

}  // namespace

const Rule rule::scaled_operands{.id = "scaled_operands", .run = find_scaled_operands};

}  // namespace halfscope
