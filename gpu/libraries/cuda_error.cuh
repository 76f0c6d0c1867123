// SPDX-License-Identifier: MIT
// Converts errors of the CUDA runtime into ours.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace halfscope::gpu {

/// Throws an Error that names the call and, if any, its number of bytes. The error is a DeviceError
/// if memory ran out or the device is lost.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* call, size_t bytes);

/// Returns "CALL: NAME (text)".
std::string cuda_failure(cudaError_t error, const char* call);

inline void check_cuda(cudaError_t error, const char* call, size_t bytes = 0) {
  if (error != cudaSuccess) throw_cuda_error(error, call, bytes);
}

}  // namespace halfscope::gpu
