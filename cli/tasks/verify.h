// SPDX-License-Identifier: MIT
// Repeats of a recorded run: twins, which show how far healthy trainings drift apart, and proofs of
// the advice. Both go into the run file. Used by `diagnose`, and by `train`, `run` and `diagnose`
// with --verify.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/proof/proof.h"
#include "analysis/run_view.h"
#include "cli/mpi/job.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {

/// Result of training twins.
struct TwinCheck {
  std::map<int, Twins> twins{};  ///< by the lane that they were trained beside
  int trainings = 0;             ///< twins in the run file
  double seconds = 0.0;
  std::vector<std::string> problems{};  ///< failed checks and their reasons, a line each

  /// Returns "checked against 2 further float32 trainings (3.2 s)", and the problems.
  std::vector<std::string> lines() const;
};

/// Trains twins for every lane of a run whose verdict they could change, with a progress line, and
/// stores in the run file what they show. Throws no Error: see `problems`.
TwinCheck check_with_twins(const std::string& file, const RunView& run, bool quiet);

struct Verified {
  TwinCheck check{};
  std::optional<Recommendation> advice{};  ///< nothing if there is none
  std::optional<Proof> proof{};       ///< nothing if there is no advice, or the user stopped it
  bool undecided = false;             ///< the advice leaves a choice, so there is no plan to train
  std::optional<Error> not_stored{};  ///< why the proof is not in the run file, if it is not

  /// Throws `not_stored`, if any. Call it after printing the result.
  void check_stored() const;
};

/// Runs what the proof needs, with a progress line, and stores it in the run file; where the advice
/// does not cure the lane, it searches for what does. `check` is what has just been trained. Throws
/// Error if the run does not say how it was made, or if it cannot be repeated.
Verified verify_advice(const std::string& file, const RunView& run, const Recommendation& advice,
                       TwinCheck check, bool quiet, const TrialBudget& budget = {});

/// The advice on a lane, an empty edit where nothing is advised although the lane is harmed;
/// nothing if the cause is a setting that no plan changes.
std::optional<Recommendation> advice_to_try(const RunView& run,
                                            const std::vector<Finding>& findings, int lane);

/// Makes the twins of a finished run, finds the advice on it and proves that.
Verified verify_run(const std::string& file, bool quiet);

/// In a job of several processes: trains for the proofs of the process that records, until that
/// calls end_serving() (cli/tasks/dealt_trials.h).
void serve_proofs(MpiJob& job);

/// Returns "proof: ..." for a person, without a newline.
std::string proof_line(const Verified& verified);
/// Returns that after what twins have shown, with newlines between.
std::string proof_lines(const Verified& verified);
/// The member `proof` of results in JSON: what the report has, or null.
Json proof_member(const std::optional<Proof>& proof);
/// The member `twins`: {"trainings", "seconds"}, or null if none were made.
Json twins_member(const TwinCheck& check);

}  // namespace halfscope
