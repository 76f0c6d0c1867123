// SPDX-License-Identifier: MIT
#include <algorithm>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "core/numeric/formats/round.h"
#include "core/onnx/fold_parts.h"
#include "core/onnx/shape_rules.h"

namespace halfscope::onnx_files {
namespace {

std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

/// Returns a tensor whose element i is the element of x at start + the sum of place * stride.
KnownTensor picked(const KnownTensor& x, const Shape& shape, int64_t start,
                   const std::vector<int64_t>& strides) {
  KnownTensor result{.type = x.type, .shape = shape};
  std::vector<int64_t> place(shape.size(), 0);
  for (int64_t i = 0, n = element_count(shape); i < n; ++i) {
    int64_t at = start;
    for (size_t d = 0; d < shape.size(); ++d) at += place[d] * strides[d];
    append(result, x, at);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++place[d] < shape[d]) break;
      place[d] = 0;
    }
  }
  return result;
}

/// Returns the same elements with another shape.
KnownTensor viewed(const KnownTensor& x, Shape shape) {
  KnownTensor result = x;
  result.shape = std::move(shape);
  return result;
}

std::vector<int64_t> axes_of(const FoldCall& c, size_t input) {
  if (auto given = c.attributes.ints("axes")) return *given;
  if (c.has(input)) return c.input(input).ints;
  return {};
}

Result squeeze(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  std::vector<int64_t> axes = axes_of(c, 1);
  const bool all = axes.empty();
  axes = checked_axes(axes, x.shape.size(), c.what);
  Shape shape;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    const bool named = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (named && x.shape[i] != 1)
      throw Error(c.what + ": dimension " + std::to_string(i) + " is not 1");
    if (!(named || (all && x.shape[i] == 1))) shape.push_back(x.shape[i]);
  }
  return one(viewed(x, shape));
}

Result unsqueeze(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  return one(viewed(x, unsqueezed(x.shape, axes_of(c, 1), c.what)));
}

Result reshape(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  return one(viewed(
      x, reshaped(x.shape, c.input(1).ints, c.attributes.integer("allowzero", 0) != 0, c.what)));
}

Result transpose(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  std::vector<int64_t> order(x.shape.size());
  std::iota(order.rbegin(), order.rend(), int64_t{0});
  order = checked_axes(c.attributes.ints("perm", order), x.shape.size(), c.what);
  if (order.size() != x.shape.size()) throw Error(c.what + ": its perm does not fit the input");
  const std::vector<int64_t> own = strides_of(x.shape);
  Shape shape;
  std::vector<int64_t> strides;
  for (int64_t axis : order) {
    shape.push_back(x.shape[static_cast<size_t>(axis)]);
    strides.push_back(own[static_cast<size_t>(axis)]);
  }
  return one(picked(x, shape, 0, strides));
}

Result expand(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  const Shape shape = broadcast_of(x.shape, c.input(1).ints, c.what);
  checked_count(shape, c.what, kMostFolded);
  const Walk at(x.shape, shape);
  KnownTensor result{.type = x.type, .shape = shape};
  for (int64_t i = 0, n = element_count(shape); i < n; ++i) append(result, x, at(i));
  return one(std::move(result));
}

Result tile(const FoldCall& c) {
  const KnownTensor &x = c.input(0), &repeats = c.input(1);
  if (repeats.ints.size() != x.shape.size())
    throw Error(c.what + ": its repeats do not fit the input");
  Shape shape = x.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (repeats.ints[i] < 0 || repeats.ints[i] > kMostFolded)
      throw Error(c.what + ": its repeats are out of range");
    shape[i] = checked_count({shape[i], repeats.ints[i]}, c.what, kMostFolded);
  }
  const int64_t count = checked_count(shape, c.what, kMostFolded);
  const std::vector<int64_t> own = strides_of(x.shape), to = strides_of(shape);
  KnownTensor result{.type = x.type, .shape = shape};
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) at += i / to[d] % shape[d] % x.shape[d] * own[d];
    append(result, x, at);
  }
  return one(std::move(result));
}

Result concat(const FoldCall& c) {
  const KnownTensor& first = c.input(0);
  const auto axis = static_cast<size_t>(
      checked_axis(c.attributes.integer("axis", 0), first.shape.size(), c.what));
  Shape shape = first.shape;
  shape[axis] = 0;
  for (size_t k = 0; k < c.in.size(); ++k) {
    const KnownTensor& each = c.input(k);
    Shape rest = each.shape;
    if (rest.size() == shape.size()) rest[axis] = 0;
    Shape wanted = shape;
    wanted[axis] = 0;
    if (rest != wanted || each.real() != first.real())
      throw Error(c.what + ": the shapes of its inputs do not match");
    shape[axis] += each.shape[axis];
  }
  checked_count(shape, c.what, kMostFolded);
  KnownTensor result{.type = first.type, .shape = shape};
  const int64_t outer = element_count({shape.begin(), shape.begin() + static_cast<int64_t>(axis)});
  for (int64_t o = 0; o < outer; ++o) {
    for (const KnownTensor* each : c.in) {
      const int64_t length = outer == 0 ? 0 : each->count() / outer;
      for (int64_t i = 0; i < length; ++i) append(result, *each, o * length + i);
    }
  }
  return one(std::move(result));
}

