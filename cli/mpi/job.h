// SPDX-License-Identifier: MIT
// A job of several processes that mpirun or another launcher of MPI programs has started. One build
// serves Open MPI and MPICH: what calls MPI is a small shared library for each (mpi_module.cpp),
// opened only in processes that such a launcher has started.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/exchange/exchange.h"

namespace halfscope {

class MpiJob : public Exchange {
 public:
  struct Mail {
    int from;
    std::string text;
  };

  /// Sends a text that its receiver waits for with mail(). Does not wait until it has arrived.
  virtual void post(int to, std::string_view text) = 0;
  /// Returns the next text from any rank, or nothing if none comes in this time.
  virtual std::optional<Mail> mail(std::chrono::milliseconds wait) = 0;

  /// Ends all processes of the job with this exit code.
  [[noreturn]] virtual void abort(int code) = 0;
  /// Waits until every process has come here. Nothing may be sent afterwards.
  virtual void finish() = 0;
};

/// Returns the job that this process belongs to; null if it was started alone, and if the variable
/// HALFSCOPE_MPI is "off". The first call joins the job. Throws Error (usage) if this build cannot
/// join it.
MpiJob* mpi_job();

/// Throws Error (usage) in a job of several processes, for a command that only works in one.
void refuse_job(const std::string& command);

/// Leaves the job, if this process has joined one. `failed`: this process has failed, so the others
/// are ended, unless begin_together() failed in all of them. Returns `code`.
int leave_mpi_job(int code, bool failed);

/// Says that the other processes leave the job too, so that an error of this one need not end them.
void leave_together();

/// Returns "rank 2: " for the errors of a process that fails while the others go on, else "".
std::string rank_prefix();
/// Returns whether this is the first process of its job, or alone. Before processes join their job
/// they have the same errors, which the first one prints.
bool is_first_process();

/// Returns which process of the job this is on its computer, counted from 0.
int local_rank();

/// Returns how many threads a process of a job should use: its processors, divided among the
/// processes that share them.
int threads_of_process();

/// Thrown in the processes of a job that keep silent, because another one prints the error.
struct SilentEnd {};

/// Calls `prepare` in all processes of a job, and checks that each of them can begin. `facts`
/// returns lines "WHAT=VALUE" that must be the same in all of them. Otherwise throws Error in the
/// process that records, and SilentEnd in the others.
void begin_together(MpiJob& job, const std::function<void()>& prepare,
                    const std::function<std::string()>& facts);

}  // namespace halfscope
