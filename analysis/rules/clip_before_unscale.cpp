// SPDX-License-Identifier: MIT
// clip_before_unscale: the norm of scaled gradients is clipped, and they are unscaled afterwards.
// Then the norm that remains is the clipping norm divided by the loss scale.
//
// An update of SGD is the learning rate times the gradient, times the factor of the clipping. Where
// this factor is the same for all weights, it shows in the recorded numbers:
//   factor = max |update| / (rate max |gradient| / scale),   clipped norm = factor * norm
// A clipped norm that is tiny, but a usual one once it is multiplied by the loss scale, was clipped
// before it was unscaled. Adam's updates are independent of such factors, apart from eps; after its
// first step its first moment is 1 - beta1 times the gradient.
//
// Single values that are clipped leave max |update| = rate c / scale in every variable with larger
// gradients. Weight decay hides all of that: then the first updates are multiples of the weights,
// with nothing of the gradients in them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "core/numeric/statistics/ulp.h"

namespace halfscope {
namespace {

constexpr double kLeastScale = 64.0;
/// One clipping scales all weights alike. Factors that differ by more have another cause (momentum,
/// Adam, decay).
constexpr double kSame = 1.02;
/// A number is round within this part of it: 1024 is not 1000.
constexpr double kClose = 0.012;
/// An update that is known less exactly shows no factor.
constexpr double kMostError = 0.1;
/// Norms that people clip to.
constexpr double kLeastUsual = 0.05, kMostUsual = 100.0;
/// A norm, and a value, that nobody clips to.
constexpr double kTiny = 1e-2, kTinyValue = 1e-3;
/// Updates that are the same multiple of all weights within 0.2% have less than this part of
/// gradients: in another direction than the weights, they add half their squared share.
constexpr double kPartOfDecay = 16.0, kMultiple = 1.002;

/// A variable in one step: what was made of its gradient, and the gradient itself, as scaled.
struct ClippedVariable {
  TensorStats made{}, gradient{}, weight{};
};

/// Returns the variables of a step by name. `role` and `end` say which recorded tensors were made
/// of gradients.
std::map<std::string, ClippedVariable> changes_of(const LaneFacts& lane, const StepRow& row,
                                                  Role role, std::string_view end) {
  std::map<std::string, ClippedVariable> all;
  constexpr std::string_view kGradient = "_grad";
  for (const SiteInfo& site : lane.info().sites) {
    const std::string name = site.name();
    const bool of_gradient = site.role == Role::weight_grad && name.ends_with(kGradient);
    const bool made = site.role == role && name.ends_with(end);
    if (!of_gradient && !made && site.role != Role::weight) continue;
    const std::optional<TensorStats> stats = lane.stats(site.order, row.step);
    if (!stats) continue;
    const size_t tail = of_gradient ? kGradient.size() : made ? end.size() : 0;
    ClippedVariable& change = all[name.substr(0, name.size() - tail)];
    (of_gradient ? change.gradient : made ? change.made : change.weight) = *stats;
  }
  std::erase_if(all, [](const auto& each) {
    return each.second.made.n == 0 || each.second.gradient.max_abs == 0.0f;
  });
  return all;
}

using ClippedVariables = std::map<std::string, ClippedVariable>;

/// Returns how far what was made of a gradient may be off: half an ulp of the largest weight if it
/// is the difference of two rounded weights, else 0.
double rounding_of(const ClippedVariable& variable, bool differs) {
  if (!differs) return 0.0;
  return 0.5 * ulp_size(static_cast<double>(variable.weight.max_abs), kFp32);
}

/// A factor on gradients, and its relative error.
struct Factor {
  double value = 0.0, error = 0.0;
};

/// Returns the factor on the gradients of a step; 0 if they have none in common. Without clipping,
/// what is made of a gradient is `unit` times as large. If that is a difference of two rounded
/// weights, it is known to half an ulp of the weights only.
Factor clipping_factor(const ClippedVariables& changes, double scale, double unit, bool differs) {
  double low = 0.0, high = std::numeric_limits<double>::infinity(), best = 0.0;
  double least_error = kMostError;
  for (const auto& [name, each] : changes) {
    const double made = static_cast<double>(each.made.max_abs);
    const double by = scale / (unit * static_cast<double>(each.gradient.max_abs));
    const double error = rounding_of(each, differs);
    low = std::max(low, (made - error) * by);
    high = std::min(high, (made + error) * by);
    if (made == 0.0 || error > least_error * made) continue;
    least_error = error / made;
    best = made * by;
  }
  return best > 0.0 && low <= kSame * high ? Factor{best, least_error} : Factor{};
}

/// Returns whether a number is one that people write: one or two significant digits.
bool is_round(double x) {
  const double digits = x / std::pow(10.0, std::floor(std::log10(x)));
  for (const double round : {1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0}) {
    if (std::fabs(digits - round) <= kClose * round) return true;
  }
  return false;
}

/// Returns the size to which single values of the scaled gradients were clipped; 0 if they were
/// not, or in one variable only.
double clipping_value(const ClippedVariables& changes, double scale, double unit, bool differs) {
  double value = 0.0;
  int64_t clipped = 0;
  for (const auto& [name, each] : changes) {
    value = std::max(value, static_cast<double>(each.made.max_abs) * scale / unit);
  }
  for (const auto& [name, each] : changes) {
    const double remains = static_cast<double>(each.made.max_abs) * scale / unit;
    const double own = static_cast<double>(each.gradient.max_abs);
    const double expected = std::min(own, value);
    const double error = rounding_of(each, differs) * scale / unit;
    if (error > kMostError * value) continue;
    const double both = 2.0 * error;  // also of the largest value
    if (remains - both > kSame * expected || expected - both > kSame * remains) return 0.0;
    if (own > kSame * value) ++clipped;
  }
  return clipped >= 2 ? value : 0.0;
}

/// Returns the norm of a step's updates, divided by the rate, if they are the same multiple of the
/// weights in all variables; else 0. Then hardly any of it comes from gradients.
double norm_of_decay(const ClippedVariables& changes, double rate) {
  double least = 0.0, most = 0.0, norm = 0.0;
  int64_t variables = 0;
  for (const auto& [name, each] : changes) {
    if (each.weight.sum_sq == 0.0) continue;
    const double multiple = std::sqrt(each.made.sum_sq / each.weight.sum_sq);
    least = variables == 0 ? multiple : std::min(least, multiple);
    most = std::max(most, multiple);
    norm += each.made.sum_sq;
    ++variables;
  }
  const bool alike = variables >= 2 && least > 0.0 && most <= kMultiple * least;
  return alike ? std::sqrt(norm) / rate : 0.0;
}

/// Returns beta1 of the run's Adam; nothing for other optimizers.
std::optional<double> first_beta(const RunInfo& info) {
  const std::optional<Optimizer> optimizer = recorded_optimizer(info);
  return optimizer && is_adam(*optimizer) ? std::optional(optimizer->beta1) : std::nullopt;
}

void find_clip_before_unscale(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.inference()) return;
  const std::optional<double> beta = first_beta(lane.run().info());
  bool is_first = true;  // step that is not skipped
  int64_t first = -1, steps = 0;
  double norm = 0.0, clipped = 0.0, scale = 1.0;
  bool single = false;  // values were clipped, not the norm
  bool hidden = false;  // by weight decay
  for (const StepRow& row : lane.steps()) {
    const auto recorded =
        std::find_if(lane.recorded().begin(), lane.recorded().end(),
                     [&](const RecordedStep& each) { return each.step == row.step; });
    if (row.skipped) continue;
    const bool of_first = is_first, of_moment = beta && is_first;
    is_first = false;
    if (recorded == lane.recorded().end() || recorded->step_count != 1) continue;
    if (!(row.loss_scale >= kLeastScale) || !(row.learning_rate > 0.0)) continue;
    if (beta && !of_moment) continue;
    const ClippedVariables changes = of_moment ? changes_of(lane, row, Role::state, "_adam_m")
                                               : changes_of(lane, row, Role::update, "_update");
    const double unit = of_moment ? 1.0 - *beta : row.learning_rate;
    const bool differs = lane.captured() && !of_moment;
    const auto [factor, error] = clipping_factor(changes, row.loss_scale, unit, differs);
    const double value =
        factor == 0.0 ? clipping_value(changes, row.loss_scale, unit, differs) / row.loss_scale
                      : 0.0;
    // The most that clipping left.
    const double decayed = factor == 0.0 && value == 0.0 && of_first && !beta
                               ? norm_of_decay(changes, row.learning_rate) / kPartOfDecay
                               : 0.0;
    if (factor == 0.0 && value == 0.0 && decayed == 0.0) continue;
    const double remains = factor > 0.0 ? factor * row.grad_norm : std::max(value, decayed);
    const double by_scale = remains * row.loss_scale;
    const bool usual = by_scale >= kLeastUsual && by_scale <= kMostUsual;
    const double most = decayed > 0.0 ? kLeastUsual : value > 0.0 ? kTinyValue : kTiny;
    if ((!usual && decayed == 0.0) || remains > most) return;
    if (factor > 2.0 / std::sqrt(row.loss_scale)) return;
    // A small limit in the right order. Momentum changes the size in later steps.
    const bool known = first < 0 && decayed == 0.0 && error <= kClose;
    if (known && is_round(remains) && !is_round(by_scale)) return;
    if (decayed > 0.0 && !(row.grad_norm > 2.0 * decayed)) return;  // small without clipping
    if (first < 0) {
      first = row.step;
      norm = row.grad_norm;
      clipped = remains;
      scale = row.loss_scale;
      single = value > 0.0;
      hidden = decayed > 0.0;
    }
    ++steps;
  }
  if (steps == 0) return;
  Finding finding{.rule = "clip_before_unscale", .lane = lane.lane()};
  finding.severity = beta ? Severity::warning : Severity::error;
  finding.step = first;
  finding.mechanism = "gradients are clipped before they are unscaled";
  finding.evidence = {{"norm", norm},
                      {"clipped_norm", clipped},
                      {"loss_scale", scale},
                      {"steps", static_cast<double>(steps)}};
  finding.text = "Gradients are clipped before they are unscaled. ";
  const std::string then = beta ? "Adam's eps counts far too much" : "every step is too small";
  if (hidden) {
    finding.text += fmt::format(
        "In step {}, the updates are weight decay alone: of gradients with a norm of {:.2g}, "
        "clipping leaves less than {:.2g}.",
        first, norm, clipped);
  } else if (single) {
    finding.text += fmt::format(
        "In step {}, no value is larger than {:.2g}. That is {:.3g} divided by the loss scale of "
        "{:.6g}, so {}.",
        first, clipped, clipped * scale, scale, then);
  } else {
    finding.text += fmt::format(
        "In step {}, clipping leaves a norm of {:.2g} out of {:.2g}. That is {:.3g} divided by the "
        "loss scale of {:.6g}, so {}.",
        first, clipped, norm, clipped * scale, scale, then);
  }
  finding.action = {.text =
                        "Unscale first: scaler.unscale_(optimizer) before clipping in PyTorch. In "
                        "Keras, set clipnorm on the inner optimizer."};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::clip_before_unscale{.id = "clip_before_unscale",
                                     .run = find_clip_before_unscale,
                                     .mechanism = Mechanism::configuration,
                                     .explains = "Caused by the clipping above. Fix that first.",
                                     .matters_without_harm = true,
                                     .of_numbers = false};

}  // namespace halfscope
