// SPDX-License-Identifier: MIT
// scaled_operands: codes of scaled operands that saturate (the scale is too large for the values
// it met) or are flushed to zero (one scale cannot serve values so far apart): more than 0.1% of
// the operand's energy, on the average of the recorded steps and in units of the scales, or a
// quarter of its values. No loss scale changes either.
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

namespace halfscope {
namespace {

/// This share of the non-zero values shows by itself that one scale cannot serve them: a few
/// outliers may contain nearly all of the energy.
constexpr double kFlushedMost = 0.25;

/// Delayed scaling knows nothing in its first step. Values that saturate there change the next
/// layers' values, and so their first scales.
constexpr int64_t kSettling = 10;

struct LostValues {
  int64_t n = 0, clipped = 0, non_zero = 0, flushed = 0;
  int64_t windows = 0;
  double clipped_energy = 0.0, flushed_energy = 0.0;  ///< shares, summed over the windows
  double max_abs = 0.0;
  int64_t first_clipped = -1, first_flushed = -1;

  double mean(double shares) const {
    return windows > 0 ? shares / static_cast<double>(windows) : 0.0;
  }
  double clipped_share() const { return share_of(clipped, n); }
  double flushed_share() const { return share_of(flushed, non_zero); }
};

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
    if (stats->sum_sq > 0.0) {
      const auto share = [&](double energy) { return std::min(energy / stats->sum_sq, 1.0); };
      lost.clipped_energy += share(clipped_energy_bound(*stats, site.format));
      lost.flushed_energy += share(flushed_energy_bound(*stats, site.format));
    }
    lost.max_abs = std::max(lost.max_abs, static_cast<double>(stats->max_abs));
    if (stats->overflow > 0 && lost.first_clipped < 0) lost.first_clipped = step.step;
    if (stats->underflow > 0 && lost.first_flushed < 0) lost.first_flushed = step.step;
  }
  return lost;
}

bool clips(const LostValues& lost) { return lost.mean(lost.clipped_energy) > kFlushedEnergy; }

bool flushes(const LostValues& lost) {
  return lost.flushed_share() > kFlushedMost ||
         (lost.flushed_share() > kFlushedShare && lost.mean(lost.flushed_energy) > kFlushedEnergy);
}

Finding finding_about(const LaneFacts& lane, const SiteInfo& site, const LostValues& lost,
                      bool clips) {
  const std::string format = format_name(site.format);
  const Rates rates = run_rates(lane.run(), lane.lane(), site.order);
  const double share = clips ? rates.overflow : rates.underflow;
  const double judged = clips ? lost.clipped_share() : lost.flushed_share();
  const double energy = lost.mean(clips ? lost.clipped_energy : lost.flushed_energy);
  Finding finding{.rule = "scaled_operands", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.site = site.name();
  finding.layer = site.path;
  finding.step = clips ? lost.first_clipped : lost.first_flushed;
  finding.mechanism =
      clips ? fmt::format("{} saturates {}: {} of its values are larger than {} (scaled by {})",
                          site.name(), format, percent(share),
                          short_number(site.format.max_finite()), site.scale)
            : fmt::format("{} underflows {}: {} of its non-zero values become 0 (scaled by {})",
                          site.name(), format, percent(share), site.scale);
  finding.evidence = {{"scale", site.scale},
                      {"format", format},
                      {clips ? "clipped_share" : "flushed_share", share},
                      {clips ? "judged_clipped_share" : "judged_flushed_share", judged},
                      {"lost_energy_share_at_most", energy},
                      {"largest_code", lost.max_abs},
                      {"max_finite", site.format.max_finite()}};
  const std::string energy_text = energy < 1e-4 ? "Less than 0.01%" : "Up to " + percent(energy);
  finding.text =
      clips ? fmt::format(
                  "{} outgrows its scale: {} of its values saturate, the largest at {} times the "
                  "largest {} value. {} of its energy is lost. Use current scaling, which "
                  "always fits the tensor, or add a margin.",
                  site.name(), percent(share),
                  short_number(lost.max_abs / site.format.max_finite()), format, energy_text)
            : fmt::format(
                  "{} spans more than {} can represent with one scale: {} of its non-zero values "
                  "become 0. {} of its energy is lost. Use block scales, or a format with more "
                  "exponent bits.",
                  site.name(), format, percent(share), energy_text);
  if (far_apart(share, judged)) {
    finding.text += fmt::format(
        " Without the steps that overflow{}, the share is {}.",
        site.scale.starts_with("delayed") ? fmt::format(" and the first {}", kSettling) : "",
        percent(judged));
  }
  std::vector<std::string> layers;
  for (const int node : lane.layers_behind(site.order)) {
    layers.push_back(lane.nodes()[static_cast<size_t>(node)].path);
  }
  if (!layers.empty()) {
    finding.action = keep_in_fp32(lane.in_order(std::move(layers)));
  }
  return finding;
}

void find_scaled_operands(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.full_precision()) return;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.scale.empty()) continue;
    const LostValues lost = measure(lane, site);
    if (clips(lost)) findings.push_back(finding_about(lane, site, lost, true));
    if (flushes(lost)) findings.push_back(finding_about(lane, site, lost, false));
  }
}

}  // namespace

const Rule rule::scaled_operands{
    .id = "scaled_operands", .run = find_scaled_operands, .mechanism = Mechanism::clipped_blocks};

}  // namespace halfscope