Result split(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  const auto axis =
      static_cast<size_t>(checked_axis(c.attributes.integer("axis", 0), x.shape.size(), c.what));
  std::optional<std::vector<int64_t>> given = c.attributes.ints("split");
  if (c.has(1)) given = c.input(1).ints;
  const std::vector<int64_t> sizes =
      split_sizes(given, c.node.output_size(), x.shape[axis], c.what);
  const std::vector<int64_t> own = strides_of(x.shape);
  Result results;
  int64_t start = 0;
  for (int64_t size : sizes) {
    Shape shape = x.shape;
    shape[axis] = size;
    results.push_back(picked(x, shape, start * own[axis], own));
    start += size;
  }
  return results;
}

Result slice(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  SliceArguments arguments;
  if (c.opset < 10) {
    arguments = {c.attributes.ints("starts", {}), c.attributes.ints("ends", {}),
                 c.attributes.ints("axes"), std::nullopt};
  } else {
    arguments = {c.input(1).ints, c.input(2).ints, std::nullopt, std::nullopt};
    if (c.has(3)) arguments.axes = c.input(3).ints;
    if (c.has(4)) arguments.steps = c.input(4).ints;
  }
  const std::vector<SliceAxis> ranges = slice_ranges(arguments, x.shape, c.what);
  const std::vector<int64_t> own = strides_of(x.shape);
  Shape shape;
  std::vector<int64_t> strides;
  int64_t start = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    shape.push_back(ranges[i].count);
    strides.push_back(own[i] * ranges[i].step);
    start += own[i] * ranges[i].start;
  }
  return one(picked(x, shape, start, strides));
}

Result gather(const FoldCall& c) {
  const KnownTensor &x = c.input(0), &indices = c.input(1);
  if (indices.real()) throw Error(c.what + ": its indices must be integers");
  const auto axis =
      static_cast<size_t>(checked_axis(c.attributes.integer("axis", 0), x.shape.size(), c.what));
  const auto at = static_cast<int64_t>(axis);
  Shape shape(x.shape.begin(), x.shape.begin() + at);
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), x.shape.begin() + at + 1, x.shape.end());
  checked_count(shape, c.what, kMostFolded);
  const int64_t outer = element_count({x.shape.begin(), x.shape.begin() + at});
  const int64_t inner = element_count({x.shape.begin() + at + 1, x.shape.end()});
  KnownTensor result{.type = x.type, .shape = shape};
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t index : indices.ints) {
      const int64_t row = index < 0 ? index + x.shape[axis] : index;
      if (row < 0 || row >= x.shape[axis])
        throw Error(c.what + ": index " + std::to_string(index) + " is out of range");
      for (int64_t i = 0; i < inner; ++i) append(result, x, (o * x.shape[axis] + row) * inner + i);
    }
  }
  return one(std::move(result));
}

Result cumulative_sum(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  const KnownTensor& of = c.input(1);
  if (of.real() || of.count() != 1) throw Error(c.what + ": its axis must be one integer");
  const auto axis = static_cast<size_t>(checked_axis(of.ints[0], x.shape.size(), c.what));
  const bool exclusive = c.attributes.integer("exclusive", 0) != 0;
  const bool reverse = c.attributes.integer("reverse", 0) != 0;
  KnownTensor result = x;
  const int64_t stride = strides_of(x.shape)[axis], size = x.shape[axis];
  for (int64_t i = 0, n = x.count(); i < n; ++i) {
    if (i / stride % size != 0) continue;
    double sum = 0.0;
    for (int64_t k = 0; k < size; ++k) {
      const int64_t at = i + (reverse ? size - 1 - k : k) * stride;
      const double value = x.number(at), next = sum + value;
      if (x.real()) {
        result.reals[static_cast<size_t>(at)] = rounded(exclusive ? sum : next, x.type);
      } else {
        result.ints[static_cast<size_t>(at)] = to_integer(exclusive ? sum : next);
      }
      sum = next;
    }
  }
  return one(std::move(result));
}

