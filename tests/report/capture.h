// SPDX-License-Identifier: MIT
// Make-believe runs as if another framework had trained them, and runs with changes.
#pragma once

#include <functional>

#include "tests/report/synthetic.h"

namespace halfscope::test {

/// Returns the narrow lane of a run as if it had been recorded in PyTorch: without a reference, and
/// measured after rounding, so that overflows are infinities and underflows zeros.
RunView captured(const RunSpec& spec);

/// A network of 60 steps whose fc1 reads what functions ("fc1/input") have computed from relu2.
RunSpec spec_with_code();

/// Returns a copy of a run with changed statistics and rows.
RunView changed(const RunView& run, const std::function<void(const SiteInfo&, TensorStats&)>& stats,
                const std::function<void(StepRow&)>& row);

/// Returns the same where only the last lane changes, and statistics change from step to step.
RunView changed_steps(const RunView& run,
                      const std::function<void(const SiteInfo&, int64_t step, TensorStats&)>& stats,
                      const std::function<void(StepRow&)>& row);

/// Returns a copy of a run with another description.
RunView described(const RunView& run, const std::function<void(RunInfo&)>& change);

/// Makes a tensor contain a single number throughout.
void fill(TensorStats& stats, double value);

/// Leave a row or statistics as they are.
inline void keep_row(StepRow& /*row*/) {}
inline void keep_stats(const SiteInfo& /*site*/, TensorStats& /*stats*/) {}

}  // namespace halfscope::test
