// SPDX-License-Identifier: MIT
// TrialBook: every trial of one lane, each run once. Proof and search ask it what an edit of the
// lane's plan comes to.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <span>
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
  /// Returns the first of them that passes; -1 if none does or the budget is used up before.
  int first_that_passes(const std::vector<PlanEdit>& edits);
  /// Runs edits that are about to be asked for, as many at a time as the runner can. They count as
  /// trials once they are asked for, so that results do not depend on the number of cores.
  void expect(std::span<const PlanEdit> edits);
  /// From now on only an edit passes that also takes at least half of this gap away: the lane's
  /// results are doubtful, but not further off than right ones may be.
  void ask_for_half_of(double gap);
  /// Runs them once more with everything recorded, in that order; nothing if it was stopped.
  std::optional<std::vector<RunView>> record(const std::vector<PlanEdit>& edits);
  std::optional<RunView> record(const PlanEdit& edit);

  /// Takes over what was tried before; not the lane as it was, which has to show that it repeats.
  void add(const TriedEdit& tried);
  /// Every edit that was tried, in that order.
  const std::vector<TriedEdit>& tried() const noexcept { return tried_; }
  /// Called after every trial.
  std::function<void()> on_trial{};

  int64_t trials() const noexcept { return trials_; }
  /// How many trials are worth running at once.
  int at_once() const { return runner_.at_once(); }
  /// Whether the budget is used up, or the user stopped it.
  bool exhausted() const;
  bool stopped() const noexcept { return stop_; }

 private:
  using Key = std::vector<std::string>;
  /// A trial that was run before it was asked for.
  struct Expected {
    Outcome outcome{};
    std::exception_ptr error{};
  };

  static Key key_of(const PlanEdit& edit);
  std::string name_of(const PlanEdit& edit, const std::string& wanted) const;
  Outcome run(const PlanEdit& edit, const std::string& wanted);

  LaneConfig original_;
  TrialRunner& runner_;
  const std::atomic<bool>& stop_;
  TrialBudget budget_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::map<Key, Outcome> outcomes_;   ///< by members
  std::map<Key, Expected> expected_;  ///< not asked for yet
  std::vector<TriedEdit> tried_;
  int64_t trials_ = 0;
  std::optional<double> strict_gap_;
};

}  // namespace halfscope
