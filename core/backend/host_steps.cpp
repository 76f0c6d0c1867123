// SPDX-License-Identifier: MIT
#include "core/backend/host_steps.h"

#include <cmath>
#include <limits>
#include <utility>

#include "core/backend/overflow_check.h"

namespace halfscope {

void HostSteps::open(const StepState* state) {
  if (state != nullptr) state_ = *state;
  current_ = {};
  measured_.reset();
  // Each micro-batch's gradient is a mean over its samples; together they add up to the whole
  // batch's.
  program_.write_scalar(executable_.loss_scale, state_.scaler.scale / static_cast<double>(parts_));
}

void HostSteps::run(Entry entry, bool measured) {
  if (!measured) {
    program_.run(entry, {});
    return;
  }
  const size_t taps = executable_.taps.size();
  if (current_.stats.empty()) current_.stats.assign(taps, TensorStats{});
  if (!measured_.test(static_cast<size_t>(entry))) {
    measured_.set(static_cast<size_t>(entry));
    program_.run(entry, current_.stats);
    return;
  }
  part_stats_.assign(taps, TensorStats{});
  program_.run(entry, part_stats_);
  add_stats(part_stats_);
}

void HostSteps::add_stats(std::span<const TensorStats> stats) {
  current_.stats.resize(stats.size());
  for (size_t i = 0; i < stats.size(); ++i) current_.stats[i].merge(stats[i]);
}

void HostSteps::keep(ValueId scalar) { current_.kept.push_back(program_.read_scalar(scalar)); }

void HostSteps::set_parameter(size_t scalar, double parameter) {
  scalars_[scalar].scalar.parameter = parameter;
}

void HostSteps::update(bool measured) {
  const double sum_sq = program_.read_scalar(executable_.gradient_norm);
  const bool finite = finds_finite(rules_.scaler, state_.scaler, executable_, program_, sum_sq);
  apply(decide(state_, rules_, sum_sq, finite), sum_sq, measured);
}

void HostSteps::update_together(int64_t ranks, bool all_finite, bool measured) {
  const double sum_sq = program_.read_scalar(executable_.gradient_norm);
  // A format without infinities may have turned them into numbers.
  const bool lost = std::isfinite(sum_sq) && !all_finite;
  const double known = lost ? std::numeric_limits<double>::infinity() : sum_sq;
  const bool finite = finds_finite(rules_.scaler, state_.scaler, executable_, program_, known);
  current_.ranks = ranks;
  apply(decide(state_, rules_, known, finite), known, measured);
  current_.ranks_skipped = current_.skipped ? ranks : 0;
}

void HostSteps::apply(const StepDecision& decision, double sum_sq, bool measured) {
  current_.sum_sq = sum_sq;
  current_.skipped = decision.skipped;
  current_.next = state_ = decision.next;
  if (decision.skipped) return;
  program_.write_scalar(executable_.inverse_scale, static_cast<double>(decision.inverse_scale));
  program_.write_scalar(executable_.clip, decision.clip);
  for (const StepInput& each : scalars_) {
    program_.write_scalar(each.value, scalar_value(each.scalar, decision.next.updates));
  }
  run(Entry::update, measured);
}

void HostSteps::close() { closed_.push_back(std::move(current_)); }

StepReport HostSteps::collect() {
  StepReport report = std::move(closed_.front());
  closed_.pop_front();
  return report;
}

}  // namespace halfscope
