// SPDX-License-Identifier: MIT
// The StepQueue of programs that finish each call before they return.
#pragma once

#include <bitset>
#include <deque>
#include <vector>

#include "core/backend/backend.h"

namespace halfscope {

class HostSteps : public StepQueue {
 public:
  /// `program` runs `executable`; both must outlive this object.
  HostSteps(Program& program, const Executable& executable, const StepRules& rules,
            int64_t micro_batches)
      : program_(program),
        executable_(executable),
        rules_(rules),
        parts_(micro_batches),
        scalars_(executable.step_scalars) {}

  void open(const StepState* state) override;
  void run(Entry entry, bool measured) override;
  void keep(ValueId scalar) override;
  void set_parameter(size_t scalar, double parameter) override;
  void update(bool measured) override;
  void close() override;
  StepReport collect() override;

 protected:
  /// Skips the step, or writes the inputs of the update and runs it.
  void apply(const StepDecision& decision, double sum_sq, bool measured);
  /// Decides for `ranks` ranks that skip a step together, and applies the decision. `all_finite`:
  /// whether the gradient of each rank is finite.
  void update_together(int64_t ranks, bool all_finite, bool measured);
  /// Adds an entry's statistics, of one micro-batch, to those of the step.
  void add_stats(std::span<const TensorStats> stats);

  Program& program_;
  const Executable& executable_;
  const StepRules rules_;
  const int64_t parts_;
  StepState state_{};
  StepReport current_{};

 private:
  std::bitset<kEntryCount> measured_;  ///< entries of the current step
  std::vector<TensorStats>
      part_stats_;  ///< statistics of the second and later micro-batches, before merging
  std::deque<StepReport> closed_;
  std::vector<StepInput> scalars_;  ///< Executable::step_scalars with their current parameters
};

}  // namespace halfscope
