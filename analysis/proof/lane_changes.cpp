// SPDX-License-Identifier: MIT
#include <algorithm>

#include "analysis/format_limits.h"
#include "analysis/proof/search.h"

namespace halfscope {
namespace {

bool is_narrow(const std::optional<FloatFormat>& format) {
  return format && !full_precision(*format);
}

/// Adds reductions whose ranks agree, add in fp32, or reduce entirely in fp32.
void add_reductions(const Reduction& before, std::vector<Change>& changes) {
  const auto add = [&](FixKind kind, const Reduction& after) {
    if (after != before) changes.push_back({.kind = kind, .text = reduction_text(after)});
  };
  Reduction voting = before;
  voting.vote = Reduction::Vote::all;
  add(FixKind::config, voting);
  if (before.format == kFp32) return;
  // Try each change alone, so that none gets credit for a cure by the vote.
  Reduction in_order = before, wide = before;
  in_order.algorithm = Reduction::Algorithm::all_to_all;
  wide.format = kFp32;
  add(FixKind::reduce_order, in_order);
  add(FixKind::reduce_fp32, wide);
  if (voting == before) return;
  voting.format = kFp32;
  add(FixKind::reduce_fp32, voting);
}

}  // namespace

std::vector<Change> lane_changes(const SearchRequest& request) {
  const Plan& plan = request.original;
  std::vector<Change> changes;
  const auto add = [&](bool applies, FixKind kind, const char* text = "") {
    if (applies) changes.push_back({.kind = kind, .text = text});
  };
  const auto scales = [&](const auto& is) {
    return is(plan.defaults.scale) ||
           std::any_of(plan.rules.begin(), plan.rules.end(),
                       [&](const PlanRule& rule) { return rule.scale && is(*rule.scale); });
  };
  add(scales([](const TensorScale& scale) {
        return scale.kind == TensorScale::Kind::block && scale.rule != ScaleRule::up;
      }),
      FixKind::scale_round_up);
  add(scales([](const TensorScale& scale) { return scale.unguarded && scale.amax_floor == 0.0f; }),
      FixKind::amax_floor);
  if (!request.trains) return changes;
  add(is_narrow(plan.schedule), FixKind::schedule_fp32);
  if (request.ranks > 1) add_reductions(plan.reduction.value_or(request.reduction), changes);
  const FloatFormat storage = plan.storage;
  const bool state_is_narrow = is_narrow(plan.state) ||
                               (!plan.state && is_narrow(request.state_format)) ||
                               is_narrow(storage);
  if (request.loss_scale) {
    changes.push_back({.kind = FixKind::loss_scale, .value = *request.loss_scale});
  }
  add(is_narrow(plan.gradient_sum) || (!plan.gradient_sum && is_narrow(request.sum_format)),
      FixKind::gradient_sum_fp32);
  add(is_narrow(plan.clip), FixKind::clip_fp32);
  add(is_narrow(plan.update_compute), FixKind::update_fp32);
  add(is_narrow(plan.average_compute) || is_narrow(plan.average), FixKind::average_fp32);
  add(state_is_narrow, FixKind::state_fp32);
  add(is_narrow(storage), FixKind::weights_fp32);
  add(scales([](const TensorScale& scale) { return scale.any(); }), FixKind::stochastic_rounding,
      "gradients");
  add(is_narrow(storage), FixKind::stochastic_rounding, "weights");
  return changes;
}

}  // namespace halfscope
