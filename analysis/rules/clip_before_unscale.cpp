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
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

constexpr double kLeastScale = 64.0;
/// One clipping scales all weights alike. Factors that differ by more have another cause (momentum,
/// Adam, decay).
constexpr double kSame = 1.02;
/// Norms that people clip to.
constexpr double kLeastUsual = 0.05, kMostUsual = 100.0;
/// A norm that nobody clips to.
constexpr double kTiny = 1e-2;

/// Returns the factor on the gradients of a step; 0 if they have none in common. `role`, `end` and
/// `unit` say which recorded tensors are multiples of gradients, and of which size without
/// clipping.
double clipping_factor(const LaneFacts& lane, const StepRow& row, Role role, std::string_view end,
                       double unit) {
  std::map<std::string, double> gradients;
  for (const SiteInfo& site : lane.info().sites) {
    constexpr std::string_view kEnd = "_grad";
    const std::string name = site.name();
    if (site.role != Role::weight_grad || !name.ends_with(kEnd)) continue;
    if (const auto stats = lane.stats(site.order, row.step))
      gradients[name.substr(0, name.size() - kEnd.size())] = static_cast<double>(stats->max_abs);
  }
  double least = 0.0, most = 0.0;
  for (const SiteInfo& site : lane.info().sites) {
    const std::string name = site.name();
    if (site.role != role || !name.ends_with(end)) continue;
    const auto gradient = gradients.find(name.substr(0, name.size() - end.size()));
    const auto stats = lane.stats(site.order, row.step);
    if (gradient == gradients.end() || !stats || gradient->second == 0.0) continue;
    const double factor =
        static_cast<double>(stats->max_abs) * row.loss_scale / (unit * gradient->second);
    least = least == 0.0 ? factor : std::min(least, factor);
    most = std::max(most, factor);
  }
  return least > 0.0 && most <= kSame * least ? most : 0.0;
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
  for (const StepRow& row : lane.steps()) {
    const auto recorded =
        std::find_if(lane.recorded().begin(), lane.recorded().end(),
                     [&](const RecordedStep& each) { return each.step == row.step; });
    if (row.skipped) continue;
    const bool of_moment = beta && is_first;
    is_first = false;
    if (recorded == lane.recorded().end() || recorded->step_count != 1) continue;
    if (!(row.loss_scale >= kLeastScale) || !(row.learning_rate > 0.0)) continue;
    if (beta && !of_moment) continue;
    const double factor =
        of_moment ? clipping_factor(lane, row, Role::state, "_adam_m", 1.0 - *beta)
                  : clipping_factor(lane, row, Role::update, "_update", row.learning_rate);
    if (factor == 0.0) continue;
    const double remains = factor * row.grad_norm;
    const double by_scale = remains * row.loss_scale;
    const bool usual = by_scale >= kLeastUsual && by_scale <= kMostUsual;
    if (!usual || remains > kTiny || factor > 2.0 / std::sqrt(row.loss_scale)) return;
    if (first < 0) {
      first = row.step;
      norm = row.grad_norm;
      clipped = remains;
      scale = row.loss_scale;
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
  finding.text = fmt::format(
      "Gradients are clipped before they are unscaled. In step {}, clipping leaves a norm of "
      "{:.2g} "
      "out of {:.2g}. That is {:.3g} divided by the loss scale of {:.6g}, so {}.",
      first, clipped, norm, clipped * scale, scale,
      beta ? "Adam's eps counts far too much" : "every step is too small");
  finding.action = {.text =
                        "Unscale first: scaler.unscale_(optimizer) before clip_grad_norm_() in "
                        "PyTorch. In Keras, set clipnorm on the inner optimizer."};
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
