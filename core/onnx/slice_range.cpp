// SPDX-License-Identifier: MIT
#include "core/onnx/slice_range.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/onnx/fold.h"

namespace halfscope::onnx_files {

std::vector<SliceRange> slice_ranges(const SliceArguments& arguments, const Shape& shape,
                                     const std::string& what) {
  const size_t given = arguments.starts.size();
  std::vector<int64_t> axes(given), steps(given, 1);
  std::iota(axes.begin(), axes.end(), int64_t{0});
  if (arguments.axes) axes = *arguments.axes;
  if (arguments.steps) steps = *arguments.steps;
  if (arguments.ends.size() != given || axes.size() != given || steps.size() != given)
    throw Error(what + ": starts, ends, axes and steps differ in length");
  axes = checked_axes(axes, shape.size(), what);
  std::vector<SliceRange> ranges;
  for (int64_t size : shape) ranges.push_back({.start = 0, .step = 1, .count = size});
  for (size_t i = 0; i < given; ++i) {
    const auto axis = static_cast<size_t>(axes[i]);
    const int64_t size = shape[axis];
    if (steps[i] == 0) throw Error(what + ": a step is zero");
    // Longer steps than the dimension take its first element alone.
    const int64_t step = std::clamp<int64_t>(steps[i], -size - 1, size + 1);
    const auto place = [size](int64_t at, int64_t low, int64_t high) {
      return std::clamp<int64_t>(at < 0 ? at + size : at, low, high);
    };
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    const int64_t start = place(arguments.starts[i], step > 0 ? 0 : -1, high);
    const int64_t end = arguments.ends[i] < -size ? low : place(arguments.ends[i], low, high);
    const int64_t span = step > 0 ? end - start : start - end;
    const int64_t pace = step > 0 ? step : -step;
    ranges[axis] = {.start = start, .step = step, .count = span > 0 ? (span + pace - 1) / pace : 0};
    if (ranges[axis].count == 0) ranges[axis].start = 0;
  }
  return ranges;
}

std::vector<int64_t> split_sizes(const std::optional<std::vector<int64_t>>& given, int parts,
                                 int64_t size, const std::string& what) {
  if (parts < 1) throw Error(what + ": splits into nothing");
  std::vector<int64_t> sizes;
  if (given) {
    sizes = *given;
  } else {
    const int64_t each = (size + parts - 1) / parts;
    for (int i = 0; i < parts; ++i) sizes.push_back(std::clamp<int64_t>(size - each * i, 0, each));
  }
  int64_t sum = 0;
  for (int64_t part : sizes) {
    if (part < 0 || part > size) throw Error(what + ": a part has size " + std::to_string(part));
    sum += part;
  }
  if (sum != size || static_cast<int>(sizes.size()) < parts) {
    throw Error(what + ": its parts do not add up to the dimension of " + std::to_string(size));
  }
  return sizes;
}

Shape unsqueezed(const Shape& shape, const std::vector<int64_t>& axes, const std::string& what) {
  const size_t rank = shape.size() + axes.size();
  const std::vector<int64_t> ones = checked_axes(axes, rank, what);
  Shape result;
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i) {
    const bool is_one = std::find(ones.begin(), ones.end(), static_cast<int64_t>(i)) != ones.end();
    result.push_back(is_one ? 1 : shape[next++]);
  }
  return result;
}

}  // namespace halfscope::onnx_files
