// SPDX-License-Identifier: MIT
// The CSV tables of `halfscope report` (docs/reference/csv.md: steps.csv, stats.csv, sums.csv and
// "kernels.csv"): a header row, numbers in their shortest exact form, RFC 4180 quoting, lines ended
// by a line feed.
#pragma once

#include <iosfwd>

#include "analysis/run_view.h"

namespace halfscope {

/// Writes one row per lane and step.
void write_steps_csv(const RunView& run, std::ostream& out);

/// Writes one row per lane, step window and site.
void write_stats_csv(const RunView& run, std::ostream& out);

/// Writes one row per lane, sampled step and tensor of sums of products.
void write_sums_csv(const RunView& run, std::ostream& out);
/// Writes one row per lane with its own kernels, sampled step and tensor computed by an operator.
void write_kernels_csv(const RunView& run, std::ostream& out);

}  // namespace halfscope
