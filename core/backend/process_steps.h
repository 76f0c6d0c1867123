// SPDX-License-Identifier: MIT
// The StepQueue of one rank of a data-parallel training whose ranks are processes. Every process
// runs its own micro-batches; then all of them exchange losses, buffers and gradients and go on
// alike, with the bits of RankSteps, which simulates the ranks in one process.
//
//   open, begin_rank, run(begin), parts ..., end_rank: exchange, run(norm), update, close
#pragma once

#include <utility>
#include <vector>

#include "core/backend/host_steps.h"
#include "core/exchange/exchange.h"

namespace halfscope {

/// Computes the means of the gradients that the program has for its rank, and writes them where
/// its entry `norm` reads them. `executable` is lowered with TrainingSpec::exchanged. `measured`:
/// the means will be measured before they are stored, so they must not be rounded yet.
void exchange_gradients(Exchange& exchange, const Executable& executable, Program& program,
                        bool measured);

/// Returns the gradients of all ranks, [ranks, ...], on every rank.
std::vector<float> gathered_gradients(Exchange& exchange, const ReducedGradient& gradient,
                                      const Program& program);

class ProcessSteps final : public HostSteps {
 public:
  /// All arguments must outlive this object. All ranks skip a step together.
  ProcessSteps(Program& program, const Executable& executable, const StepRules& rules,
               int64_t micro_batches, Exchange& exchange);

  void begin_rank(int64_t rank) override;
  void end_rank(int64_t rank) override;
  void run(Entry entry, bool measured) override;
  void update(bool measured) override;

 private:
  void share_losses();
  void share_stats();
  void share_buffers();
  std::vector<double> read(const std::vector<ValueId>& variables) const;
  void write(const std::vector<ValueId>& variables, std::span<const double> values);

  Exchange& exchange_;
  std::vector<ValueId> histories_;  ///< variables with the history of delayed scales
  std::vector<ValueId> buffers_;    ///< other variables that the forward pass updates
  bool in_rank_ = false;            ///< between begin_rank() and end_rank()
  bool measures_ = false;           ///< this step has statistics
  bool all_finite_ = true;
  std::vector<std::vector<TensorStats>> own_stats_;  ///< of this rank, one for each entry that ran
};

}  // namespace halfscope
