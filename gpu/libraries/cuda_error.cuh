// SPDX-License-Identifier: MIT
// Errors of the CUDA runtime as ours.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace halfscope::gpu {

/// Throws an Error that names the call and how many bytes it was about, if any: a DeviceError where
/// memory ran out or the device is lost.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* call, size_t bytes);

/// Returns "CALL: NAME (text)" of an error.
std::string cuda_failure(cudaError_t error, const char* call);

inline void check_cuda(cudaError_t error, const char* call, size_t bytes = 0) {
  if (error != cudaSuccess) throw_cuda_error(error, call, bytes);
}

}  // namespace halfscope::gpu
