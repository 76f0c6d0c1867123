// SPDX-License-Identifier: MIT
// Resolves the arguments of ONNX's Slice, whatever they are: positions beyond the ends are clamped,
// and nothing overflows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ops/ops.h"

namespace halfscope {

struct SliceArguments {
  std::vector<int64_t> starts, ends;
  std::optional<std::vector<int64_t>> axes, steps;
};

/// Returns the elements to read along every dimension. Throws Error naming `what` if the arguments
/// do not fit.
std::vector<SliceAxis> slice_ranges(const SliceArguments& arguments, const Shape& shape,
                                    const std::string& what);

}  // namespace halfscope
