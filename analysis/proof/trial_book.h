// SPDX-License-Identifier: MIT
// TrialBook: runs every trial of one lane once and remembers its result. Proof and search ask it
// for the result of an edit.
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

  /// Returns the original lane with an edit.
  LaneConfig lane(const PlanEdit& edit, const std::string& name) const;
  /// Returns the result of the lane with that edit. Runs it if that has not been done, under `name`
  /// or a name made from the edit. After a stop nothing runs and nothing passes.
  const Outcome& outcome(const PlanEdit& edit, const std::string& name = "");
  bool passes(const PlanEdit& edit);
  /// Returns the index of the first edit that passes; -1 if none does or the budget runs out first.
  int first_that_passes(const std::vector<PlanEdit>& edits);
  /// Runs edits ahead of time, as many at once as the runner can. They count as trials only when
  /// they are used, so that results do not depend on the number of cores.
  void expect(std::span<const PlanEdit> edits);
  /// Lets only edits pass that also halve this gap, for lanes whose results are doubtful but within
  /// the tolerance.
  void ask_for_half_of(double gap);
  /// Runs the edits again with everything recorded, in that order. Returns nothing after a stop.
  std::optional<std::vector<RunView>> record(const std::vector<PlanEdit>& edits);
  std::optional<RunView> record(const PlanEdit& edit);

  /// Adds an earlier trial, except that of the unchanged lane, which must run again to show that it
  /// is repeatable.
  void add(const TriedEdit& tried);
  /// Returns every tested edit, in that order.
  const std::vector<TriedEdit>& tried() const noexcept { return tried_; }
  /// Called after every trial.
  std::function<void()> on_trial{};

  int64_t trials() const noexcept { return trials_; }
  /// Returns how many trials to run at once.
  int at_once() const { return runner_.at_once(); }
  /// Returns whether the budget is used up or the user stopped it.
  bool exhausted() const;
  bool stopped() const noexcept { return stop_; }

 private:
  using Key = std::vector<std::string>;
  /// A trial that ran ahead of time.
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
  std::map<Key, Expected> expected_;  ///< not used yet
  std::vector<TriedEdit> tried_;
  int64_t trials_ = 0;
  std::optional<double> strict_gap_;
};

}  // namespace halfscope
