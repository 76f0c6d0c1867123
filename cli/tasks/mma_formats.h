// SPDX-License-Identifier: MIT
// Names of tensor cores and of their formats as the command line takes them.
#pragma once

#include <string>
#include <vector>

#include "core/numeric/sums/tensor_core.h"

namespace halfscope {

/// Reads what parse_format reads, in letters of either case, and "e4m3", "fp8-e4m3", "fp8-e5m2"
/// as data sets have it. Throws Error (usage) that names `where` for anything else.
FloatFormat mma_format(const std::string& where, const std::string& text);

/// By name or alias. Throws Error (usage) that names `where`.
const TensorCoreArch& mma_arch(const std::string& where, const std::string& name);

/// Throws Error (usage) that names `where` if the architecture has no such instruction; the hint
/// says which have.
TensorCoreProfile mma_profile(const std::string& where, const TensorCoreArch& arch,
                              const FloatFormat& input, const FloatFormat& accumulator);

std::vector<std::string> mma_arch_names();
std::vector<std::string> mma_input_names();

}  // namespace halfscope
