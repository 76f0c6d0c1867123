// SPDX-License-Identifier: MIT
// cuda_backend() for builds without nvcc.
#include "core/error.h"
#include "gpu/backends.h"
#include "gpu/device_info.h"

namespace halfscope {

bool cuda_is_ready() { return false; }

const Backend& cuda_backend(GpuProducts) { throw no_gpu_error({}); }

}  // namespace halfscope
