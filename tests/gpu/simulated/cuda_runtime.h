// SPDX-License-Identifier: MIT
// Takes the place of the CUDA runtime's header of this name where the one source that nvcc compiles
// is compiled as C++, for the simulated device (simulated/device.h): what nvcc adds to the language
// as far as that source uses it.
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include "tests/gpu/simulated/device.h"

// The headers of the toolkit give these another meaning where nvcc does not compile.
#undef __global__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __shared__ static  // one block runs at a time
#define __launch_bounds__(...)
#define __grid_constant__
/// For gpu/engine/cuda_executor.cuh.
#define HS_LEAVE_UNSET(shared, state) \
  halfscope::simulated::leave_unset(&(shared), sizeof(shared), &(state), sizeof(state))

inline const uint3& threadIdx = halfscope::simulated::this_thread().thread;  // NOLINT
inline const uint3& blockIdx = halfscope::simulated::this_thread().block;    // NOLINT
inline const dim3& blockDim = halfscope::simulated::this_thread().threads;   // NOLINT
inline const dim3& gridDim = halfscope::simulated::this_thread().blocks;     // NOLINT

inline void __syncthreads() { halfscope::simulated::barrier(); }

/// Like the runtime's template: the arguments are copied at once.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  using namespace halfscope::simulated;
  const auto call = [](void (*any)(), const std::vector<KeptArgument>& kept) {
    [&]<size_t... At>(std::index_sequence<At...>) {
      reinterpret_cast<void (*)(Parameters...)>(any)(
          *reinterpret_cast<const Parameters*>(kept[At].data())...);
    }
    (std::index_sequence_for<Parameters...>());
  };
  const auto launch_copies = [&](Parameters... copies) {
    (clear_padding(copies), ...);
    const std::initializer_list<Argument> all{Argument(copies)...};
    return launch(*config, {reinterpret_cast<void (*)()>(kernel), call}, all);
  };
  return launch_copies(static_cast<Parameters>(arguments)...);
}

/// Returns nvcc's attributes of a kernel compiled for compute capability 9.0.
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*)(Parameters...)) {
  *attributes = {};
  attributes->ptxVersion = attributes->binaryVersion = 90;
  return cudaSuccess;
}

template <class T>
requires(!std::same_as<T, void>) cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
