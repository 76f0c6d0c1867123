// SPDX-License-Identifier: MIT
// `halfscope plan scalers`: one trajectory of gradients under the loss scalers of all frameworks.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace halfscope {

struct ScalerTraceOptions {
  std::string run;                         ///< run file; "" for a made-up trajectory
  std::string lane;                        ///< of the run; "": the first that needs a loss scale
  std::string pattern, trajectory, shape;  ///< one of them, without a run
  std::vector<std::string> scalers;        ///< as --loss-scale takes them; empty: all frameworks'
  std::string format = "fp16";             ///< of the gradients, for `trajectory` and `shape`
  int64_t steps = 0;                       ///< 0: the trajectory's own number, or 10,000
  int32_t interval = 0;                    ///< replaces the frameworks' growth intervals; 0: none
  std::string csv;                         ///< file for all changes of scales
  bool json = false, force = false;
};

/// Adds the flags of the trajectory and the scalers.
void add_scaler_flags(CLI::App& app, ScalerTraceOptions& options);

/// Prints the traces side by side. Returns 0. Throws Error (usage) for options that do not fit.
int plan_scalers(const ScalerTraceOptions& options);

}  // namespace halfscope