Result triangle(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  const size_t rank = x.shape.size();
  if (rank < 2) throw Error(c.what + ": its input must be a matrix");
  const int64_t shift = c.has(1) && !c.input(1).ints.empty() ? c.input(1).ints[0] : 0;
  const bool upper = c.attributes.integer("upper", 1) != 0;
  KnownTensor result = x;
  const int64_t rows = x.shape[rank - 2], columns = x.shape[rank - 1];
  for (int64_t i = 0, n = x.count(); i < n; ++i) {
    const int64_t row = i / columns % rows, column = i % columns;
    const bool kept = upper ? column - row >= shift : column - row <= shift;
    if (kept) continue;
    if (x.real()) {
      result.reals[static_cast<size_t>(i)] = 0.0f;
    } else {
      result.ints[static_cast<size_t>(i)] = 0;
    }
  }
  return one(std::move(result));
}

/// Returns ones on a diagonal, in the shape of the input.
Result eye_like(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  if (x.shape.size() != 2) throw Error(c.what + ": its input must be a matrix");
  const int64_t shift = c.attributes.integer("k", 0);
  const auto to =
      static_cast<DataType>(c.attributes.integer("dtype", static_cast<int64_t>(x.type)));
  KnownTensor eye{.type = DataType::int64, .shape = x.shape};
  for (int64_t i = 0, n = x.count(); i < n; ++i)
    eye.ints.push_back(i % x.shape[1] - i / x.shape[1] == shift);
  return one(converted(eye, to, c.what));
}

/// Returns the positions of all non-zero elements, one row per dimension.
Result non_zero(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  std::vector<int64_t> places;
  for (int64_t i = 0, n = x.count(); i < n; ++i) {
    if (x.number(i) != 0.0) places.push_back(i);
  }
  const auto rank = static_cast<int64_t>(x.shape.size()),
             count = static_cast<int64_t>(places.size());
  KnownTensor result{.type = DataType::int64, .shape = {rank, count}};
  checked_count(result.shape, c.what, kMostFolded);
  const std::vector<int64_t> strides = strides_of(x.shape);
  for (size_t axis = 0; axis < x.shape.size(); ++axis) {
    for (int64_t place : places) result.ints.push_back(place / strides[axis] % x.shape[axis]);
  }
  return one(std::move(result));
}

/// Fills in `on` at the class given by each index and `off` elsewhere. Negative indices count from
/// the end.
Result one_hot(const FoldCall& c) {
  const KnownTensor &x = c.input(0), &depth = c.input(1), &values = c.input(2);
  if (depth.count() != 1 || values.count() != 2)
    throw Error(c.what + ": it needs one depth and two values");
  const auto classes = static_cast<int64_t>(depth.number(0));
  const auto axis = checked_axis(c.attributes.integer("axis", -1), x.shape.size() + 1, c.what);
  KnownTensor result{.type = values.type, .shape = x.shape};
  result.shape.insert(result.shape.begin() + axis, classes);
  checked_count(result.shape, c.what, kMostFolded);
  const int64_t inner = element_count({x.shape.begin() + axis, x.shape.end()});
  for (int64_t i = 0, n = result.count(); i < n; ++i) {
    const int64_t column = i / inner % classes, at = i / inner / classes * inner + i % inner;
    const int64_t index = to_integer(x.number(at));
    append(result, values, (index < 0 ? index + classes : index) == column);
  }
  return one(std::move(result));
}

Result flatten(const FoldCall& c) {
  const KnownTensor& x = c.input(0);
  const auto rank = static_cast<int64_t>(x.shape.size());
  const int64_t given = c.attributes.integer("axis", 1);
  const int64_t axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis > rank) throw Error(c.what + ": axis is out of range");
  return one(viewed(x, {element_count({x.shape.begin(), x.shape.begin() + axis}),
                        element_count({x.shape.begin() + axis, x.shape.end()})}));
}

/// Computes (x - zero) * scale, per tensor or along an axis, for the weights of quantized files.
Result dequantize(const FoldCall& c) {
  const KnownTensor &x = c.input(0), &scale = c.input(1);
  if (!scale.real()) throw Error(c.what + ": its scale must be real");
  if (c.attributes.integer("block_size", 0) != 0)
    throw Error(c.what + ": blocked scales are not supported");
  const bool whole = scale.count() == 1;
  const size_t axis = whole ? 0
                            : static_cast<size_t>(checked_axis(c.attributes.integer("axis", 1),
                                                               x.shape.size(), c.what));
  if (!whole && scale.shape != Shape{x.shape[axis]})
    throw Error(c.what + ": its scale does not fit the input");
  const KnownTensor* zero = c.has(2) ? &c.input(2) : nullptr;
  if (zero != nullptr && (zero->count() != scale.count() || zero->real() != x.real()))
    throw Error(c.what + ": its zero point does not fit the scale");
  const int64_t stride = whole ? 1 : strides_of(x.shape)[axis];
  // From opset 23 on, the file can name the type.
  const int64_t wanted = c.attributes.integer("output_dtype", 0);
  KnownTensor result{.type = wanted == 0 ? scale.type : static_cast<DataType>(wanted),
                     .shape = x.shape};
  if (!is_real(result.type)) throw Error(c.what + ": its output must be real");
  for (int64_t i = 0, n = x.count(); i < n; ++i) {
    const int64_t at = whole ? 0 : i / stride % x.shape[axis];
    const double offset = zero != nullptr ? zero->number(at) : 0.0;
    result.reals.push_back(rounded((x.number(i) - offset) * scale.number(at), result.type));
  }
  return one(std::move(result));
}

