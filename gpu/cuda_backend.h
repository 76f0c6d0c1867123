// SPDX-License-Identifier: MIT
// Declares the part that nvcc compiles, for the C++ sources of this folder.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "gpu/backends.h"

namespace halfscope::gpu {

/// Compiles a program for the device. Defined in cuda_program.cu.
std::unique_ptr<Program> make_cuda_program(const Executable& executable, GpuProducts products);

}  // namespace halfscope::gpu
