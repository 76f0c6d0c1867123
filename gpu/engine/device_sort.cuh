// SPDX-License-Identifier: MIT
// Sorts pairs on the device with CUB, whose headers take long to compile and are in one file alone.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "gpu/engine/pair_sort.h"

namespace halfscope::gpu {

/// Returns the bytes of working memory for a sort of that many pairs and bits.
size_t device_sort_bytes(const PairSort& sort);

/// Sorts on the stream. Allocates nothing and waits for nothing, so it can be captured.
void sort_on_device(const PairSort& sort, cudaStream_t stream);

}  // namespace halfscope::gpu
