// SPDX-License-Identifier: MIT
// query_gpus() for builds without the CUDA toolkit.
#include "gpu/device_info.h"

namespace halfscope {

GpuReport query_gpus() { return {}; }

}  // namespace halfscope
