// SPDX-License-Identifier: MIT
// TrialBook: every trial of one lane, each run once. Proof and search ask it what an edit of the
// lane's plan comes to.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/proof/trial_runner.h"

namespace halfscope {

class TrialBook {
 public:
  TrialBook(LaneConfig original, TrialRunner& runner, const std::atomic<bool>& stop,
            TrialBudget budget);

  /// The original lane with an edit.
  LaneConfig lane(const PlanEdit& edit, const std::string& name) const;
  /// Runs the lane with that edit, under that name or one made of the edit, unless that has been
  /// done. Once it is stopped, nothing is run and nothing passes.
  const Outcome& outcome(const PlanEdit& edit, const std::string& name = "");
  bool passes(const PlanEdit& edit);
  /// From now on only an edit passes that also takes at least half of this gap away: the lane's
  /// results are doubtful, but not further off than right ones may be.
  void ask_for_half_of(double gap);
  /// Runs it once more with everything recorded; nothing if it was stopped.
  std::optional<RunView> record(const PlanEdit& edit);

  /// Takes over what was tried before.
  void add(const TriedEdit& tried);
  /// Every edit that was tried, in that order.
  const std::vector<TriedEdit>& tried() const noexcept { return tried_; }
  /// Called after every trial.
  std::function<void()> on_trial{};

  int64_t trials() const noexcept { return trials_; }
  /// Whether the budget is used up, or the user stopped it.
  bool exhausted() const;
  bool stopped() const noexcept { return stop_; }

 private:
  static std::vector<std::string> key_of(const PlanEdit& edit);

  LaneConfig original_;
  TrialRunner& runner_;
  const std::atomic<bool>& stop_;
  TrialBudget budget_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::map<std::vector<std::string>, Outcome> outcomes_;  ///< by members
  std::vector<TriedEdit> tried_;
  int64_t trials_ = 0;
  std::optional<double> strict_gap_;
};

}  // namespace halfscope
