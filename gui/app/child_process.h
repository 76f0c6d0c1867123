// SPDX-License-Identifier: MIT
// A program started beside the viewer: trainings of an edited plan, the demo run.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace halfscope::gui {

class ChildProcess {
 public:
  /// Starts `words[0]`, looked up in PATH unless it is a path. With `log` its output goes into that
  /// file, so that it can outlive this program; else through a pipe. Throws Error if it cannot.
  explicit ChildProcess(const std::vector<std::string>& words, const std::string& log = {});
  /// Interrupts it if it still runs and waits for its end, a minute at most; then it is killed.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Takes in what it has printed and whether it has ended; never waits.
  void poll();
  bool running() const noexcept { return pid_ > 0; }
  /// As a shell has it: 128 + signal where a signal ended it. Empty while it runs.
  std::optional<int> exit_code() const noexcept { return exit_code_; }
  /// All of its output and error output so far.
  const std::string& output() const noexcept { return output_; }
  /// Asks it to stop, as Ctrl-C does.
  void interrupt() noexcept;
  void kill() noexcept;
  /// Lets it run on, whatever becomes of this program; from now on it counts as ended.
  void detach() noexcept { pid_ = -1; }

 private:
  void read_pipe();

  pid_t pid_ = -1;
  int pipe_ = -1;  ///< or the log, where there is one
  std::optional<int> exit_code_;
  std::string output_;
};

/// `halfscope` beside the running program, else the one in PATH.
std::string halfscope_program();

}  // namespace halfscope::gui
