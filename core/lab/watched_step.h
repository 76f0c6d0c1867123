// SPDX-License-Identifier: MIT
// StepWatch: a backend that runs another one and copies everything that its program computes in one
// training step. Results do not change.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/lower/execution.h"

namespace halfscope::lab {

/// One training step of a lane, as its engine stored it. Without micro-batches.
struct WatchedStep {
  std::unique_ptr<const Executable> executable{};  ///< of the lane
  /// The forward and backward pass of one data-parallel rank.
  struct Rank {
    RandomSource random{};
    std::map<ValueId, std::vector<float>> values{};
    /// Gradients of the loss before they were rounded, by their value.
    std::map<ValueId, std::vector<float>> unrounded{};
  };
  std::vector<Rank> ranks{};  ///< empty until the step has run
  /// Variables when the step began, and every value that exists only once per step (reduced
  /// gradients, updates). The new values of variables are under Variable::next.
  std::map<ValueId, std::vector<float>> before{}, after{};
  std::map<ValueId, double> scalars{};  ///< written by the caller: loss scale, learning rate ...
  bool updated = false;                 ///< false if the step was skipped
};

class StepWatch final : public Backend {
 public:
  /// Both must outlive the programs. `into` gets the step of the last compiled program.
  StepWatch(const Backend& inner, int64_t step, WatchedStep& into)
      : inner_(inner), step_(step), into_(into) {}

  const char* name() const noexcept override { return inner_.name(); }
  std::unique_ptr<Program> compile(const Executable& executable) const override;

 private:
  const Backend& inner_;
  int64_t step_;
  WatchedStep& into_;
};

}  // namespace halfscope::lab
