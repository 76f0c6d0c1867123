// SPDX-License-Identifier: MIT
// The tables of `halfscope report`, as docs/contracts.md describes them under
// "steps.csv", "stats.csv", "sums.csv" and "kernels.csv": a header row, numbers in their shortest exact form, RFC
// 4180 quoting, lines ended by a line feed.
#pragma once

#include <iosfwd>

#include "analysis/run_view.h"

namespace halfscope {

/// One row per lane and step.
void write_steps_csv(const RunView& run, std::ostream& out);

/// One row per lane, step window and site.
void write_stats_csv(const RunView& run, std::ostream& out);

/// One row per lane, sampled step and tensor of sums of products.
void write_sums_csv(const RunView& run, std::ostream& out);
/// One row per lane with kernels of its own, sampled step and tensor that an operator made.
void write_kernels_csv(const RunView& run, std::ostream& out);

}  // namespace halfscope
