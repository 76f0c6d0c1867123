// SPDX-License-Identifier: MIT
// Which tensor cores a device has, by the names of core/numeric/tensor_core.h.
#pragma once

#include <string_view>

namespace halfscope::gpu {

struct DeviceCores {
  std::string_view arch = "none";  ///< of mma.sync
  bool fp8 = false;                ///< its kernels are compiled with fp8 instructions
};

/// By compute capability; "none" where mma.sync has another shape or nobody has published how it
/// sums.
constexpr std::string_view cores_of_capability(int major, int minor) noexcept {
  if (major == 8) return minor == 9 ? "ada" : "a100";
  if (major == 9) return "h100";
  if (major == 10) return "b200";
  return major == 12 ? "rtx-blackwell" : "none";
}

}  // namespace halfscope::gpu
