// SPDX-License-Identifier: MIT
// Shape rules that folding and translating share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace halfscope::onnx_files {

struct SliceArguments {
  std::vector<int64_t> starts, ends;
  std::optional<std::vector<int64_t>> axes, steps;
};

/// What is taken of one dimension: element start, start + step, ..., count of them.
struct SliceRange {
  int64_t start, step, count;
};

/// Of every dimension, by the rules of ONNX's Slice. Throws Error naming `what`.
std::vector<SliceRange> slice_ranges(const SliceArguments& arguments, const Shape& shape,
                                     const std::string& what);

/// Sizes of the parts of a dimension: those given, or `parts` equal ones of which the last may be
/// smaller. Throws Error naming `what` if they do not add up.
std::vector<int64_t> split_sizes(const std::optional<std::vector<int64_t>>& given, int parts,
                                 int64_t size, const std::string& what);

/// `shape` with ones put in, such that they stand at `axes` of the result.
Shape unsqueezed(const Shape& shape, const std::vector<int64_t>& axes, const std::string& what);

}  // namespace halfscope::onnx_files
