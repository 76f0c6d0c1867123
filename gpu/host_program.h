// SPDX-License-Identifier: MIT
// Compiles a program of the cuda backend's kernels that runs on the CPU, with a given library. For
// tests on machines without a device.
#pragma once

#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "gpu/libraries/product_library.h"

namespace halfscope::gpu {

/// Returns the program. Without a library, our own kernels' bodies compute products. If
/// `tensor_core` names a core, products use the bodies for it; the model replaces the instruction.
std::unique_ptr<Program> compile_on_host(const Executable& executable, bool shuffled,
                                         std::unique_ptr<ProductLibrary> library,
                                         const std::string& tensor_core = "none");

}  // namespace halfscope::gpu
