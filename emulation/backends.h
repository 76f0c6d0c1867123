// SPDX-License-Identifier: MIT
// The backends of this room.
#pragma once

#include "core/backend/backend.h"

namespace halfscope {

/// "emulated": every tensor in a float container, rounded to its format; results are the same
/// bits for any number of threads and any instruction set.
const Backend& emulation_backend();

/// "float64": the same graph in double, without rounding and without statistics; the reference
/// that errors are measured against.
const Backend& float64_backend();

}  // namespace halfscope
