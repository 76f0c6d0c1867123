// SPDX-License-Identifier: MIT
// The backends of this room.
#pragma once

#include <cstdint>

#include "core/backend/backend.h"

namespace halfscope {

/// What computes matrix products and convolutions under the accumulation fp32; whatever the
/// libraries cannot do, and every other accumulation, is computed by our own kernels.
enum class GpuProducts : uint8_t {
  library,  ///< cuBLASLt and cuDNN, as far as two runs give the same bits; they write fp32
  own,      ///< our own kernels: the emulator's bits
  fast,     ///< the libraries choose freely, and may write 16 bits: statistics are those after it
};

/// "cuda", "cuda-own", "cuda-fast".
constexpr const char* gpu_backend_name(GpuProducts products) noexcept {
  return products == GpuProducts::library ? "cuda"
         : products == GpuProducts::own   ? "cuda-own"
                                          : "cuda-fast";
}

/// Whether cuda_backend() has what it needs here.
bool cuda_is_ready();

/// The whole graph on the first NVIDIA device, in fp32 containers rounded to their formats by the
/// same functions as in the emulator; statistics are counted on the device. Throws Error (usage)
/// that says what is missing where this program was built without CUDA, or there is no driver or
/// device.
const Backend& cuda_backend(GpuProducts products = GpuProducts::library);

/// "host-executor", "host-executor-shuffled": the bodies of the cuda backend's kernels, run here
/// one work item after the other, in order or not. For tests on machines without a device.
const Backend& host_executor_backend();
const Backend& shuffled_executor_backend();

}  // namespace halfscope
