// SPDX-License-Identifier: MIT
// An MpiJob on the functions of one implementation of MPI. Compiled once for each; the only file
// that includes mpi.h.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "cli/mpi/job.h"

namespace halfscope {
namespace {

constexpr int kTransfer = 1, kMail = 2;
/// Counts of MPI 3 are ints.
constexpr size_t kLargest = size_t{1} << 30;

/// All calls of MPI are made under one lock, so that any thread may send and receive.
class Job final : public MpiJob {
 public:
  Job() {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    if (level < MPI_THREAD_SERIALIZED) {
      std::fprintf(stderr,
                   "halfscope: this MPI library does not support threads\n"
                   "hint: use one that was built with MPI_THREAD_SERIALIZED\n");
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &process_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  int rank() const noexcept override { return other(process_); }
  int size() const noexcept override { return size_; }

  void transfer(std::span<const Send> sends, std::span<const Receive> receives) override {
    std::vector<MPI_Request> requests;
    {
      const std::lock_guard lock(mutex_);
      for (const Receive& receive : receives) {
        for (size_t at = 0; at < receive.bytes.size(); at += kLargest) {
          const size_t count = std::min(kLargest, receive.bytes.size() - at);
          MPI_Irecv(receive.bytes.data() + at, static_cast<int>(count), MPI_BYTE,
                    other(receive.from), kTransfer, MPI_COMM_WORLD, &requests.emplace_back());
        }
      }
      for (const Send& send : sends) {
        for (size_t at = 0; at < send.bytes.size(); at += kLargest) {
          const size_t count = std::min(kLargest, send.bytes.size() - at);
          MPI_Isend(send.bytes.data() + at, static_cast<int>(count), MPI_BYTE, other(send.to),
                    kTransfer, MPI_COMM_WORLD, &requests.emplace_back());
        }
      }
    }
    wait(requests);
  }

  void post(int to, std::string_view text) override {
    const std::lock_guard lock(mutex_);
    Posted& posted = posted_.emplace_back(Posted{std::string(text), MPI_REQUEST_NULL});
    MPI_Isend(posted.text.data(), static_cast<int>(posted.text.size()), MPI_BYTE, other(to), kMail,
              MPI_COMM_WORLD, &posted.request);
    drop_sent();
  }

  std::optional<Mail> mail(std::chrono::milliseconds wait) override {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + wait;
    for (auto pause = std::chrono::microseconds(20);; pause = std::min(2 * pause, kLongestPause)) {
      if (std::optional<Mail> found = take_mail()) return found;
      if (Clock::now() >= end) return std::nullopt;
      std::this_thread::sleep_for(pause);
    }
  }

  void abort(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

  void finish() override {
    const std::lock_guard lock(mutex_);
    for (Posted& posted : posted_) MPI_Wait(&posted.request, MPI_STATUS_IGNORE);
    posted_.clear();
    MPI_Finalize();
  }

 private:
  struct Posted {
    std::string text;
    MPI_Request request;
  };
  static constexpr std::chrono::microseconds kLongestPause{500};

  /// The first process has the last rank: it records, and launchers show its output first.
  int other(int rank_or_process) const noexcept { return size_ - 1 - rank_or_process; }

  /// Lets other processes of this computer run while it waits.
  void wait(std::vector<MPI_Request>& requests) {
    for (int done = 0; done == 0;) {
      {
        const std::lock_guard lock(mutex_);
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
      }
      if (done == 0) sched_yield();
    }
  }

  std::optional<Mail> take_mail() {
    const std::lock_guard lock(mutex_);
    drop_sent();
    int found = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kMail, MPI_COMM_WORLD, &found, &status);
    if (found == 0) return std::nullopt;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    Mail mail{other(status.MPI_SOURCE), std::string(static_cast<size_t>(count), '\0')};
    MPI_Recv(mail.text.data(), count, MPI_BYTE, status.MPI_SOURCE, kMail, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    return mail;
  }

  void drop_sent() {
    while (!posted_.empty()) {
      int done = 0;
      MPI_Test(&posted_.front().request, &done, MPI_STATUS_IGNORE);
      if (done == 0) return;
      posted_.pop_front();
    }
  }

  int process_ = 0, size_ = 1;
  std::mutex mutex_;
  std::deque<Posted> posted_;  // MPI reads the texts until they are sent
};

}  // namespace
}  // namespace halfscope

/// Joins the job. Called once per process.
extern "C" halfscope::MpiJob* halfscope_join_mpi_job() {
  static halfscope::Job job;
  return &job;
}
