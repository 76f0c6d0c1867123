// SPDX-License-Identifier: MIT
// Whether a network that a file fixes at one sample may take several.
#pragma once

#include "core/lower/lower.h"

namespace halfscope::onnx_files {

/// `one` and `many` are the same file read for one and for several samples. True if every node
/// treats the samples apart: their axis stays the first, and nothing sums, normalizes, picks or
/// moves along it. Operators that are not known to do so count as not.
bool samples_stay_apart(const Model& one, const Model& many);

}  // namespace halfscope::onnx_files
