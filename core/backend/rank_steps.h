// SPDX-License-Identifier: MIT
// The StepQueue of data-parallel ranks that share one program on the CPU. While all ranks agree
// they share its variables. From the first step that only some of them skip, each rank has its own
// copy; between steps the program contains the variables of rank 0.
//
//   open, { begin_rank, run(begin), parts ..., end_rank } per rank, run(norm), update, close
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/backend/host_steps.h"

namespace halfscope {

/// State of a rank that no longer agrees with the others.
struct Replica {
  StepState state{};
  std::map<ValueId, std::vector<double>> variables{};
};

class RankSteps final : public HostSteps {
 public:
  /// `program` runs `executable`, which is lowered for several ranks; both must outlive this
  /// object.
  RankSteps(Program& program, const Executable& executable, const StepRules& rules,
            int64_t micro_batches);

  void open(const StepState* state) override;
  void begin_rank(int64_t rank) override;
  void end_rank(int64_t rank) override;
  void update(bool measured) override;

  /// Returns one replica per rank; empty while all ranks agree.
  std::vector<Replica> replicas() const;
  void set_replicas(std::vector<Replica> replicas);

 private:
  bool ranks_vote_alone() const;
  void load(const std::map<ValueId, std::vector<double>>& variables);
  std::map<ValueId, std::vector<double>> read(const std::vector<ValueId>& variables) const;
  void part(const std::vector<StepDecision>& decisions);
  double largest_distance() const;

  const int64_t ranks_;
  std::vector<ValueId> own_;        ///< all variables except the stacks of the ranks' gradients
  std::vector<ValueId> buffers_;    ///< the ones among them that the forward pass updates
  std::vector<ValueId> weights_;    ///< the ones among them that are trained
  std::vector<ValueId> histories_;  ///< the buffers that contain the history of delayed scales
  std::vector<bool> finite_;        ///< by rank: whether its gradient was finite in this step
  std::map<ValueId, std::vector<double>> buffers_at_start_,
      buffers_of_rank_0_;  ///< buffers at the start of this step, and after rank 0
  std::vector<Replica> replicas_;
};

}  // namespace halfscope
