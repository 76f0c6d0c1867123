// SPDX-License-Identifier: MIT
// A program started by the viewer: the demo run, or the training of an edited plan.
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
  /// Interrupts the program if it still runs and waits at most a minute for its end, then kills it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Reads its new output and its exit status; never waits.
  void poll();
  bool running() const noexcept { return pid_ > 0; }
  /// Returns the exit code as a shell does: 128 + signal if a signal ended it. Empty while it runs.
  std::optional<int> exit_code() const noexcept { return exit_code_; }
  /// Returns its standard and error output so far.
  const std::string& output() const noexcept { return output_; }
  /// Asks it to stop, as Ctrl-C does.
  void interrupt() noexcept;
  void kill() noexcept;
  /// Lets it outlive this program; from now on it counts as ended.
  void detach() noexcept { pid_ = -1; }

 private:
  void read_pipe();

  pid_t pid_ = -1;
  int pipe_ = -1;  ///< or the log, where there is one
  std::optional<int> exit_code_;
  std::string output_;
};

/// Returns the program of that name next to the running one, else the one in PATH.
std::string program_beside(const std::string& name);

}  // namespace halfscope::gui
