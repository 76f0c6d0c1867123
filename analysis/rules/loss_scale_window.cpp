// SPDX-License-Identifier: MIT
// loss_scale_window: the interval of loss scales that works for every layer's gradients. If there
// is none, the fewest layers to keep in fp32 so that there is one.
#include "analysis/rules/loss_scale_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/format_limits.h"
#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/scale_ceiling.h"
#include "analysis/rules/text.h"
#include "analysis/rules/zero_tensors.h"

namespace halfscope {
namespace {

/// Unscaled gradient magnitudes of one site over the run: counts between `low` and `high`.
struct WindowBin {
  double low, high;
  int64_t count;
};

struct Magnitudes {
  std::vector<WindowBin> bins;
  double energy = 0.0;  ///< sum of squares
  int64_t count = 0;    ///< non-zero finite values
  double max_abs = 0.0;
  double ceiling = std::numeric_limits<double>::infinity();
};

void add_bins(const TensorStats& stats, double scale, std::map<double, WindowBin>& bins) {
  bool lowest = true;
  for (int i = 0; i < kExponentBins; ++i) {
    const int64_t count = stats.exponents[static_cast<size_t>(i)];
    if (count == 0) continue;
    double low = std::ldexp(1.0, i + kMinExponentBin);
    const double high = 2.0 * low;
    // The smallest magnitude is known exactly, and it lies in the lowest bin.
    if (lowest && stats.min_abs >= low && stats.min_abs < high) low = stats.min_abs;
    lowest = false;
    WindowBin& bin =
        bins.try_emplace(low / scale, WindowBin{low / scale, high / scale, 0}).first->second;
    bin.high = std::max(bin.high, high / scale);
    bin.count += count;
  }
}

Magnitudes gather(const LaneFacts& lane, int site) {
  Magnitudes result;
  std::map<double, WindowBin> bins;
  const double limit = overflow_threshold(lane.site(site).format);
  const bool wider = lane.sums_wider(lane.site(site));  // then its own size shows no limit
  for (const RecordedStep& step : lane.recorded()) {
    // After a forward overflow, gradients mean nothing; without one scale they cannot be unscaled.
    if (step.forward_bad || !(step.loss_scale > 0.0) || !std::isfinite(step.loss_scale)) continue;
    const std::optional<TensorStats> stats = lane.stats(site, step.step);
    if (!stats || stats->n == 0) continue;
    if (!wider && stats->overflow > 0 && stats->max_abs > 0.0f) {
      result.ceiling =
          std::min(result.ceiling, limit / static_cast<double>(stats->max_abs) * step.loss_scale);
    }
    if (overflowed_before_capture(lane, step, site)) {
      result.ceiling = std::min(result.ceiling, step.loss_scale);
    }
    if (!step.finite()) continue;
    add_bins(*stats, step.loss_scale, bins);
    result.energy += stats->sum_sq / (step.loss_scale * step.loss_scale);
    if (wider) continue;
    result.max_abs =
        std::max(result.max_abs, static_cast<double>(stats->max_abs) / step.loss_scale);
  }
  double least_energy = 0.0;
  for (const auto& [low, bin] : bins) {
    result.bins.push_back(bin);
    result.count += bin.count;
    least_energy += static_cast<double>(bin.count) * low * low;
  }
  result.energy = std::max(result.energy, least_energy);
  return result;
}

/// Returns the lowest scales at which the limits on flushed values hold. Conservative: a bin counts
/// as lost with all its values, each as large as the bin allows, unless it survives as a whole.
SiteScales scales_of(int site, const FloatFormat& format, const Magnitudes& values) {
  const double flush = flush_threshold(format);
  int64_t lost = 0;
  double lost_energy = 0.0;
  double by_share = 0.0, by_energy = 0.0;
  for (const WindowBin& bin : values.bins) {
    lost += bin.count;
    lost_energy += static_cast<double>(bin.count) * bin.high * bin.high;
    const double floor = flush / bin.low;  // above this scale the bin survives
    // The first bin that may no longer be lost sets the floor.
    if (by_share == 0.0 &&
        static_cast<double>(lost) > kFlushedShare * static_cast<double>(values.count)) {
      by_share = floor;
    }
    if (by_energy == 0.0 && lost_energy > kFlushedEnergy * values.energy) by_energy = floor;
    if (by_share > 0.0 && by_energy > 0.0) break;
  }
  const double high = values.max_abs > 0.0
                          ? std::min(values.ceiling, overflow_threshold(format) / values.max_abs)
                          : values.ceiling;
  return {.site = site,
          .comfortable = {std::max(by_share, by_energy), high},
          .usable = {std::min(by_share, by_energy), high}};
}

void add_to_layer(ScaleWindow& window, int node, const SiteScales& scales) {
  auto layer = std::find_if(window.layers.begin(), window.layers.end(),
                            [&](const LayerScales& l) { return l.node == node; });
  if (layer == window.layers.end()) {
    window.layers.push_back({.node = node, .comfortable = {}, .usable = {}});
    layer = window.layers.end() - 1;
  }
  layer->comfortable.intersect(scales.comfortable);
  layer->usable.intersect(scales.usable);
}

bool has_low(const ScaleInterval& window) { return window.low > 0.0; }
bool has_high(const ScaleInterval& window) { return std::isfinite(window.high); }

/// Returns "from 2^3.0 to 2^18.4". An end that no gradient sets is left out.
std::string interval_text(const ScaleInterval& window) {
  const std::string high = fmt::format("2^{:.1f}", std::log2(window.high));
  if (!has_low(window)) return "up to " + high;
  const std::string low = fmt::format("from 2^{:.1f} ", std::log2(window.low));
  return low + (has_high(window) ? "to " + high : "on");
}

/// Returns how wide a window is and what happens outside it, as the rest of a sentence and more.
std::string ends_text(const ScaleInterval& window, const std::string& floor,
                      const std::string& ceiling) {
  if (!has_high(window)) return fmt::format(". Below that, {} underflows first.", floor);
  if (!has_low(window)) return fmt::format(". Above that, {} overflows first.", ceiling);
  return fmt::format(
      ": a range of {:.1f} powers of two. Above it, {} overflows first; below it, {} underflows "
      "first.",
      std::log2(window.high / window.low), ceiling, floor);
}

double last_scale_used(const LaneFacts& lane) {
  double scale = 1.0;
  for (const StepRow& row : lane.steps()) {
    if (!row.skipped && std::isfinite(row.loss_scale)) scale = row.loss_scale;
  }
  return scale;
}

/// Returns what to do if one scale works for all layers.
Action advise_within(const LaneFacts& lane, const ScaleWindow& window, double used) {
  const bool scales = lane.scales_loss();
  if (window.shown().contains(used)) {
    return {.text = scales ? fmt::format("Nothing to change: the last loss scale, {}, works for "
                                         "every gradient.",
                                         scale_text(used))
                           : std::string("Nothing to change: the gradients fit without loss "
                                         "scaling.")};
  }
  const char* place = window.shown().contains(window.scale)
                          ? "works for every gradient"
                          : "is the next power of two below the range that works";
  std::string text =
      fmt::format("Use a static loss scale of {}, which {}; ", scale_text(window.scale), place);
  text += scales ? fmt::format("the last one, {}, does not work.", scale_text(used))
                 : std::string("without loss scaling, gradients are out of range.");
  return {.edit = PlanEdit::with_loss_scale(window.scale), .text = std::move(text)};
}

}  // namespace

std::optional<ScaleWindow> loss_scale_window(const LaneFacts& lane) {
  ScaleWindow window;
  for (const SiteInfo& site : lane.info().sites) {
    const bool scaled = !site.scale.empty();  // no loss scale reaches its codes
    if (site.phase != Phase::backward || scaled || !narrow_exponent(site.format)) continue;
    const Magnitudes values = gather(lane, site.order);
    if (values.count == 0 || is_negligible_gradient(lane, site)) continue;
    const SiteScales scales = scales_of(site.order, site.format, values);
    window.comfortable.intersect(scales.comfortable);
    window.usable.intersect(scales.usable);
    add_to_layer(window, lane.node_of(site.order), scales);
    window.sites.push_back(scales);
  }
  if (window.sites.empty()) return std::nullopt;
  const ScaleInterval& shown = window.shown();
  for (const SiteScales& site : window.sites) {
    const ScaleInterval& own = window.comfortable.empty() ? site.usable : site.comfortable;
    if (window.floor_site < 0 && own.low == shown.low) window.floor_site = site.site;
    if (window.ceiling_site < 0 && own.high == shown.high) window.ceiling_site = site.site;
  }
  if (!window.comfortable.empty()) {
    window.rest = window.comfortable;
  } else if (!window.usable.empty()) {
    window.rest = window.usable;
  } else {
    std::vector<ScaleInterval> intervals;
    for (const LayerScales& layer : window.layers) intervals.push_back(layer.usable);
    const ScaleChoice choice = best_scale(intervals);
    for (size_t i : choice.outside) window.outside.push_back(window.layers[i].node);
    window.rest = choice.window;
    // The rest may even have room for comfort.
    ScaleInterval comfortable;
    for (size_t i = 0; i < window.layers.size(); ++i) {
      if (!std::binary_search(choice.outside.begin(), choice.outside.end(), i)) {
        comfortable.intersect(window.layers[i].comfortable);
      }
    }
    if (!comfortable.empty()) window.rest = comfortable;
  }
  // With every layer taken out nothing is left to scale.
  if (window.outside.size() == window.layers.size()) return window;
  window.scale = middle_scale(window.rest);
  // Shrinking the loss is sound but odd; where leaving it alone is as safe, do that.
  if (window.scale < 1.0 && window.rest.contains(1.0)) window.scale = 1.0;
  return window;
}

std::optional<double> scale_that_fits(const LaneFacts& lane) {
  const std::optional<double> ceiling = scale_ceiling(lane);
  if (!ceiling) return std::nullopt;
  const double below = scale_below(*ceiling);
  const std::optional<ScaleWindow> window = loss_scale_window(lane);
  if (!window || window->usable.empty() || window->shown().contains(below)) return below;
  if (below >= window->shown().high) return window->scale;
  // A power of two to spare is too much where the window is narrow.
  return window->shown().contains(2.0 * below) ? 2.0 * below : below;
}

namespace {

/// Counts the narrow gradients that are 0 in every step of a recording.
int64_t zero_gradients_of(const LaneFacts& lane) {
  return std::count_if(lane.info().sites.begin(), lane.info().sites.end(),
                       [&](const SiteInfo& site) {
                         return site.phase == Phase::backward && narrow_exponent(site.format) &&
                                zero_course(lane, site.order).always_zero();
                       });
}

/// Returns whether gradients were not finite at a scale within a window although none of their
/// values overflowed: an infinite slope, or NaN. A lower scale would not have helped.
bool fails_within(const LaneFacts& lane, const ScaleInterval& window) {
  return std::any_of(lane.recorded().begin(), lane.recorded().end(), [&](const RecordedStep& step) {
    return step.backward_bad && !step.forward_bad && !step.gradients_overflow &&
           window.contains(step.loss_scale);
  });
}

void find_loss_scale_window(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.full_precision()) return;
  const std::optional<ScaleWindow> found = loss_scale_window(lane);
  if (!found) return;
  const ScaleWindow& window = *found;
  const std::string floor = lane.site(window.floor_site).name();
  const std::string ceiling = lane.site(window.ceiling_site).name();

