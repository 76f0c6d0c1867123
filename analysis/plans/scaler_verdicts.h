// SPDX-License-Identifier: MIT
// Why a loss scaler ends badly with a trajectory, and what to do about it.
#pragma once

#include <string>

#include "analysis/plans/scaler_traces.h"

namespace halfscope {

/// The sentences after ScalerTrace::about.
struct ScalerVerdict {
  std::string site;    ///< tensor that overflows: "conv2.activation"; "" if unknown
  std::string why;     ///< a sentence
  std::string advice;  ///< a sentence
};

/// Returns why the trace ends badly; all empty for a good end, unless the recorded loss is lost all
/// the same. `scaler` and `demands` made the
/// trace. `run` is the run file that the demands were read from, or "".
ScalerVerdict verdict_of(const ScalerTrace& trace, const LossScalerConfig& scaler,
                         const ScaleDemands& demands, const std::string& run);

}  // namespace halfscope
