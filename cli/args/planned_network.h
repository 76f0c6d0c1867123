// SPDX-License-Identifier: MIT
// The network that a plan is made for or shown for, before any data is read.
#pragma once

#include "cli/args/settings.h"
#include "core/graph/model.h"

namespace halfscope {

/// Samples per step where neither the settings nor a file say how many.
inline constexpr int64_t kPlannedBatch = 128;

/// Returns the network of the settings as `train` would train it: with the loss of --loss, or
/// cross-entropy if it is built in. A file without --loss has none, and is planned for inference.
/// Throws Error.
Model planned_network(const Settings& settings);

}  // namespace halfscope
