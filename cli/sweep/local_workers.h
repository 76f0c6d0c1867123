// SPDX-License-Identifier: MIT
// Workers as processes of this machine: the same program again, with a socket as its standard
// input. A new program, unlike a forked copy, starts without the threads and devices that this
// process may already use.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cli/sweep/trial_workers.h"

namespace halfscope {

class LocalWorkers final : public TrialWorkers {
 public:
  /// Starts `count` processes of `program` with these arguments, each of which calls
  /// serve_messages(). Throws Error if that fails, as wait() does for a process that ends again and
  /// again before it is ready.
  LocalWorkers(int count, std::string program, std::vector<std::string> arguments);
  /// Ends them, at once if they are busy.
  ~LocalWorkers() override;
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;

  int size() const override { return static_cast<int>(workers_.size()); }
  std::string name(int worker) const override;
  void give(int worker, const std::string& message) override;
  std::optional<WorkerEvent> wait(std::chrono::milliseconds longest) override;
  void stop(int worker) override;

 private:
  struct Process {
    pid_t id = -1;
    int socket = -1;  ///< -1: stopped
    std::string received{};
    std::string task{};     ///< a message that it has not answered
    bool ready = false;     ///< has sent its first message, which is empty
    int failed_starts = 0;  ///< in a row
  };

  void start(Process& worker);
  /// After it ended before it was ready, which is no fault of its task. `how` says how it ended.
  void start_again(int worker, const std::string& how);
  std::optional<WorkerEvent> read_from(int worker);

  std::string program_;
  std::vector<std::string> arguments_;
  std::vector<Process> workers_;
};

/// The name under which this program can be started again, even if its file was replaced.
inline constexpr const char* kOwnProgram = "/proc/self/exe";

/// The work of such a process: answers messages until the socket is closed. Returns the exit code.
int serve_messages(TrialServer& server);

}  // namespace halfscope
