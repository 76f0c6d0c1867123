// SPDX-License-Identifier: MIT
#include "analysis/plans/scaler_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/backend/step_decision.h"
#include "core/error.h"

namespace halfscope {
namespace {

using Kind = LossScalerConfig::Kind;

/// Skipped steps at the end that are no search for a scale any more, unless one is in reach.
constexpr int64_t kStuck = 20;
/// Skipped steps after which every scaler's scale is 0 or at its minimum.
constexpr int64_t kLongestFall = 4000;
/// Growth without an overflow that no longer looks for a ceiling.
constexpr double kRunaway = 0x1p24;

/// Returns whether the update of a step that is taken turns weights into NaN or infinity.
bool corrupts(const LossScalerConfig& scaler, const LossScalerState& state, bool finite) {
  if (!finite) return true;
  const float factor = unscale_factor(scaler, state);
  return divides_by_scale(scaler) ? factor == 0.0f : std::isinf(factor);
}

class Tracer {
 public:
  Tracer(const LossScalerConfig& scaler, const ScaleDemands& demands)
      : scaler_(scaler), demands_(demands) {
    state_.scaler = initial_state(scaler);
    trace_.scaler = loss_scale_text(scaler);
    trace_.changes.push_back({0, state_.scaler.scale});
    trace_.lowest = trace_.highest = lowest_since_skip_ = state_.scaler.scale;
  }

  ScalerTrace run() {
    for (const ScaleDemand& demand : demands_.steps) {
      if (!step(demand)) break;
    }
    trace_.updates = state_.updates;
    if (shares_ > 0) trace_.lost = lost_ / static_cast<double>(shares_);
    judge();
    return std::move(trace_);
  }

 private:
  /// Returns whether the training goes on.
  bool step(const ScaleDemand& demand) {
    const double before = state_.scaler.scale;
    const double factor = scaler::single(before);  // what the loss is multiplied by
    const bool finite = !corrupted_ && factor < demand.ceiling;
    const ScaledStep decided = scaled_step(state_, scaler_, finite);
    if (decided.next.scaler.stop != ScalerStop::none) {
      trace_.stop = decided.next.scaler.stop;
      return false;
    }
    const int64_t now = trace_.steps++;
    if (decided.skipped) {
      ++trace_.skipped;
      if (trace_.last_skipped != now - 1 || now == 0) skips_since_ = now;
      trace_.last_skipped = now;
      lowest_since_skip_ = decided.next.scaler.scale;
    } else {
      if (trace_.first_taken < 0) trace_.first_taken = now;
      if (!corrupted_ && corrupts(scaler_, state_.scaler, finite)) {
        corrupted_ = true;
        trace_.at = now;
        // Either these gradients are not finite, or the steps skipped before drove the scale away.
        trace_.cause = finite ? trace_.last_skipped : now;
      }
      if (finite && factor <= demand.floor) ++trace_.flushed;
      if (finite && demand.curve >= 0) {
        lost_ += demands_.curves[static_cast<size_t>(demand.curve)].at(factor);
        ++shares_;
      }
    }
    state_ = decided.next;
    const double scale = state_.scaler.scale;
    if (scale != before) {
      trace_.changes.push_back({now + 1, scale});
      trace_.lowest = std::min(trace_.lowest, scale);
      trace_.highest = std::max(trace_.highest, scale);
    }
    return true;
  }

