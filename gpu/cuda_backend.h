// SPDX-License-Identifier: MIT
// What the C++ sources of this room know of the one that nvcc compiles.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "gpu/backends.h"

namespace halfscope::gpu {

/// Compiles for the device; in cuda_program.cu.
std::unique_ptr<Program> make_cuda_program(const Executable& executable, GpuProducts products);

}  // namespace halfscope::gpu