struct MovementRow {
  std::string_view op;
  Result (*run)(const FoldCall&);
};
constexpr MovementRow kMovementRows[] = {
    {"Squeeze", squeeze},       {"Unsqueeze", unsqueeze},
    {"Reshape", reshape},       {"Transpose", transpose},
    {"Expand", expand},         {"Tile", tile},
    {"Concat", concat},         {"Split", split},
    {"Slice", slice},           {"Gather", gather},
    {"CumSum", cumulative_sum}, {"Trilu", triangle},
    {"Flatten", flatten},       {"DequantizeLinear", dequantize},
    {"NonZero", non_zero},      {"OneHot", one_hot},
    {"EyeLike", eye_like},
};

}  // namespace

std::optional<std::vector<KnownTensor>> fold_movement(const FoldCall& call) {
  const std::string_view op = call.node.op_type();
  for (const MovementRow& row : kMovementRows) {
    if (row.op == op) return row.run(call);
  }
  return std::nullopt;
}

float rounded(double value, DataType type) {
  const std::optional<FloatFormat> format = format_of(type);
  return format && *format != kFp32
             ? static_cast<float>(round_to_format(value, *format, Rounding{}).value)
             : static_cast<float>(value);
}

KnownTensor converted(const KnownTensor& x, DataType to, const std::string& what) {
  if (!is_real(to) && !is_integer(to)) throw Error(what + ": cannot cast to " + type_name(to));
  KnownTensor result{.type = to, .shape = x.shape};
  for (int64_t i = 0, n = x.count(); i < n; ++i) {
    if (is_real(to)) {
      result.reals.push_back(rounded(x.number(i), to));
    } else if (to == DataType::boolean) {
      result.ints.push_back(x.number(i) != 0.0);
    } else {
      result.ints.push_back(x.real() ? to_integer(x.number(i)) : x.ints[static_cast<size_t>(i)]);
    }
  }
  return result;
}

std::vector<int64_t> checked_axes(std::vector<int64_t> axes, size_t rank, const std::string& what) {
  for (int64_t& axis : axes) axis = checked_axis(axis, rank, what);
  std::vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    throw Error(what + ": it names an axis twice");
  return axes;
}

int64_t checked_axis(int64_t axis, size_t rank, const std::string& what) {
  const auto dimensions = static_cast<int64_t>(rank);
  if (axis < -dimensions || axis >= dimensions) {
    throw Error(what + ": axis " + std::to_string(axis) + " is out of range for " +
                std::to_string(rank) + " dimensions");
  }
  return axis < 0 ? axis + dimensions : axis;
}

Shape broadcast_of(const Shape& a, const Shape& b, const std::string& what) {
  const size_t rank = std::max(a.size(), b.size());
  Shape result(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      throw Error(what + ": shapes " + to_string(a) + " and " + to_string(b) + " do not broadcast");
    }
    result[rank - 1 - i] = of_a == 1 ? of_b : of_a;
  }
  return result;
}

Shape reshaped(const Shape& from, const std::vector<int64_t>& target, bool zero_is_size,
               const std::string& what) {
  const auto fails = [&] {
    return Error(what + ": " + to_string(from) + " cannot be reshaped to " + to_string(target));
  };
  Shape shape = target;
  size_t open = target.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !zero_is_size) {
      if (i >= from.size()) throw fails();
      shape[i] = from[i];
    }
    if (shape[i] == -1 && open == target.size()) {
      open = i;
      shape[i] = 1;
    } else if (shape[i] < 0) {
      throw fails();
    }
  }
  const int64_t count = element_count(from), known = checked_count(shape, what);
  if (open < shape.size()) {
    if (known == 0 || count % known != 0) throw fails();
    shape[open] = count / known;
  } else if (known != count) {
    throw fails();
  }
  return shape;
}

}  // namespace halfscope::onnx_files
