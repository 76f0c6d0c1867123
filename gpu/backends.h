// SPDX-License-Identifier: MIT
// The GPU backends.
#pragma once

#include <cstdint>

#include "core/backend/backend.h"

namespace halfscope {

/// Chooses the code that computes matrix products and convolutions under the accumulation fp32. If
/// a library cannot compute a product, or the plan names another accumulation, our own kernels do.
enum class GpuProducts : uint8_t {
  library,  ///< cuBLASLt and cuDNN if two runs give the same bits; outputs are written in fp32
  own,      ///< our own kernels: same bits as the emulator
  fast,     ///< libraries choose freely and may write 16 bits; statistics are after rounding
};

/// Returns "cuda", "cuda-own" or "cuda-fast".
constexpr const char* gpu_backend_name(GpuProducts products) noexcept {
  return products == GpuProducts::library ? "cuda"
         : products == GpuProducts::own   ? "cuda-own"
                                          : "cuda-fast";
}

/// Returns whether this program was built with CUDA and can use a driver and a device.
bool cuda_is_ready();

/// Returns the backend that runs the whole graph on an NVIDIA device, the first one unless
/// choose_device() (gpu/processes.h) has chosen another: fp32 containers,
/// rounded to their formats by the same functions as in the emulator; statistics are counted on the
/// device. Throws Error (usage) that says what is missing: CUDA in this build, a driver, or a
/// device.
const Backend& cuda_backend(GpuProducts products = GpuProducts::library);

/// Returns "host-executor" or "host-executor-shuffled": the bodies of the cuda backend's kernels,
/// run on the CPU, one work item at a time, in order or shuffled. For tests on machines without a
/// device.
const Backend& host_executor_backend();
const Backend& shuffled_executor_backend();

}  // namespace halfscope
