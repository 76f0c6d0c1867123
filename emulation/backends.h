// SPDX-License-Identifier: MIT
// The CPU backends.
#pragma once

#include "core/backend/backend.h"

namespace halfscope {

/// Returns the backend "emulated": stores every tensor as float, rounded to its format. The bits do
/// not depend on the number of threads or the instruction set.
const Backend& emulation_backend();

/// Returns the backend "float64": computes the same graph in double, without rounding and without
/// statistics. Errors are measured against it.
const Backend& float64_backend();

}  // namespace halfscope
