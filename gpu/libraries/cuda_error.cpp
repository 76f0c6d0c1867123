// SPDX-License-Identifier: MIT
#include "gpu/libraries/cuda_error.cuh"

#include <fmt/format.h>

#include "core/backend/backend.h"

namespace halfscope::gpu {
namespace {

std::string amount(size_t bytes) {
  constexpr double kKibi = 1024.0;
  const double kibibytes = static_cast<double>(bytes) / kKibi;
  if (kibibytes < 1.0) return fmt::format("{} bytes", bytes);
  if (kibibytes < kKibi) return fmt::format("{:.1f} KiB", kibibytes);
  return fmt::format("{:.1f} MiB", kibibytes / kKibi);
}

std::string hint_for(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) free = 0;
    return amount(free) + " of the device are free: lower --batch, or train fewer lanes there";
  }
  if (error == cudaErrorNoKernelImageForDevice) {
    return "configure with -DCMAKE_CUDA_ARCHITECTURES=native on this machine";
  }
  return "see what nvidia-smi says about the device";
}

/// Of the program as it was built, or as it calls: not of the state of the device.
bool is_of_program(cudaError_t error) {
  switch (error) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorNotSupported:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string cuda_failure(cudaError_t error, const char* call) {
  return fmt::format("{}: {} ({})", call, cudaGetErrorName(error), cudaGetErrorString(error));
}

void throw_cuda_error(cudaError_t error, const char* call, size_t bytes) {
  static_cast<void>(cudaGetLastError());  // it is in the Error, not in the runtime any more
  const std::string size = bytes > 0 ? " of " + amount(bytes) : "";
  const std::string what = fmt::format("CUDA {}{}: {}", call, size, cudaGetErrorString(error));
  if (is_of_program(error)) throw Error(what, hint_for(error));
  throw DeviceError(what, hint_for(error));
}

}  // namespace halfscope::gpu
