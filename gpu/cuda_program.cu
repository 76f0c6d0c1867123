// SPDX-License-Identifier: MIT
// The program on the device. The operators' kernels are compiled separately (gpu/CMakeLists.txt).
#include "gpu/cuda_backend.h"
#include "gpu/engine/cuda_executor.cuh"
#include "gpu/engine/program.h"
#include "gpu/libraries/libraries.h"
#include "gpu/libraries/nccl.h"

namespace halfscope::gpu {

std::unique_ptr<Program> make_cuda_program(const Executable& executable, GpuProducts products) {
  auto executor = std::make_unique<CudaExecutor>();
  const cudaStream_t stream = executor->stream();
  std::unique_ptr<ProductLibrary> library;
  if (products != GpuProducts::own) {
    library = open_libraries(stream, products == GpuProducts::fast);
  }
  return std::make_unique<DeviceProgram<CudaExecutor>>(
      executable, std::move(executor), std::move(library),
      [stream](const Exchange& ranks) { return nccl_link(ranks, stream); });
}

}  // namespace halfscope::gpu
