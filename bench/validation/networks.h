// SPDX-License-Identifier: MIT
// Runs small networks of the zoo's builder (core/models/zoo/net.h) on the emulated backend, under
// plans named as in the zoo ("naive_float16", "mixed_float16 scale=static:8").
#pragma once

#include <string>
#include <vector>

#include "analysis/run_view.h"
#include "core/models/zoo/zoo.h"
#include "core/tensor.h"

namespace halfscope::validation {

/// Returns the first output of a network that only runs forward.
std::vector<float> output_of(const zoo::Setup& setup, const std::string& plan);

struct Training {
  NamedTensors start, end;  ///< weights
  RunView run;              ///< lane 0, with the statistics of every step
};
/// Trains with these settings. The plan's are added to them.
Training train(TrainConfig config, const Dataset& data, const std::string& plan);
/// Trains a network of the zoo's builder.
Training train(const zoo::Setup& setup, const std::string& plan);

}  // namespace halfscope::validation
