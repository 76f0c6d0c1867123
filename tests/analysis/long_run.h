// SPDX-License-Identifier: MIT
// A long made-up run with events at random, and the oracle of its windows: the statistics of every
// step are known, so what a run file says of any steps can be checked by adding them up.
#pragma once

#include <cstdint>
#include <filesystem>

#include "analysis/recorder.h"
#include "analysis/run_view.h"

namespace halfscope::test {

struct LongRun {
  int every = 1;    ///< steps divisible by it are recorded
  int events = 20;  ///< per thousand steps, on average
  int sites = 4;    ///< the last one is an update, not measured in skipped steps
};

/// So few windows that merging begins soon.
inline constexpr WindowList::Limits kFewWindows{.windows = 16, .first_events = 3, .last_events = 4};

RunInfo long_info(const LongRun& run);
StepRow long_step(const LongRun& run, int lane, int64_t step);
TensorStats long_stats(const LongRun& run, int lane, int64_t step, int site);
/// Gives the sink the steps [first, first + count) of all lanes.
void send_long(TapSink& sink, const LongRun& run, int64_t first, int64_t count);

/// Google Test expectations: all lanes have the steps 0, 1, ...; the windows are in order, cover
/// every recorded step once and contain the sums of their steps; events have separate windows; and
/// there are not too many windows. Returns the number of steps.
int64_t expect_long_run(const RunView& view, const LongRun& run, const WindowList::Limits& limits);

/// Lets `rounds` writers be killed at random moments, after their windows have begun to merge, and
/// checks each file: nothing that step() had returned from is missing.
void kill_long_runs(int rounds, uint32_t seed);

}  // namespace halfscope::test
