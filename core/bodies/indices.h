// SPDX-License-Identifier: MIT
// Bodies that compute indices, read them, or look elements up by them. `In` and `Out` are pointers,
// or a backend's replacement for them. Indices are in range: backends check that.
#pragma once

#include <cstdint>

#include "core/axis_lines.h"
#include "core/bodies/elements.h"
#include "core/host_device.h"
#include "core/numeric/elementary/integers.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/tensor_rounding.h"

namespace halfscope {

/// Counts a negative index from the end.
HS_HD constexpr int64_t from_end(int64_t index, int64_t length) noexcept {
  return index < 0 ? index + length : index;
}

/// One item is a line of x. NaN counts as larger than any number.
template <class In>
struct ArgMax {
  In x;
  int32_t* y;
  AxisLines lines;
  bool last;  ///< choose the last of equal elements

  HS_HD void operator()(int64_t item) const {
    const In line = x + lines.first(item);
    ElementOf<In> largest = line[0];
    int64_t best = 0;
    for (int64_t i = 1; i < lines.size; ++i) {
      const ElementOf<In> value = line[i * lines.stride];
      const bool ties = value == largest || (is_nan(value) && is_nan(largest));
      const bool wins = value > largest || (is_nan(value) && !is_nan(largest));
      if (wins || (last && ties)) {
        largest = value;
        best = i;
      }
    }
    y[item] = static_cast<int32_t>(best);
  }
};

/// One item is an element of x, which finds its place among the largest elements of its line, the
/// largest one first. Equal elements keep their order. NaN counts as larger than any number.
template <class In>
struct ArgSort {
  In x;
  int32_t* y;          ///< positions in x
  AxisLines from, to;  ///< to.size: the number of places

  HS_HD void operator()(int64_t item) const {
    const int64_t inner = item % from.stride, outer = item / from.stride;
    const int64_t at = outer % from.size, line = outer / from.size * from.stride + inner;
    const In values = x + from.first(line);
    const ElementOf<In> own = values[at * from.stride];
    int64_t place = 0;
    for (int64_t i = 0; i < from.size; ++i) {
      const ElementOf<In> other = values[i * from.stride];
      const bool ties = other == own || (is_nan(other) && is_nan(own));
      const bool wins = other > own || (is_nan(other) && !is_nan(own));
      place += wins || (ties && i < at) ? 1 : 0;
    }
    if (place < to.size) y[to.first(line) + place * to.stride] = static_cast<int32_t>(at);
  }
};

/// One item is a line, whose prefix sums are computed.
struct CumulateIndices {
  const int32_t* x;
  int32_t* y;
  AxisLines lines;
  bool exclusive, reverse;

  HS_HD void operator()(int64_t item) const {
    const int64_t first = lines.first(item);
    int32_t total = 0;
    for (int64_t k = 0; k < lines.size; ++k) {
      const int64_t i = first + (reverse ? lines.size - 1 - k : k) * lines.stride;
      const int32_t before = total;
      total = integers::Add{}(total, x[i]);
      y[i] = exclusive ? before : total;
    }
  }
};

/// One item is an element.
template <class T, class Out>
struct IndexToReal {
  const int32_t* x;
  Out y;
  FloatFormat write;
  TensorRounding rounding{};
  HS_HD void operator()(int64_t i) const {
    y[i] = delivered<T>(static_cast<double>(x[i]), write, rounding.element(i));
  }
};

/// One item is an element.
template <class In>
struct RealToIndex {
  In x;
  int32_t* y;
  HS_HD void operator()(int64_t i) const { y[i] = integers::truncated(static_cast<double>(x[i])); }
};

/// x as [outer, length, inner], of which `count` lines are read for each outer index. Size is
/// int64_t, or a number type by which a backend divides faster.
template <class Size>
struct GatherShape {
  Size length = 1, inner = 1, count = 1;

  /// Returns the line of x that becomes line `row` of the result.
  HS_HD int64_t line(const int32_t* index, int64_t row) const {
    return row / count * length + from_end(index[row % count], length);
  }
};

/// One item is a row: reads its element index[row], or 0 if that index is negative.
template <class In, class Out>
struct GatherLabels {
  In x;
  const int32_t* index;
  Out y;
  int64_t columns;

  HS_HD void operator()(int64_t row) const {
    const int32_t at = index[row];
    y[row] = at < 0 ? ElementOf<In>{0} : x[row * columns + at];
  }
};

}  // namespace halfscope
