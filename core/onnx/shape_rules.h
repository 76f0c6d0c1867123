// SPDX-License-Identifier: MIT
// Shape rules that folding and translating share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ops/slice_range.h"

namespace halfscope::onnx_files {

/// Returns the sizes of the parts of a dimension: the given ones, or `parts` equal ones except that
/// the last may be smaller. Throws Error naming `what` if they do not add up.
std::vector<int64_t> split_sizes(const std::optional<std::vector<int64_t>>& given, int parts,
                                 int64_t size, const std::string& what);

/// Inserts ones into `shape` so that they are at `axes` of the result.
Shape unsqueezed(const Shape& shape, const std::vector<int64_t>& axes, const std::string& what);

}  // namespace halfscope::onnx_files
