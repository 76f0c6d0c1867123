// SPDX-License-Identifier: MIT
// Steps of training as one lane works them off. All of a step is launched, and what came of it
// collected later, in the same order; a queue that need not be waited for runs one step while the
// next is launched:
//
//   open, { inputs, run(grad), run(accumulate), keep(loss) ... } per micro-batch, run(norm),
//   update, close                                                                     ... collect
//
// Of several ranks, each does its micro-batches between begin_rank() and end_rank().
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/backend/step_decision.h"
#include "core/lower/lower.h"
#include "core/numeric/statistics/tensor_stats.h"

namespace halfscope {

struct StepReport {
  std::vector<double> kept;  ///< scalars that keep() was called with, in that order
  double sum_sq = 0.0;       ///< of all (scaled) gradients
  bool skipped = false;
  StepState next{};  ///< with which the next step begins
  /// Of all taps; empty if nothing was measured. Micro-batches are merged.
  std::vector<TensorStats> stats;
  double ms = std::numeric_limits<double>::quiet_NaN();  ///< on the device, where there is one
  // Of data-parallel ranks.
  int64_t ranks = 1, ranks_skipped = 0;
  double rank_distance = 0.0;  ///< of the weights of the rank furthest from rank 0, over its norm
};

class StepQueue {
 public:
  virtual ~StepQueue() = default;

  /// Begins a step, and writes its loss scale. A null `state` is that which the step before leaves,
  /// whether it is known yet or not.
  virtual void open(const StepState* state) = 0;
  /// Around what one of several ranks computes: its `begin` and its parts, in the order of ranks.
  virtual void begin_rank(int64_t /*rank*/) {}
  virtual void end_rank(int64_t /*rank*/) {}
  /// As Program::run(); `measured` if the statistics of its taps are wanted.
  virtual void run(Entry entry, bool measured) = 0;
  /// The scalar as it is now goes into the report.
  virtual void keep(ValueId scalar) = 0;
  /// Decides by the norm of the gradients (decide()), writes what the update reads and runs it, or
  /// skips the step.
  virtual void update(bool measured) = 0;
  virtual void close() = 0;
  /// Waits for the oldest step that is closed and was not collected; there may be two.
  virtual StepReport collect() = 0;
};

}  // namespace halfscope
