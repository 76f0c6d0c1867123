// SPDX-License-Identifier: MIT
// A lane's training steps as a queue. A step is launched completely and its report is collected
// later, in the same order. An asynchronous queue runs one step while the next is being launched:
//
//   open, { inputs, run(grad), run(accumulate), keep(loss) ... } per micro-batch, run(norm),
//   update, close                                                                     ... collect
//
// With several ranks, each runs its micro-batches between begin_rank() and end_rank().
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/backend/step_decision.h"
#include "core/lower/lower.h"
#include "core/numeric/statistics/tensor_stats.h"

namespace halfscope {

struct StepReport {
  std::vector<double> kept;  ///< scalars passed to keep(), in the order of the calls
  double sum_sq = 0.0;       ///< sum of squares of all (scaled) gradients
  bool skipped = false;
  StepState next{};  ///< state in which the next step begins
  /// One element per tap; empty if nothing was measured. Micro-batches are merged.
  std::vector<TensorStats> stats;
  double ms = std::numeric_limits<double>::quiet_NaN();  ///< device time, if there is a device
  // Data-parallel ranks.
  int64_t ranks = 1, ranks_skipped = 0;
  double rank_distance = 0.0;  ///< ||w - w_0|| / ||w_0|| of the rank furthest from rank 0
};

class StepQueue {
 public:
  virtual ~StepQueue() = default;

  /// Begins a step and writes its loss scale. If `state` is null, the step continues from the
  /// previous one's state, whether that is known yet or not.
  virtual void open(const StepState* state) = 0;
  /// Enclose the work of one rank: its `begin` and its micro-batches. Ranks come in ascending
  /// order.
  virtual void begin_rank(int64_t /*rank*/) {}
  virtual void end_rank(int64_t /*rank*/) {}
  /// Runs an entry like Program::run(); `measured`: record the statistics of its taps.
  virtual void run(Entry entry, bool measured) = 0;
  /// Adds the scalar's current value to the report.
  virtual void keep(ValueId scalar) = 0;
  /// Sets the parameter of Executable::step_scalars[scalar] for the updates from now on.
  virtual void set_parameter(size_t scalar, double parameter) = 0;
  /// Decides from the norm of the gradients (see decide()), then writes the update's inputs and
  /// runs it, or skips the step.
  virtual void update(bool measured) = 0;
  virtual void close() = 0;
  /// Waits for the oldest closed step that has not been collected. At most two may be waiting.
  virtual StepReport collect() = 0;
};

}  // namespace halfscope
