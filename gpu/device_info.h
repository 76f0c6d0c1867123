// SPDX-License-Identifier: MIT
// Reports the GPUs of this machine: versions of the NVIDIA libraries, the devices, and the
// tensor-core formats of each. It works everywhere: without the CUDA toolkit at build time, a
// driver or a device, the report says so and nothing fails.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace halfscope {

/// A library or driver version; 0.0.0 if not found.
struct GpuVersion {
  int major = 0, minor = 0, patch = 0;

  bool found() const noexcept { return major != 0; }
  /// Returns "13.0.2", or "not found".
  std::string text() const;

  friend bool operator==(const GpuVersion&, const GpuVersion&) = default;
};

struct GpuDevice {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  int64_t memory_bytes = 0;
  int sm_count = 0;

  friend bool operator==(const GpuDevice&, const GpuDevice&) = default;
};

enum class GpuState : uint8_t {
  not_built,   ///< this program was built without CUDA
  no_driver,   ///< no NVIDIA driver is loaded
  old_driver,  ///< the driver is older than the CUDA runtime needs
  no_device,   ///< a driver, but no usable device
  failed,      ///< the runtime returned another error: see `problem`
  ready,       ///< at least one device
};

struct GpuReport {
  bool built = false;  ///< the CUDA toolkit was found when this program was built
  GpuState state = GpuState::not_built;
  std::string problem;   ///< the runtime's error text if there is no usable device
  GpuVersion toolkit;    ///< the headers this program was compiled with
  GpuVersion runtime;    ///< the CUDA runtime, which is linked into this program
  GpuVersion driver;     ///< the newest CUDA version the driver supports
  GpuVersion cublas_lt;  ///< the library found at run time
  GpuVersion cudnn;      ///< same
  GpuVersion nccl;       ///< same
  std::vector<GpuDevice> devices;
};

/// Returns what the CUDA runtime reports. Never throws for a missing driver, device or library.
GpuReport query_gpus();

/// Returns the formats that the tensor cores of a compute capability multiply: "fp16" from 7.0,
/// "bf16" and "tf32" from 8.0, "fp8" from 8.9, "mxfp8" and "fp4" (with a scale per block) from
/// 10.0. Empty below 7.0.
std::vector<std::string> tensor_core_formats(int major, int minor);

/// Returns whether the device's tensor cores multiply `format`, one of tensor_core_formats().
bool has_tensor_cores(const GpuDevice& device, std::string_view format);

/// Returns whether mixed_float16 is fast, as the Keras documentation says: from compute capability
/// 7.0.
constexpr bool keras_mixed_float16_is_fast(int major, int /*minor*/) noexcept { return major >= 7; }

/// Returns the report in words, one line each, ending with how to get what is missing.
std::vector<std::string> describe(const GpuReport& report);

/// Returns the Error (usage) for a request for a GPU when `report` has no usable one: what is wrong
/// and what to do.
Error no_gpu_error(const GpuReport& report);

/// Decodes a version: CUDA codes it as 1000 * major + 10 * minor; cuBLAS, and cuDNN from 9 on, as
/// 10000 * major + 100 * minor + patch.
GpuVersion decode_cuda_version(int64_t code) noexcept;
GpuVersion decode_library_version(int64_t code) noexcept;

}  // namespace halfscope
