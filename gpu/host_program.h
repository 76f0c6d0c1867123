// SPDX-License-Identifier: MIT
// A program of the cuda backend's kernels that runs here, with a library that is given: for tests
// on machines without a device.
#pragma once

#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "gpu/libraries/product_library.h"

namespace halfscope::gpu {

/// Without a library, products are computed by the bodies of our own kernels; with the name of a
/// tensor core by those that use it, in which the model takes the place of the instruction.
std::unique_ptr<Program> compile_on_host(const Executable& executable, bool shuffled,
                                         std::unique_ptr<ProductLibrary> library,
                                         const std::string& tensor_core = "none");

}  // namespace halfscope::gpu