  Finding finding{.rule = "loss_scale_window", .lane = lane.lane()};
  const ScaleInterval& shown = window.shown();
  finding.evidence = {{"gradient_sites", static_cast<double>(window.sites.size())}};
  if (has_low(shown)) {
    finding.evidence["window_low"] = shown.low;
    finding.evidence["highest_floor_site"] = floor;
  }
  if (has_high(shown)) {
    finding.evidence["window_high"] = shown.high;
    finding.evidence["lowest_ceiling_site"] = ceiling;
  }
  if (window.scale > 0.0) finding.evidence["advised_scale"] = window.scale;

  if (!window.usable.empty()) {
    if (fails_within(lane, shown)) return;  // another rule knows why
    if (!has_low(shown) && !has_high(shown)) return;
    const int64_t zeros = lane.captured() ? zero_gradients_of(lane) : 0;
    finding.mechanism =
        fmt::format("loss scales {} work for all {}", interval_text(shown),
                    counted(static_cast<int64_t>(window.sites.size()), "gradient tensor"));
    finding.text = fmt::format("Loss scales {} work for every gradient{}{}", interval_text(shown),
                               zeros > 0 ? " that is not 0" : "", ends_text(shown, floor, ceiling));
    if (window.comfortable.empty()) {
      finding.text +=
          " Some small values become 0 at every scale, but they carry less than 0.1% of the energy "
          "(sum of squares) of their gradient.";
    }
    if (zeros > 0) {
      finding.text +=
          fmt::format(" {} 0 in all recorded steps. If {} to 0, the lower end is too low.",
                      zeros == 1 ? "One gradient is" : fmt::format("{} gradients are", zeros),
                      zeros == 1 ? "it underflowed" : "they underflowed");
    } else if (lane.captured() && has_low(shown)) {
      finding.text +=
          " Values that had become 0 before they were recorded do not count, so the lower end may "
          "be too low.";
    }
    const double used = last_scale_used(lane);
    finding.evidence["last_scale_used"] = used;
    finding.action = advise_within(lane, window, used);
    findings.push_back(std::move(finding));
    return;
  }

