// SPDX-License-Identifier: MIT
// Shared by the sources of Keras policies.
#pragma once

#include <string>

#include "core/numeric/formats/float_format.h"

namespace halfscope::keras {

/// Returns "float16", "bfloat16" or "float32".
std::string dtype_name(const FloatFormat& format);

}  // namespace halfscope::keras
