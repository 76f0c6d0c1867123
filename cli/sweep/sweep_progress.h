// SPDX-License-Identifier: MIT
// The line that `sweep` draws over and over on a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace halfscope {

struct SweepCounts {
  size_t done = 0, failed = 0, trials = 0;
  double seconds = 0.0;    ///< since the start
  size_t done_before = 0;  ///< of those done, finished before the start
};

/// Returns "120/400 trials  2 failed  3.4 trials/s  1m23s left", at most `width` characters.
std::string sweep_progress_text(const SweepCounts& counts, size_t width);

class SweepProgress {
 public:
  /// Draws nothing if `quiet` or if standard error is not a terminal.
  SweepProgress(size_t done, size_t trials, bool quiet);
  /// Leaves an empty line.
  ~SweepProgress();
  SweepProgress(const SweepProgress&) = delete;
  SweepProgress& operator=(const SweepProgress&) = delete;

  void show(size_t done, size_t failed);

 private:
  using Clock = std::chrono::steady_clock;
  SweepCounts counts_;
  bool active_;
  Clock::time_point start_, last_;
};

}  // namespace halfscope
