// SPDX-License-Identifier: MIT
// Finds a device's tensor cores, by the names of core/numeric/sums/tensor_core.h.
#pragma once

#include <string_view>
#include <vector>

#include "core/numeric/sums/accumulation.h"

namespace halfscope::gpu {

struct DeviceCores {
  std::string_view arch = "none";  ///< for mma.sync
  bool fp8 = false;                ///< its kernels are compiled with fp8 instructions
};

/// Returns the name for a compute capability, or "none" if mma.sync has another shape or nobody has
/// published how it sums.
constexpr std::string_view cores_of_capability(int major, int minor) noexcept {
  if (major == 8) return minor == 9 ? "ada" : "a100";
  if (major == 9) return "h100";
  if (major == 10) return "b200";
  return major == 12 ? "rtx-blackwell" : "none";
}

/// Returns the orders in which libraries may sum on a device of that compute capability: by
/// mma.sync, by the instructions of its generation, and by those with fp8 sums promoted every 128
/// terms (cuBLASLt without fast accumulation).
inline std::vector<Accumulation> library_orders(int major, int minor) {
  std::vector<Accumulation> orders;
  const auto add = [&](std::string_view arch, int64_t promote) {
    Accumulation order = Accumulation::tensor_core;
    order.arch = arch;
    order.promote = promote;
    orders.push_back(order);
  };
  const std::string_view arch = cores_of_capability(major, minor);
  if (major == 9) {
    add("h100-wgmma", 0);
    add("h100-wgmma", 128);
  }
  if (major == 10) add("b200-tcgen05", 0);
  if (arch != "none") add(arch, 0);
  return orders;
}

}  // namespace halfscope::gpu
