// SPDX-License-Identifier: MIT
// Workers as the other processes of a job that an MPI launcher has started. If one of them dies,
// the launcher ends all; the study continues with the next job.
#pragma once

#include "cli/mpi/job.h"
#include "cli/sweep/trial_workers.h"

namespace halfscope {

class MpiWorkers final : public TrialWorkers {
 public:
  /// The other processes must call serve_ranks().
  explicit MpiWorkers(MpiJob& job)
      : job_(job),
        busy_(static_cast<size_t>(size()), false),
        stopped_(static_cast<size_t>(size()), false) {}
  /// Ends them, after the messages that they are still working on.
  ~MpiWorkers() override;
  MpiWorkers(const MpiWorkers&) = delete;
  MpiWorkers& operator=(const MpiWorkers&) = delete;

  int size() const override { return job_.size() - 1; }
  std::string name(int worker) const override { return "rank " + std::to_string(worker); }
  void give(int worker, const std::string& message) override;
  std::optional<WorkerEvent> wait(std::chrono::milliseconds longest) override;
  void stop(int worker) override;

 private:
  MpiJob& job_;
  std::vector<bool> busy_, stopped_;
};

/// Answers messages of the process that records until that stops this one.
void serve_ranks(MpiJob& job, TrialServer& server);

}  // namespace halfscope
