// SPDX-License-Identifier: MIT
// The network that a plan is made for or shown for, before any data is read.
#pragma once

#include <cstdint>
#include <string>

#include "cli/args/settings.h"
#include "core/graph/model.h"
#include "core/lower/lower.h"

namespace halfscope {

/// Samples per step where neither the settings nor a file say how many.
inline constexpr int64_t kPlannedBatch = 128;

/// Returns the network of the settings as `train` would train it: with the loss of --loss, or
/// cross-entropy if it is built in. A file without --loss has none, and is planned for inference.
/// Throws Error.
Model planned_network(const Settings& settings);

/// Returns how many samples the main input has; 0 if the network does not say.
int64_t samples_of(const Executable& executable);
/// Returns "3x224x224", "1024 tokens" or "784 numbers": one sample of the main input; "" if the
/// network does not say.
std::string sample_text(const Executable& executable);

}  // namespace halfscope
