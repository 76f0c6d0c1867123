// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "core/lower/lower.h"

namespace halfscope {

/// Returns by ValueId whether a value of the forward pass is known before any input is: variables,
/// constants, and everything computed from these alone.
std::vector<bool> known_values(const Executable& executable);

}  // namespace halfscope
