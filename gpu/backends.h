// SPDX-License-Identifier: MIT
// The backends of this room.
#pragma once

#include "core/train/backend.h"

namespace halfscope {

/// Whether cuda_backend() has what it needs here.
bool cuda_is_ready();

/// "cuda": the whole graph on the first NVIDIA device, in fp32 containers rounded to their formats
/// by the same functions as in the emulator. Sums are chains in ascending k, statistics are counted
/// on the device; two runs give the same bits. Throws Error (usage) that says what is missing
/// where this program was built without CUDA, or there is no driver or device.
const Backend& cuda_backend();

/// "host-executor", "host-executor-shuffled": the bodies of the cuda backend's kernels, run here
/// one work item after the other, in order or not. For tests on machines without a device.
const Backend& host_executor_backend();
const Backend& shuffled_executor_backend();

}  // namespace halfscope
