// SPDX-License-Identifier: MIT
// query_gpus() for builds with the CUDA toolkit. The runtime is linked statically and finds the
// driver on its own. cuBLASLt, cuDNN and NCCL are opened by name, so that the program starts on
// machines without them.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstddef>
#include <string>

#include "gpu/device_info.h"
#include "gpu/libraries/nccl.h"

namespace halfscope {
namespace {

/// Returns the number from a shared library's version function (size_t f()), or 0 if there is no
/// such library or function. The library stays open: closing one that has started threads or
/// registered exit handlers is not safe.
int64_t library_version(const std::string& library, const char* function) {
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return 0;
  void* symbol = dlsym(handle, function);
  if (symbol == nullptr) return 0;
  return static_cast<int64_t>(reinterpret_cast<size_t (*)()>(symbol)());
}

GpuState state_of(cudaError_t error, const GpuVersion& driver) {
  switch (error) {
    case cudaSuccess:
      return GpuState::ready;
    case cudaErrorNoDevice:
      return GpuState::no_device;
    case cudaErrorInsufficientDriver:
      // The runtime returns the same error for "no driver" and "driver too old".
      return driver.found() ? GpuState::old_driver : GpuState::no_driver;
    default:
      return GpuState::failed;
  }
}

}  // namespace

GpuReport query_gpus() {
  GpuReport report;
  report.built = true;
  report.toolkit = decode_cuda_version(CUDART_VERSION);
  int code = 0;
  if (cudaRuntimeGetVersion(&code) == cudaSuccess) report.runtime = decode_cuda_version(code);
  if (cudaDriverGetVersion(&code) == cudaSuccess) report.driver = decode_cuda_version(code);
  // cuBLASLt has the major version of its toolkit.
  report.cublas_lt = decode_library_version(library_version(
      "libcublasLt.so." + std::to_string(report.toolkit.major), "cublasLtGetVersion"));
  report.cudnn = decode_library_version(library_version("libcudnn.so.9", "cudnnGetVersion"));
  report.nccl = decode_library_version(gpu::nccl_version());

  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  report.state = state_of(error, report.driver);
  if (error != cudaSuccess) {
    report.problem = cudaGetErrorString(error);
    static_cast<void>(cudaGetLastError());  // it is in the report now, no longer in the runtime
    return report;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (const cudaError_t failure = cudaGetDeviceProperties(&properties, i);
        failure != cudaSuccess) {
      report.problem = cudaGetErrorString(failure);
      static_cast<void>(cudaGetLastError());
      if (i == 0) report.state = GpuState::failed;  // the device that most lanes run on
      continue;
    }
    report.devices.push_back({.name = properties.name,
                              .major = properties.major,
                              .minor = properties.minor,
                              .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                              .sm_count = properties.multiProcessorCount});
  }
  if (count == 0) report.state = GpuState::no_device;
  return report;
}

}  // namespace halfscope
