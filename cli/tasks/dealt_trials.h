// SPDX-License-Identifier: MIT
// The trials of a proof, dealt to the processes of a job. The process that records searches; the
// others train what it asks for. A trial has the same result wherever it runs, so the proof does
// not depend on the number of processes.
//
//   recording process: "prove lane 1 of run.hscope" --> others: open the run, train its twins
//                      "train this plan" --> ... --> outcome              "the proof is done" -->
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "analysis/proof/trial_runner.h"
#include "cli/mpi/job.h"

namespace halfscope {

/// Returns `own` extended by the other processes of the job, which begin to prove the lane of that
/// run file. They are free again when the result is destroyed.
std::unique_ptr<TrialRunner> dealt_trials(std::unique_ptr<TrialRunner> own, MpiJob& job,
                                          const std::string& run_file, int lane);

/// A proof in a process that only trains: its runner, and the lane as it was recorded.
class ServedProof {
 public:
  virtual ~ServedProof() = default;
  virtual TrialRunner& runner() = 0;
  virtual const LaneConfig& original() const = 0;
};
using OpenProof = std::function<std::unique_ptr<ServedProof>(const std::string& file, int lane)>;

/// Trains what the recording process asks for until it calls end_serving().
void serve_trials(MpiJob& job, const OpenProof& open);
/// Ends serve_trials() in all other processes, which then leave the job.
void end_serving(MpiJob& job);

}  // namespace halfscope
