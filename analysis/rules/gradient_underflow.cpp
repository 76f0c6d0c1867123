// SPDX-License-Identifier: MIT
// gradient_underflow: layers whose gradients lost more than 1% of their non-zero values and more
// than 0.1% of their energy to rounding to zero, at the loss scales the run used. Gradients that
// are zero or rounding noise in fp32, too, do not count.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/format_limits.h"
#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/lost_energy.h"
#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/shown_rate.h"
#include "analysis/rules/site_words.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

struct Flushed {
  int site = -1;
  int64_t flushed = 0, non_zero = 0;
  double lost_energy = 0.0, energy = 0.0;
  int64_t first_step = -1;
  double low_scale = std::numeric_limits<double>::infinity(), high_scale = 0.0;

  double share() const { return share_of(flushed, non_zero); }
  double energy_share() const { return energy > 0.0 ? std::min(lost_energy / energy, 1.0) : 0.0; }
};

Flushed measure_site(const LaneFacts& lane, const SiteInfo& site) {
  Flushed result{.site = site.order};
  for (const RecordedStep& step : lane.recorded()) {
    if (!step.finite()) continue;
    const std::optional<TensorStats> stats = lane.stats(site.order, step.step);
    if (!stats || stats->n == 0) continue;
    result.non_zero += non_zero_values(*stats);
    result.flushed += stats->underflow;
    // Steps count alike, whatever their loss scale: energies are compared unscaled.
    const double scale = step.loss_scale > 0.0 ? step.loss_scale : 1.0;
    const double lost = flushed_energy_bound(*stats, site.format) / (scale * scale);
    result.lost_energy += lost;
    result.energy += std::max(stats->sum_sq / (scale * scale), lost);
    if (stats->underflow > 0) {
      if (result.first_step < 0) result.first_step = step.step;
      result.low_scale = std::min(result.low_scale, scale);
      result.high_scale = std::max(result.high_scale, scale);
    }
  }
  return result;
}

Action advise(const LaneFacts& lane, const std::optional<ScaleWindow>& window,
              const Flushed& flushed, int node) {
  const std::string& layer = lane.nodes()[static_cast<size_t>(node)].path;
  const bool outside = window && std::find(window->outside.begin(), window->outside.end(), node) !=
                                     window->outside.end();
  const bool in_use = window && flushed.low_scale == window->scale;  // and it does not help
  if (!window || outside || in_use || !(window->scale > 0.0)) {
    return keep_in_fp32({layer});
  }
  const std::string scale = scale_text(window->scale);
  return {.edit = PlanEdit::with_loss_scale(window->scale),
          .text = lane.scales_dynamically()
                      ? fmt::format("Start dynamic loss scaling at {}.", scale)
                      : fmt::format("Use dynamic loss scaling, or a static scale of {}.", scale)};
}

/// Returns "at loss scale 1024".
std::string at_scales(const LaneFacts& lane, const Flushed& flushed) {
  if (!lane.scales_loss()) return "without loss scaling";
  std::string text = "at loss scale " + scale_text(flushed.low_scale);
  if (flushed.high_scale > flushed.low_scale) text += " to " + scale_text(flushed.high_scale);
  return text;
}

/// Returns what to do about captured gradients at the lower end of their format. Twice the highest
/// scale that was used without an overflow must still fit, or a higher scale overflows.
Action advise_capture(const LaneFacts& lane, const std::string& layer) {
  if (!lane.scales_loss()) return {.text = scaling_advice(lane)};
  double used = 0.0;
  for (const StepRow& row : lane.steps()) {
    if (!row.skipped && std::isfinite(row.loss_scale)) used = std::max(used, row.loss_scale);
  }
  const std::optional<ScaleWindow> window = loss_scale_window(lane);
  if (!window || 2.0 * used < window->usable.high) return {.text = "Raise the loss scale."};
  return {.text =
              fmt::format("Do not raise the loss scale: {} overflows at {}. Keep {} in fp32 if "
                          "its small gradients matter.",
                          lane.site(window->ceiling_site).name(), scale_text(2.0 * used), layer)};
}

/// Returns whether the ulp of subnormal numbers is too coarse for a captured gradient. Rounding to
/// it has a variance of ulp^2 / 12 in each value that is small or 0. All of that must reach a
/// hundredth of the gradient's size, squared.
bool loses_small_values(const TensorStats& stats, const FloatFormat& format) {
  constexpr double kNoise = 1e-4;
  const double ulp = format.min_subnormal();
  const auto small = static_cast<double>(stats.subnormal + stats.zero);
  return small * ulp * ulp / 12.0 > kNoise * stats.sum_sq;
}

/// Gradients of a captured lane with many subnormal values.
struct Subnormals {
  int worst = -1;  ///< site with the largest share; -1: none
  double share = 0.0;
  int64_t sites = 0;
};

/// Gathers them, all of them or only those that lose too much.
Subnormals gather_subnormals(const LaneFacts& lane, bool losing) {
  constexpr double kMany = 0.1;
  Subnormals result;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.phase != Phase::backward || !narrow_exponent(site.format)) continue;
    const double share = run_rates(lane.run(), lane.lane(), site.order).subnormal;
    if (share <= kMany || is_negligible_gradient(lane, site)) continue;
    const TensorStats& total = lane.run().total(lane.lane(), site.order);
    if (losing && !loses_small_values(total, site.format)) continue;
    ++result.sites;
    if (share <= result.share) continue;
    result.share = share;
    result.worst = site.order;
  }
  return result;
}