  std::vector<std::string> layers;
  for (int node : window.outside) {
    layers.push_back(lane.nodes()[static_cast<size_t>(node)].path);
  }
  layers = lane.in_order(std::move(layers));
  finding.severity = Severity::error;
  if (layers.size() == 1) finding.layer = layers.front();
  for (const SiteScales& site : window.sites) {  // where to look: the first gradient left out
    if (std::find(window.outside.begin(), window.outside.end(), lane.node_of(site.site)) ==
        window.outside.end()) {
      continue;
    }
    finding.site = lane.site(site.site).name();
    finding.layer = lane.site(site.site).path;
    break;
  }
  finding.evidence["layers_outside"] = static_cast<double>(layers.size());
  finding.mechanism = fmt::format(
      "no single loss scale works: {} underflows below 2^{:.1f} and {} overflows above 2^{:.1f}",
      floor, std::log2(window.usable.low), ceiling, std::log2(window.usable.high));
  finding.text = fmt::format(
      "No single loss scale works: {} underflows below 2^{:.1f}, while {} overflows above "
      "2^{:.1f}. Every scale, static or dynamic, is wrong for one of them.",
      floor, std::log2(window.usable.low), ceiling, std::log2(window.usable.high));
  finding.action = keep_in_fp32(layers);
  if (window.scale > 0.0) {
    finding.action.edit.set_loss_scale(window.scale);
  }
  if (window.scale > 0.0 && (window.rest.low > 0.0 || std::isfinite(window.rest.high))) {
    finding.action.text +=
        fmt::format(" Then loss scales {} work for all other layers, for example {}.",
                    interval_text(window.rest), scale_text(window.scale));
  }
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::loss_scale_window{
    .id = "loss_scale_window", .run = find_loss_scale_window, .mechanism = Mechanism::loss_scale};

}  // namespace halfscope
