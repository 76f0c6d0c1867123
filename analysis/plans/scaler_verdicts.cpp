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
    if (is_good(trace_.end)) return {};
    if (trace_.cause < 0) {
      return {
          .site = "",
          .why = "No gradient overflows, so nothing limits the scale.",
          .advice = "Use a fixed one: static:" + number_text(static_scale(trace_, demands_)) + "."};
    }
    const ScaleDemand& step = demands_.steps[static_cast<size_t>(trace_.cause)];
    return step.ceiling > 0.0 ? of_gradients(step) : of_forward(step);
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
            .why = site + " overflows in the forward pass.",
            .advice = diagnose() + " to fix " + layer(step.forward_site) + "."};
  }

  std::string diagnose() const {
    return "No loss scale helps: run halfscope diagnose " +
           (run_.empty() ? "RUN" : shell_quoted(run_));
  }

  ScalerVerdict of_gradients(const ScaleDemand& step) const {
    const std::string site = name(step.ceiling_site);
    const double scale = below(step.ceiling);
    ScalerVerdict verdict{.site = site, .why = "", .advice = change(scale)};
    verdict.why =
        fmt::format("{} overflows in step {} unless the loss scale is at most about {}.",
                    site.empty() ? "A gradient" : site, trace_.cause, short_number(step.ceiling));
    if (!site.empty()) {
      verdict.advice += fmt::format(", or keep {} in fp32", layer(step.ceiling_site));
    }
    verdict.advice += ".";
    return verdict;
  }

  /// Returns the change of the scaler that brings its scale down to this one.
  std::string change(double scale) const {
    const std::string number = number_text(scale);
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
