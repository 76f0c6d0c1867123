// SPDX-License-Identifier: MIT
// Shape rules that folding and translating share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ops/slice_range.h"

namespace halfscope::onnx_files {

/// Sizes of the parts of a dimension: those given, or `parts` equal ones of which the last may be
/// smaller. Throws Error naming `what` if they do not add up.
std::vector<int64_t> split_sizes(const std::optional<std::vector<int64_t>>& given, int parts,
                                 int64_t size, const std::string& what);

/// `shape` with ones put in, such that they stand at `axes` of the result.
Shape unsqueezed(const Shape& shape, const std::vector<int64_t>& axes, const std::string& what);

}  // namespace halfscope::onnx_files
