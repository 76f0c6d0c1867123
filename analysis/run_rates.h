// SPDX-License-Identifier: MIT
// The rates of a tensor that verdicts, tables and the viewer show.
#pragma once

#include "analysis/run_view.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {

/// Returns the rates of a tensor over all recorded steps of the run.
inline Rates run_rates(const RunView& run, int lane, int site) {
  return rates_of(run.total(lane, site), run.lane(lane).sites[static_cast<size_t>(site)].format);
}

}  // namespace halfscope
