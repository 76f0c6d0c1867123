// SPDX-License-Identifier: MIT
// Accesses to several bytes at once need an address that is a multiple of their number. A device
// stops at any other address (cudaErrorMisalignedAddress); a CPU does not mind. So bodies check it
// on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/host_device.h"

namespace halfscope::gpu {

/// Throws Error. Bodies are noexcept, so that ends the program with its message.
[[noreturn]] inline void misaligned(const void* memory, size_t bytes) {
  throw Error("misaligned access: " + std::to_string(bytes) + " bytes at an address that is " +
              std::to_string(reinterpret_cast<uintptr_t>(memory) % bytes) +
              " bytes after a multiple of that");
}

/// Call it before an access to `bytes` bytes at once. Does nothing on a device.
HS_HD inline void check_aligned([[maybe_unused]] const void* memory,
                                [[maybe_unused]] size_t bytes) noexcept {
#if !defined(__CUDA_ARCH__)
  if (reinterpret_cast<uintptr_t>(memory) % bytes != 0) misaligned(memory, bytes);
#endif
}

}  // namespace halfscope::gpu
