// SPDX-License-Identifier: MIT
// What this machine can do on a GPU: versions of the NVIDIA libraries, the devices, and which
// tensor-core formats each has. The question may be asked anywhere: without the CUDA toolkit at
// build time, without a driver or without a device the answer says so and nothing fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"

namespace halfscope {

/// A library or driver version; 0.0.0 means it is not there.
struct GpuVersion {
  int major = 0, minor = 0, patch = 0;

  bool found() const noexcept { return major != 0; }
  /// "13.0.2", or "not found".
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
  no_device,   ///< a driver, but no device that may be used
  failed,      ///< the runtime gave another error: see `problem`
  ready,       ///< at least one device
};

struct GpuReport {
  bool built = false;  ///< the CUDA toolkit was there when this program was built
  GpuState state = GpuState::not_built;
  std::string problem;   ///< the runtime's own words if there is no usable device
  GpuVersion toolkit;    ///< the headers this program was compiled with
  GpuVersion runtime;    ///< the CUDA runtime, which is part of this program
  GpuVersion driver;     ///< the newest CUDA version the driver supports
  GpuVersion cublas_lt;  ///< of the library found at run time
  GpuVersion cudnn;      ///< likewise
  std::vector<GpuDevice> devices;
};

/// Asks the CUDA runtime. Never throws for a missing driver, device or library.
GpuReport query_gpus();

/// The formats the tensor cores of a compute capability multiply, in words: "fp16" from 7.0,
/// "bf16" and "tf32" from 8.0, "fp8" from 8.9, "mxfp8" and "fp4" (with a scale for every block)
/// from 10.0. Empty below 7.0.
std::vector<std::string> tensor_core_formats(int major, int minor);

/// The rule Keras states for its mixed_float16 policy: it is fast from compute capability 7.0.
constexpr bool keras_mixed_float16_is_fast(int major, int /*minor*/) noexcept { return major >= 7; }

/// The report in plain words, one line each, ending with what to do about what is missing.
std::vector<std::string> describe(const GpuReport& report);

/// What to say, and to do, where a GPU was asked for and the report is of none that can be used:
/// one Error (usage).
Error no_gpu_error(const GpuReport& report);

/// CUDA codes a version as 1000 * major + 10 * minor; cuBLAS, and cuDNN from 9 on, code it as
/// 10000 * major + 100 * minor + patch.
GpuVersion decode_cuda_version(int64_t code) noexcept;
GpuVersion decode_library_version(int64_t code) noexcept;

}  // namespace halfscope
