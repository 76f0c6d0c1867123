// SPDX-License-Identifier: MIT
#include "analysis/plans/scaler_verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/number_text.h"

namespace halfscope {
namespace {

using Kind = LossScalerConfig::Kind;

/// Returns the largest power of two below a ceiling, at which nothing overflows.
double below(double ceiling) { return std::exp2(std::ceil(std::log2(ceiling)) - 1.0); }

/// Returns a static scale for a trajectory that never overflows: the first power of two that loses
/// no gradient, or the scaler's own first scale if the floors are unknown.
double static_scale(const ScalerTrace& trace, const ScaleDemands& demands) {
  double floor = 0.0;
  for (const ScaleDemand& step : demands.steps) floor = std::max(floor, step.floor);
  if (!(floor > 0.0)) return trace.changes.front().scale;
  const double scale = std::exp2(std::floor(std::log2(floor)) + 1.0);
  const double fits = fitting_static_scale(demands);
  return fits > 0.0 ? std::min(scale, fits) : scale;
}

class Verdict {
 public:
  Verdict(const ScalerTrace& trace, const LossScalerConfig& scaler, const ScaleDemands& demands,
          const std::string& run)
      : trace_(trace), scaler_(scaler), demands_(demands), run_(run) {}

  ScalerVerdict make() const {
    if (trace_.end == ScalerEnd::runaway || trace_.end == ScalerEnd::infinite) {
      return {
          .site = "",
          .why = "No gradient overflows, so nothing limits the scale.",
          .advice = "Use a fixed one: static:" + number_text(static_scale(trace_, demands_)) + "."};
    }
    if (trace_.cause < 0) return is_good(trace_.end) ? of_loss() : ScalerVerdict{};
    const ScaleDemand& step = demands_.steps[static_cast<size_t>(trace_.cause)];
    if (step.ceiling > 0.0) return step.hidden ? of_hidden(step) : of_gradients(step);
    return step.nan_site >= 0 ? of_nan(step) : of_forward(step);
  }

 private:
  std::string name(int site) const {
    return site < 0 ? "" : demands_.sites[static_cast<size_t>(site)];
  }
  std::string layer(int site) const {
    return site < 0 ? "" : demands_.layers[static_cast<size_t>(site)];
  }

  ScalerVerdict of_forward(const ScaleDemand& step) const {
    const std::string site = name(step.forward_site);
    if (site.empty()) {
      return {.site = "",
              .why = "These steps overflow at any loss scale.",
              .advice = run_.empty() ? "No loss scale helps: record the training and run halfscope "
                                       "diagnose to find what overflows in the forward pass."
                                     : diagnose() + " to find what overflows."};
    }
    return {.site = site,
            .why = site + (step.forward_nan ? " is NaN" : " overflows") + " in the forward pass.",
            .advice = diagnose() + " to fix " + layer(step.forward_site) + "."};
  }

  /// A lower scale does not help against NaN that no overflow makes.
  ScalerVerdict of_nan(const ScaleDemand& step) const {
    return {.site = name(step.nan_site),
            .why = fmt::format("{} is NaN in step {}, though no gradient overflows.",
                               name(step.nan_site), trace_.cause),
            .advice = diagnose() + " to find where the NaN comes from."};
  }

  /// Steps with finite gradients are taken, whatever the loss.
  ScalerVerdict of_loss() const {
    if (demands_.loss_lost < 0) return {};
    return {.site = "",
            .why = fmt::format("But the loss is NaN or infinite in step {}.", demands_.loss_lost),
            .advice = diagnose() + " to find out why."};
  }

  /// The run shows only that the gradient overflowed at each scale it had.
  ScalerVerdict of_hidden(const ScaleDemand& step) const {
    const std::string site = name(step.ceiling_site);
    return {.site = site,
            .why = fmt::format("{} overflows in step {} even at the run's own loss scale, {}.",
                               site, trace_.cause, scale_text(step.ceiling)),
            .advice = trace_.end == ScalerEnd::searches
                          ? "Record a longer run, or start at a lower scale."
                          : "Start at a lower scale, or run halfscope diagnose " + run_name() +
                                " to fix " + layer(step.ceiling_site) + "."};
  }

  std::string run_name() const { return run_.empty() ? "RUN" : shell_quoted(run_); }

  std::string diagnose() const {
    return "No loss scale helps: run halfscope diagnose " + run_name();
  }

  ScalerVerdict of_gradients(const ScaleDemand& step) const {
    const std::string site = name(step.ceiling_site);
    const double scale = below(step.ceiling);
    ScalerVerdict verdict{.site = site, .why = "", .advice = change(scale)};
    verdict.why =
        fmt::format("{} overflows in step {} unless the loss scale is at most about {}.",
                    site.empty() ? "A gradient" : site, trace_.cause, short_number(step.ceiling));
    if (!site.empty() && trace_.end != ScalerEnd::searches) {
      verdict.advice += fmt::format(", or keep {} in fp32", layer(step.ceiling_site));
    }
    verdict.advice += ".";
    return verdict;
  }

  /// Returns the change of the scaler that brings its scale down to this one.
  std::string change(double scale) const {
    const std::string number = number_text(scale);
    if (trace_.end == ScalerEnd::searches && trace_.missing > 0) {
      return fmt::format("Train at least {} longer, or start at init={}",
                         counted(trace_.missing, "step"), number);
    }
    if (is_static(scaler_)) return "Use a dynamic scale or static:" + number;
    const bool has_floor = scaler_.kind == Kind::tf_keras || scaler_.kind == Kind::apex_fp16_utils;
    if (has_floor && scale < 1.0) {
      return "Use a scaler that goes below 1, such as torch";
    }
    if (scaler_.minimum > scale) return "Use min=" + number;
    return "Start at init=" + number;
  }

  const ScalerTrace& trace_;
  const LossScalerConfig& scaler_;
  const ScaleDemands& demands_;
  const std::string& run_;
};

}  // namespace

ScalerVerdict verdict_of(const ScalerTrace& trace, const LossScalerConfig& scaler,
                         const ScaleDemands& demands, const std::string& run) {
  return Verdict(trace, scaler, demands, run).make();
}

}  // namespace halfscope
