// SPDX-License-Identifier: MIT
#include "analysis/rules/scale_ceiling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/format_limits.h"

namespace halfscope {
namespace {

struct Seen {
  bool any = false;       ///< there are statistics of the tensor
  bool complete = false;  ///< in some step all of its values were finite before rounding
  double largest = 0.0;   ///< finite magnitude, unscaled
  double too_large = std::numeric_limits<double>::infinity();  ///< a scale that overflowed
};

Seen measure(const LaneFacts& lane, int site) {
  Seen seen;
  for (const RecordedStep& step : lane.recorded()) {
    // After a forward overflow, gradients mean nothing; without one scale they cannot be unscaled.
    if (step.forward_bad || !(step.loss_scale > 0.0) || !std::isfinite(step.loss_scale)) continue;
    const std::optional<TensorStats> stats = lane.stats(site, step.step);
    if (!stats || stats->n == 0) continue;
    seen.any = true;
    seen.complete = seen.complete || stats->non_finite() == 0;
    if (overflowed_before_capture(lane, step, site)) {
      seen.too_large = std::min(seen.too_large, step.loss_scale);
    }
    seen.largest = std::max(seen.largest, static_cast<double>(stats->max_abs) / step.loss_scale);
  }
  return seen;
}

/// Returns the largest magnitude of the tensor in the full-precision lane. A copy that this lane
/// makes to read a gradient in a narrow format does not exist there; it is a copy of the gradient
/// of the node's output.
double reference_largest(const RunView& run, int reference, const SiteInfo& site) {
  std::optional<int> theirs = run.find_site(reference, site.name());
  if (!theirs) theirs = run.find_site(reference, site.path + ".activation_grad");
  // References are trained without loss scaling.
  return theirs ? static_cast<double>(run.total(reference, *theirs).max_abs) : 0.0;
}

}  // namespace

bool overflowed_before_capture(const LaneFacts& lane, const RecordedStep& step, int site) {
  const std::optional<TensorStats> stats = lane.stats(site, step.step);
  if (!lane.captured() || !stats || stats->pos_inf + stats->neg_inf == 0) return false;
  const auto first = std::find_if(step.bad.begin(), step.bad.end(), [&](int each) {
    return lane.site(each).phase == Phase::backward;
  });
  return first != step.bad.end() && *first == site;
}

std::optional<double> scale_ceiling(const LaneFacts& lane) {
  const int reference = lane.reference();
  double ceiling = std::numeric_limits<double>::infinity();
  for (const SiteInfo& site : lane.info().sites) {
    if (is_loss_scale(site)) ceiling = std::min(ceiling, overflow_threshold(site.format));
    const bool scaled = !site.scale.empty();  // no loss scale reaches its codes
    if (site.phase != Phase::backward || scaled || !narrow_exponent(site.format)) continue;
    const Seen own = measure(lane, site.order);
    ceiling = std::min(ceiling, own.too_large);
    if (lane.sums_wider(site)) continue;
    double largest = own.largest;
    if (!own.complete) {
      const double theirs = reference >= 0 ? reference_largest(lane.run(), reference, site) : 0.0;
      if (!(theirs > 0.0) && own.any) return std::nullopt;
      largest = std::max(largest, theirs);
    }
    if (largest > 0.0) ceiling = std::min(ceiling, overflow_threshold(site.format) / largest);
  }
  return std::isfinite(ceiling) ? std::optional(ceiling) : std::nullopt;
}

double scale_below(double ceiling) noexcept {
  return std::exp2(std::floor(std::log2(ceiling)) - 1.0);
}

}  // namespace halfscope