  void judge() {
    const double last = state_.scaler.scale;
    const int64_t tail = trace_.last_skipped == trace_.steps - 1 ? trace_.steps - skips_since_ : 0;
    const bool ends_skipping = tail >= kStuck || (tail > 0 && tail == trace_.steps);
    const auto set = [&](ScalerEnd end, int64_t at, const std::string& about) {
      trace_.end = end;
      trace_.at = at;
      trace_.about = about;
    };
    if (trace_.stop != ScalerStop::none) {
      const bool minimum = trace_.stop == ScalerStop::at_minimum;
      trace_.cause = minimum ? trace_.steps : trace_.last_skipped;
      set(ScalerEnd::stops, trace_.steps,
          fmt::format("{} at step {}: {}", minimum ? "DeepSpeed raises" : "apex divides by zero",
                      trace_.steps,
                      minimum ? "a step overflows at the minimum, " + scale_text(scaler_.minimum)
                              : "the scale is 0"));
    } else if (corrupted_) {
      set(ScalerEnd::nan_weights, trace_.at,
          fmt::format("weights become NaN at step {}: {}", trace_.at, why_corrupted()));
    } else if (std::isinf(last)) {
      set(ScalerEnd::infinite, trace_.changes.back().step,
          fmt::format("the scale is infinite from step {} on, and half of that is infinite, too",
                      trace_.changes.back().step));
    } else if (ends_skipping && !can_fall()) {
      const int64_t changed = trace_.changes.back().step;
      const int64_t from = changed < trace_.steps ? std::max(skips_since_, changed) : skips_since_;
      trace_.cause = tightest_from(skips_since_);
      set(ScalerEnd::stuck, from, about_stuck(from));
    } else if (ends_skipping) {
      trace_.cause = tightest_from(skips_since_);
      trace_.missing = missing_steps();
      const bool searches = tail < kStuck || trace_.missing > 0;
      set(searches ? ScalerEnd::searches : ScalerEnd::collapses, skips_since_,
          about_fall(searches));
    } else if (last >= kRunaway * lowest_since_skip_) {
      set(ScalerEnd::runaway, -1,
          fmt::format("has grown to {} without meeting an overflow", scale_text(last)));
    } else if (trace_.skipped == 0) {
      set(ScalerEnd::fits, -1, "skips no step");
    } else if (trace_.skipped == trace_.last_skipped + 1) {
      set(ScalerEnd::calibrates, trace_.first_taken,
          fmt::format("skips {} at the start while it finds its scale",
                      counted(trace_.skipped, "step")));
    } else {
      set(ScalerEnd::rides, -1, fmt::format("skips {}", counted(trace_.skipped, "step")));
    }
  }

  /// Returns whether more skipped steps would change the scale.
  bool can_fall() const {
    if (is_static(scaler_)) return false;
    const int64_t unchanged = trace_.steps - trace_.changes.back().step;
    if (unchanged >= std::max<int64_t>(kStuck, scaler_.hysteresis + 1)) return false;
    StepState state = state_;
    for (int32_t i = 0; i < std::max(scaler_.hysteresis, 1); ++i) {
      state = scaled_step(state, scaler_, false).next;
      if (state.scaler.stop != ScalerStop::none) return true;
    }
    return state.scaler.scale != state_.scaler.scale;
  }

  /// Returns after how many more steps like the last one the first is taken; 0 if none is, or if
  /// the last one does not say at which scale it would be.
  int64_t missing_steps() const {
    const ScaleDemand& demand = demands_.steps[static_cast<size_t>(trace_.steps - 1)];
    if (!(demand.ceiling > 0.0) || demand.hidden) return 0;
    StepState state = state_;
    for (int64_t more = 0; more < kLongestFall; ++more) {
      const bool finite = scaler::single(state.scaler.scale) < demand.ceiling;
      const ScaledStep decided = scaled_step(state, scaler_, finite);
      if (decided.next.scaler.stop != ScalerStop::none) return 0;
      if (!decided.skipped) return more + 1;
      state = decided.next;
    }
    return 0;
  }

  std::string about_stuck(int64_t from) const {
    const std::string scale = scale_text(state_.scaler.scale);
    if (trace_.steps - skips_since_ < kStuck) return skips_text() + ": the scale stays at " + scale;
    return fmt::format("skips every step from step {} on: the scale stays at {}", from, scale);
  }

  std::string about_fall(bool searches) const {
    const double first = scale_at(skips_since_), last = state_.scaler.scale;
    const std::string how = first == last ? "is still " + scale_text(last)
                                          : fmt::format("has fallen from {} to {}",
                                                        scale_text(first), scale_text(last));
    if (!searches) {
      return fmt::format("skips every step from step {} on: the scale {}", skips_since_, how);
    }
    return fmt::format("{}: the scale {}. The run is too short to tell whether it finds one",
                       skips_text(), how);
  }

  /// "skips all 7 steps", "skips the last 30 steps"
  std::string skips_text() const {
    const int64_t count = trace_.steps - skips_since_;
    if (trace_.steps == 1) return "skips the only step";
    return fmt::format("skips {} {} steps", skips_since_ == 0 ? "all" : "the last", count);
  }

