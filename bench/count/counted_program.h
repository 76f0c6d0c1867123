// SPDX-License-Identifier: MIT
// The GPU program of an executable graph on a CountingExecutor, and the work of one training step.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/count/counting_executor.h"
#include "core/data/dataset.h"
#include "core/lower/lower.h"
#include "gpu/backends.h"

namespace halfscope::count {

struct CountedStep {
  std::vector<Launch> launches;
  int64_t bytes = 0;  ///< of the lane on the device
};

/// Counts a step as the trainer runs it, from the inputs on the host to the update, on the first
/// samples of `data`. `measured`: with statistics.
CountedStep count_step(const Executable& executable, const Dataset& data, GpuProducts products,
                       bool measured);

}  // namespace halfscope::count
