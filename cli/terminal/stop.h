// SPDX-License-Identifier: MIT
// Ctrl-C: the first one asks for an orderly end, the second one ends the program at once. What is
// to be removed in either case.
#pragma once

#include <atomic>
#include <string>

namespace halfscope {

/// True once the user asked to stop. From now on SIGINT, SIGTERM and SIGHUP ask for that. `work`, a
/// constant, says on the terminal what is finished first.
const std::atomic<bool>& catch_stop_signals(const char* work = "this step");

/// A folder for files that nobody asked for: made here, removed with all that is in it when this
/// ends, also by an exception or a second Ctrl-C. Throws Error if it cannot be made.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  /// The run file in it.
  std::string run_file() const { return folder_ + "/run.hscope"; }

 private:
  std::string folder_;
};

}  // namespace halfscope