/// Remarks that gradients come near the end of their range where nothing scales them: it does no
/// harm that shows, but gradients usually become smaller as training goes on.
void remark_on_missing_scale(const LaneFacts& lane, std::vector<Finding>& findings) {
  const Subnormals found = gather_subnormals(lane, false);
  if (lane.inference() || lane.scales_loss() || found.worst < 0) return;
  const SiteInfo& site = lane.site(found.worst);
  Finding finding{.rule = "gradient_underflow", .lane = lane.lane()};
  finding.site = site.name();
  finding.layer = site.path;
  finding.mechanism = fmt::format("{} of the non-zero values of {} are subnormal in {}",
                                  percent(found.share), site.name(), format_name(site.format));
  finding.evidence = {{"subnormal_share", found.share},
                      {"gradient_sites", static_cast<double>(found.sites)}};
  finding.text = fmt::format(
      "No loss scaler is in use, and {}. They matter little in this run. If gradients become "
      "smaller, they become 0.",
      finding.mechanism);
  finding.action = {.text = scaling_advice(lane)};
  findings.push_back(std::move(finding));
}

/// Captured gradients are already rounded: those that became 0 look like any other zero. Many
/// subnormal values show that the range ends among the values.
void suspect_underflow(const LaneFacts& lane, std::vector<Finding>& findings) {
  const Subnormals found = gather_subnormals(lane, true);
  if (found.worst < 0) return remark_on_missing_scale(lane, findings);
  const double most = found.share;
  const int64_t sites = found.sites;
  const SiteInfo& site = lane.site(found.worst);
  const std::string format = format_name(site.format);
  Finding finding{.rule = "gradient_underflow", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.site = site.name();
  finding.layer = site.path;
  finding.mechanism =
      fmt::format("{} reaches the end of {}: {} of the non-zero values of {} are subnormal",
                  site.path, format, percent(most), site.name());
  finding.evidence = {{"subnormal_share", most}, {"gradient_sites", static_cast<double>(sites)}};
  finding.text = fmt::format(
      "{}. Smaller values became 0 before they were recorded, so this run cannot show how many.",
      finding.mechanism);
  if (sites > 1) finding.text += fmt::format(" {} gradients are like this.", sites);
  finding.action = advise_capture(lane, site.path);
  findings.push_back(std::move(finding));
}

void find_gradient_underflow(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.full_precision()) return;
  if (lane.captured()) return suspect_underflow(lane, findings);
  std::map<int, Flushed> worst;  // by node: one finding a layer, about its worst tensor
  for (const SiteInfo& site : lane.info().sites) {
    if (site.phase != Phase::backward || !site.scale.empty()) continue;
    const Flushed flushed = measure_site(lane, site);
    if (!(flushed.share() > kFlushedShare && flushed.energy_share() > kFlushedEnergy)) continue;
    if (is_negligible_gradient(lane, site)) continue;
    const auto [place, fresh] = worst.try_emplace(lane.node_of(site.order), flushed);
    if (!fresh && flushed.energy_share() > place->second.energy_share()) place->second = flushed;
  }
  if (worst.empty()) return;
  const std::optional<ScaleWindow> window = loss_scale_window(lane);
  for (const auto& [node, flushed] : worst) {
    const SiteInfo& site = lane.site(flushed.site);
    const std::string format = format_name(site.format);
    const std::string smallest = fmt::format("2^{:.0f}", std::log2(flush_threshold(site.format)));
    // Steps without overflow decide. The share that is shown is the whole run's.
    const TensorStats& total = lane.run().total(lane.lane(), flushed.site);
    const double share = run_rates(lane.run(), lane.lane(), flushed.site).underflow;
    Finding finding{.rule = "gradient_underflow", .lane = lane.lane()};
    finding.severity = Severity::warning;
    finding.site = site.name();
    finding.layer = site.path;
    finding.step = flushed.first_step;
    finding.mechanism = fmt::format("{} underflows {}: {} of the non-zero values of {} become 0",
                                    site.path, format, percent(share), site.name());
    finding.evidence = {{"flushed_share", share},
                        {"judged_flushed_share", flushed.share()},
                        {"flushed", static_cast<double>(total.underflow)},
                        {"non_zero", static_cast<double>(non_zero_values(total))},
                        {"lost_energy_share_at_most", flushed.energy_share()},
                        {"flush_threshold", flush_threshold(site.format)},
                        {"lowest_loss_scale", flushed.low_scale},
                        {"highest_loss_scale", flushed.high_scale}};
    finding.text = finding.mechanism;
    if (far_apart(share, flushed.share())) {
      finding.text +=
          fmt::format(" ({} in the steps without an overflow)", percent(flushed.share()));
    }
    finding.text +=
        fmt::format(" {}. They are {} or smaller and carry up to {} of the gradient's energy.",
                    at_scales(lane, flushed), smallest, percent(flushed.energy_share()));
    finding.action = advise(lane, window, flushed, node);
    findings.push_back(std::move(finding));
  }
}

}  // namespace

const Rule rule::gradient_underflow{.id = "gradient_underflow",
                                    .run = find_gradient_underflow,
                                    .mechanism = Mechanism::gradient_flush};

}  // namespace halfscope
