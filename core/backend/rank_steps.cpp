// SPDX-License-Identifier: MIT
#include "core/backend/rank_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace halfscope {

RankSteps::RankSteps(Program& program, const Executable& executable, const StepRules& rules,
                     int64_t micro_batches)
    : HostSteps(program, executable, rules, micro_batches), ranks_(executable.ranks) {
  const Graph& graph = executable.graph;
  for (const Variable& variable : graph.variables()) {
    const ValueId value = variable.value;
    const auto stacks = [value](const ReducedGradient& each) { return each.stack == value; };
    if (std::any_of(executable.reduced.begin(), executable.reduced.end(), stacks)) continue;
    own_.push_back(value);
    if (variable.buffer) buffers_.push_back(value);
    const auto trained = [&](const ReducedGradient& each) {
      return each.variable == variable.path;
    };
    if (std::any_of(executable.reduced.begin(), executable.reduced.end(), trained)) {
      weights_.push_back(value);
    }
  }
  for (const Node& node : graph.nodes()) {
    if (node.op == "ScaleUpdate") histories_.push_back(node.inputs.at(1));
  }
}

std::map<ValueId, std::vector<double>> RankSteps::read(
    const std::vector<ValueId>& variables) const {
  std::map<ValueId, std::vector<double>> values;
  for (const ValueId variable : variables) values[variable] = program_.read_exact(variable);
  return values;
}

void RankSteps::load(const std::map<ValueId, std::vector<double>>& variables) {
  for (const auto& [variable, values] : variables) program_.write_exact(variable, values);
}

void RankSteps::open(const StepState* state) {
  HostSteps::open(state);
  finite_.assign(static_cast<size_t>(ranks_), true);
  buffers_at_start_ = read(buffers_);
}

/// All ranks begin a step with the buffers of rank 0, as torch's DistributedDataParallel does.
void RankSteps::begin_rank(int64_t rank) {
  if (!replicas_.empty()) load(replicas_[static_cast<size_t>(rank)].variables);
  if (rank > 0 || !replicas_.empty()) load(buffers_at_start_);
  program_.write_scalar(executable_.rank, static_cast<double>(rank));
  const StepState& state = replicas_.empty() ? state_ : replicas_[static_cast<size_t>(rank)].state;
  program_.write_scalar(executable_.loss_scale, state.scaler.scale / static_cast<double>(parts_));
}

void RankSteps::end_rank(int64_t rank) {
  finite_[static_cast<size_t>(rank)] = std::isfinite(program_.read_scalar(executable_.rank_norm));
  if (rank == 0) {
    buffers_of_rank_0_ = read(buffers_);
  } else {  // the history of delayed scales gets the largest magnitude on any rank
    for (const ValueId history : histories_) {
      const std::vector<double> own = program_.read_exact(history);
      std::vector<double>& kept = buffers_of_rank_0_.at(history);
      for (size_t i = 0; i < kept.size(); ++i) kept[i] = std::max(kept[i], own[i]);
    }
  }
  if (rank + 1 < ranks_) return;
  if (!replicas_.empty()) load(replicas_.front().variables);
  load(buffers_of_rank_0_);
  std::vector<float> takes_part(static_cast<size_t>(ranks_), 1.0f);
  if (ranks_vote_alone()) {
    for (size_t i = 0; i < takes_part.size(); ++i) takes_part[i] = finite_[i] ? 1.0f : 0.0f;
  }
  program_.write(executable_.rank_takes_part, takes_part);
}

/// Without a loss scale no step is skipped, so there is nothing to vote about.
bool RankSteps::ranks_vote_alone() const {
  return executable_.reduction.vote == Reduction::Vote::one &&
         rules_.scaler.kind != LossScalerConfig::Kind::none;
}

void RankSteps::update(bool measured) {
  if (!ranks_vote_alone()) {
    const bool all_finite = std::find(finite_.begin(), finite_.end(), false) == finite_.end();
    update_together(ranks_, all_finite, measured);
    return;
  }
  const double sum_sq = program_.read_scalar(executable_.gradient_norm);
  current_.ranks = ranks_;
  std::vector<StepDecision> decisions;
  for (size_t rank = 0; rank < finite_.size(); ++rank) {
    const StepState& state = replicas_.empty() ? state_ : replicas_[rank].state;
    decisions.push_back(decide(state, rules_, sum_sq, finite_[rank]));
    current_.ranks_skipped += decisions.back().skipped ? 1 : 0;
  }
  const bool agree = std::all_of(finite_.begin(), finite_.end(),
                                 [&](bool finite) { return finite == finite_.front(); });
  if (replicas_.empty() && agree) {
    apply(decisions.front(), sum_sq, measured);
    return;
  }
  part(decisions);
  const std::map<ValueId, std::vector<double>> before = read(buffers_);
  for (size_t rank = replicas_.size(); rank-- > 0;) {  // rank 0 comes last, so its variables stay
    load(replicas_[rank].variables);
    load(before);
    apply(decisions[rank], sum_sq, measured && rank == 0);
    replicas_[rank] = {decisions[rank].next, read(own_)};
  }
  for (const StepDecision& decision : decisions) {  // one rank's error ends the training
    if (decision.next.scaler.stop != ScalerStop::none) {
      current_.next.scaler.stop = decision.next.scaler.stop;
    }
  }
  current_.rank_distance = largest_distance();
}

/// Gives each rank its own copy of the variables, unless it already has one.
void RankSteps::part(const std::vector<StepDecision>& decisions) {
  if (!replicas_.empty()) return;
  replicas_.assign(decisions.size(), {state_, read(own_)});
}

/// Returns the largest distance ||w - w_0|| / ||w_0|| of any rank's weights from rank 0's.
double RankSteps::largest_distance() const {
  double largest = 0.0, norm = 0.0;
  for (const ValueId weight : weights_) {
    for (const double w : replicas_.front().variables.at(weight)) norm += w * w;
  }
  for (const Replica& replica : replicas_) {
    double difference = 0.0;
    for (const ValueId weight : weights_) {
      const std::vector<double>&a = replica.variables.at(weight),
            &b = replicas_.front().variables.at(weight);
      for (size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]);
    }
    const double distance = difference == 0.0 ? 0.0 : std::sqrt(difference / norm);
    if (!(distance <= largest)) largest = distance;  // also catches NaN
    if (!std::isfinite(largest)) return std::numeric_limits<double>::infinity();
  }
  return largest;
}

std::vector<Replica> RankSteps::replicas() const { return replicas_; }

void RankSteps::set_replicas(std::vector<Replica> replicas) { replicas_ = std::move(replicas); }

}  // namespace halfscope
