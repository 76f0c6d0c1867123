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
    return "lower --batch, or train fewer lanes on the device, which has " + amount(free) + " free";
  }
  if (error == cudaErrorNoKernelImageForDevice) {
    return "rebuild on this machine with -DCMAKE_CUDA_ARCHITECTURES=native";
  }
  return "check the device with nvidia-smi";
}

/// Returns whether the error is a fault of the program (how it was built, or a call), not of the
/// device.
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
  static_cast<void>(cudaGetLastError());  // it is in the Error now, no longer in the runtime
  const std::string size = bytes > 0 ? " of " + amount(bytes) : "";
  const std::string what =
      fmt::format("CUDA {}{} failed: {}", call, size, cudaGetErrorString(error));
  if (is_of_program(error)) throw Error(what, hint_for(error));
  throw DeviceError(what, hint_for(error));
}

}  // namespace halfscope::gpu
