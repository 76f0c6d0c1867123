// SPDX-License-Identifier: MIT
// The program over the device: every kernel of the cuda backend is instantiated here.
#include "gpu/cuda_backend.h"
#include "gpu/engine/cuda_executor.cuh"
#include "gpu/engine/program.h"

namespace halfscope::gpu {

std::unique_ptr<Program> make_cuda_program(const Executable& executable) {
  return std::make_unique<DeviceProgram<CudaExecutor>>(executable,
                                                       std::make_unique<CudaExecutor>());
}

}  // namespace halfscope::gpu
