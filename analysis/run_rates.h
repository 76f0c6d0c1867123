// SPDX-License-Identifier: MIT
// The one number that verdicts, tables and the viewer give for a tensor of a run.
#pragma once

#include "analysis/run_view.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {

/// Returns the rates of a tensor over all recorded steps of the run.
inline Rates run_rates(const RunView& run, int lane, int site) {
  return rates_of(run.total(lane, site), run.lane(lane).sites[static_cast<size_t>(site)].format);
}

}  // namespace halfscope
