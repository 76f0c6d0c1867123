// SPDX-License-Identifier: MIT
#include "core/ops/slice_range.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace halfscope {

std::vector<SliceAxis> slice_ranges(const SliceArguments& arguments, const Shape& shape,
                                    const std::string& what) {
  const size_t given = arguments.starts.size();
  std::vector<int64_t> axes(given), steps(given, 1);
  std::iota(axes.begin(), axes.end(), int64_t{0});
  if (arguments.axes) axes = *arguments.axes;
  if (arguments.steps) steps = *arguments.steps;
  if (arguments.ends.size() != given || axes.size() != given || steps.size() != given)
    throw Error(what + ": starts, ends, axes and steps differ in length");
  std::vector<SliceAxis> ranges;
  for (int64_t size : shape) ranges.push_back({.start = 0, .step = 1, .count = size});
  std::vector<bool> named(shape.size(), false);
  for (size_t i = 0; i < given; ++i) {
    const auto rank = static_cast<int64_t>(shape.size());
    if (axes[i] < -rank || axes[i] >= rank) {
      throw Error(what + ": axis " + std::to_string(axes[i]) + " of " + std::to_string(rank) +
                  " dimensions");
    }
    const auto axis = static_cast<size_t>(axes[i] < 0 ? axes[i] + rank : axes[i]);
    if (named[axis]) throw Error(what + ": names an axis twice");
    named[axis] = true;
    const int64_t size = shape[axis];
    if (steps[i] == 0) throw Error(what + ": a step is zero");
    // A step longer than the dimension reads only its first element.
    const int64_t step = std::clamp<int64_t>(steps[i], -size - 1, size + 1);
    // Negative positions count from the end. With a negative step the range ends before the first
    // element.
    const auto place = [size](int64_t at, int64_t low, int64_t high) {
      return std::max(low, std::min(at < 0 ? at + size : at, high));
    };
    const int64_t high = step > 0 ? size : size - 1;
    const int64_t start = place(arguments.starts[i], 0, high);
    const int64_t end = place(arguments.ends[i], step > 0 ? 0 : -1, high);
    const int64_t span = step > 0 ? end - start : start - end;
    const int64_t pace = step > 0 ? step : -step;
    const int64_t count = size > 0 && span > 0 ? (span + pace - 1) / pace : 0;
    ranges[axis] = {.start = count > 0 ? start : 0, .step = step, .count = count};
  }
  return ranges;
}

}  // namespace halfscope
