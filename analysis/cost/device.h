// SPDX-License-Identifier: MIT
// Devices by name, with the figures that their makers publish. Nothing here asks a real device.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halfscope {

/// How fast a device multiplies and adds numbers of one format, in 10^12 operations per second (a
/// multiplication and an addition are two). Sums are fp32, int32 for integers; no sparsity.
struct ProductRate {
  std::string_view format;  ///< "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4"
  double tera = 0.0;
};

struct Device {
  std::string_view name;   ///< "v100"
  std::string_view title;  ///< "NVIDIA V100 SXM2 32 GB"
  double memory_gb = 0.0;  ///< 10^9 bytes; memory of Jetsons is shared with the processor
  double bandwidth = 0.0;  ///< 10^9 bytes per second
  int processors = 1;      ///< streaming multiprocessors; 1 for a matrix unit that is not divided
  std::vector<ProductRate> rates;
  /// Sides that products are padded to; 1 on GPUs, whose libraries take other sizes too, but
  /// slower (tensor_core_fit.h).
  int64_t rows = 1, columns = 1;
  std::string_view source;

  /// Returns the rate of a format, if the device has units for it.
  std::optional<double> rate(std::string_view format) const;
};

/// All known devices.
std::span<const Device> devices();
/// Returns the device of that name. Throws Error (usage).
const Device& find_device(const std::string& name);

}  // namespace halfscope
