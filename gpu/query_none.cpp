// SPDX-License-Identifier: MIT
// query_gpus() of a build without the CUDA toolkit.
#include "gpu/device_info.h"

namespace halfscope {

GpuReport query_gpus() { return {}; }

}  // namespace halfscope
