// SPDX-License-Identifier: MIT
// The rule of ONNX's Slice, for any arguments: positions beyond the ends are cut off, and nothing
// overflows.
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

/// What is taken of every dimension. Throws Error naming `what` if the arguments do not fit.
std::vector<SliceAxis> slice_ranges(const SliceArguments& arguments, const Shape& shape,
                                    const std::string& what);

}  // namespace halfscope