  /// Returns the step with the lowest ceiling: at scales below it, all of them are taken.
  int64_t tightest_from(int64_t from) const {
    const auto begin = demands_.steps.begin();
    const auto tightest = std::min_element(
        begin + from, begin + trace_.steps,
        [](const ScaleDemand& a, const ScaleDemand& b) { return a.ceiling < b.ceiling; });
    return tightest - begin;
  }

  std::string why_corrupted() const {
    const double scale = scale_at(trace_.at);
    if (scaler_.kind == Kind::none || scaler_.fixed) return "it never skips a step";
    return scale == 0.0 ? "the scale is 0, and 0 / 0 is NaN"
                        : fmt::format("the scale is {}, whose inverse is infinite in fp32",
                                      scale_text(scale));
  }

  double scale_at(int64_t step) const {
    double scale = trace_.changes.front().scale;
    for (const ScaleChange& each : trace_.changes) {
      if (each.step <= step) scale = each.scale;
    }
    return scale;
  }

  const LossScalerConfig& scaler_;
  const ScaleDemands& demands_;
  StepState state_{};
  ScalerTrace trace_{};
  bool corrupted_ = false;
  int64_t skips_since_ = -1;  ///< the first of the last skipped steps in a row
  double lowest_since_skip_ = 0.0;
  double lost_ = 0.0;
  int64_t shares_ = 0;
};

}  // namespace

double FlushCurve::at(double scale) const noexcept {
  if (!(scale > 0.0)) return 1.0;
  const int exponent = std::isinf(scale) ? 1 << 16 : std::ilogb(scale);
  if (exponent < lowest) return 1.0;
  const size_t place = static_cast<size_t>(exponent - lowest);
  return place < shares.size() ? shares[place] : 0.0;
}

const char* scaler_end_name(ScalerEnd end) noexcept {
  switch (end) {
    case ScalerEnd::fits:
      return "fits";
    case ScalerEnd::calibrates:
      return "calibrates";
    case ScalerEnd::searches:
      return "searches";
    case ScalerEnd::rides:
      return "rides";
    case ScalerEnd::runaway:
      return "runaway";
    case ScalerEnd::stuck:
      return "stuck";
    case ScalerEnd::collapses:
      return "collapses";
    case ScalerEnd::stops:
      return "stops";
    case ScalerEnd::nan_weights:
      return "nan_weights";
    case ScalerEnd::infinite:
      return "infinite";
  }
  return "";
}

bool is_good(ScalerEnd end) noexcept {
  return end == ScalerEnd::fits || end == ScalerEnd::calibrates || end == ScalerEnd::rides;
}

ScalerTrace trace_scaler(const LossScalerConfig& scaler, const ScaleDemands& demands) {
  return Tracer(scaler, demands).run();
}

std::vector<LossScalerConfig> usual_scalers(int32_t interval) {
  std::vector<LossScalerConfig> scalers;
  for (const std::string& name : framework_scalers()) {
    scalers.push_back(parse_loss_scale(name));
    if (interval > 0 && !is_static(scalers.back())) scalers.back().growth_interval = interval;
  }
  return scalers;
}

double fitting_static_scale(const ScaleDemands& demands) {
  double lowest = HUGE_VAL;
  for (const ScaleDemand& step : demands.steps) {
    if (step.ceiling > 0.0) lowest = std::min(lowest, step.ceiling);
  }
  if (!std::isfinite(lowest)) return 0.0;
  // The ceiling itself overflows.
  return std::exp2(std::ceil(std::log2(lowest)) - 1.0);
}

std::vector<LimitSite> limiting_sites(const ScaleDemands& demands, bool ceilings) {
  std::vector<LimitSite> sites;
  for (const std::string& name : demands.sites) sites.push_back({.site = name});
  for (const ScaleDemand& step : demands.steps) {
    const int which = ceilings ? step.ceiling_site : step.floor_site;
    if (which < 0) continue;
    LimitSite& site = sites[static_cast<size_t>(which)];
    const double limit = ceilings ? step.ceiling : step.floor;
    const bool tighter = ceilings ? limit < site.tightest : limit > site.tightest;
    if (site.steps++ == 0 || tighter) site.tightest = limit;
  }
  std::erase_if(sites, [](const LimitSite& site) { return site.steps == 0; });
  std::stable_sort(sites.begin(), sites.end(),
                   [](const LimitSite& a, const LimitSite& b) { return a.steps > b.steps; });
  return sites;
}

}  // namespace halfscope
