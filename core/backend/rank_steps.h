// SPDX-License-Identifier: MIT
// The StepQueue of data-parallel ranks in one program of the processor. While all ranks agree they
// share its variables; from the first step that only some of them skip on, each has a copy of its
// own, and between steps the program holds those of rank 0.
//
//   open, { begin_rank, run(begin), parts ..., end_rank } per rank, run(norm), update, close
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/backend/host_steps.h"

namespace halfscope {

/// A rank that has parted from the others.
struct Replica {
  StepState state{};
  std::map<ValueId, std::vector<double>> variables{};
};

class RankSteps final : public HostSteps {
 public:
  /// `program` runs `executable`, which is lowered for several ranks; both outlive this.
  RankSteps(Program& program, const Executable& executable, const StepRules& rules,
            int64_t micro_batches);

  void open(const StepState* state) override;
  void begin_rank(int64_t rank) override;
  void end_rank(int64_t rank) override;
  void update(bool measured) override;

  /// One per rank; empty while all ranks agree.
  std::vector<Replica> replicas() const;
  void set_replicas(std::vector<Replica> replicas);

 private:
  bool ranks_vote_alone() const;
  void load(const std::map<ValueId, std::vector<double>>& variables);
  std::map<ValueId, std::vector<double>> read(const std::vector<ValueId>& variables) const;
  void part(const std::vector<StepDecision>& decisions);
  double largest_distance() const;

  const int64_t ranks_;
  std::vector<ValueId> own_;        ///< variables that are not rows for the ranks' gradients
  std::vector<ValueId> buffers_;    ///< of these, what the forward pass moves
  std::vector<ValueId> weights_;    ///< of these, what is trained
  std::vector<ValueId> histories_;  ///< of the buffers, what delayed scales remember
  std::vector<bool> finite_;        ///< by rank: its own gradient, in this step
  std::map<ValueId, std::vector<double>> at_start_, of_first_;  ///< buffers in this step
  std::vector<Replica> replicas_;
};

}  // namespace halfscope
