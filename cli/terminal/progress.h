// SPDX-License-Identifier: MIT
// The line that `train` and `run` draw over and over on a terminal. What it says is a pure function
// of numbers, so that it can be tested; ProgressLine adds the clock and the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/observe/recording.h"

namespace halfscope {

/// "45s", "1m23s", "2h05m", "3d04h"; "" for what is no duration.
std::string duration_text(double seconds);

/// Steps per second over the last few seconds: since the start it would lag behind for long
/// after the speed has changed.
class RateMeter {
 public:
  void add(double seconds, int64_t step);
  /// 0 while unknown.
  double rate() const;

 private:
  std::deque<std::pair<double, int64_t>> samples_;
};

struct LaneProgress {
  std::string name;
  double loss = 0.0;
  double accuracy = 0.0;  ///< mean over the batches so far (inference); NaN without labels
  double first_scale = 1.0, scale = 1.0;
  int64_t skipped = 0;
};

struct Progress {
  int64_t done = 0, steps = 0;
  bool inference = false;  ///< steps are batches, of which there are no losses
  double rate = 0.0;       ///< steps per second, 0 if unknown
  std::vector<LaneProgress> lanes;
};

/// One line of at most `width` characters; what matters least goes first if it gets narrow.
std::string progress_text(const Progress& progress, size_t width);

class ProgressLine {
 public:
  /// Draws nothing if `quiet` or if standard error is no terminal.
  ProgressLine(int64_t steps, const RunInfo& info, bool quiet);
  /// Leaves an empty line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// After every step, with the rows of all lanes.
  void operator()(const std::vector<StepRow>& rows);

 private:
  using Clock = std::chrono::steady_clock;
  Progress progress_;
  RateMeter meter_;
  bool active_;
  Clock::time_point start_, last_;
};

/// The terminal behind standard error: its width, 0 if it is none that lines can be redrawn on.
size_t terminal_width();

}  // namespace halfscope
