// SPDX-License-Identifier: MIT
// Lines that `train` and `run` print on standard error with --kernels.
#pragma once

#include <span>

#include "core/observe/lane_kernels.h"

namespace halfscope {

/// "LANE NODE OPERATOR: KERNEL", before the first step.
void print_kernels(std::span<const ProductKernel> kernels);

/// "LANE entry NAME: HOW", after the last step.
void print_launches(std::span<const EntryLaunch> launches);

}  // namespace halfscope
