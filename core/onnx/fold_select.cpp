// SPDX-License-Identifier: MIT
// Folds GatherND, GatherElements, ScatterND and ScatterElements of known values.
#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "core/onnx/fold_parts.h"
#include "core/onnx/select_rules.h"

namespace halfscope::onnx_files {
namespace {

/// Returns the index counted from the start; negative indices count from the end.
int64_t in_range(int64_t index, int64_t size, const std::string& what) {
  if (index < -size || index >= size)
    throw Error(what + ": index " + std::to_string(index) + " is out of range for size " +
                std::to_string(size));
  return index < 0 ? index + size : index;
}

Result gather_nd(const FoldCall& c) {
  const KnownTensor &x = c.input(0), &indices = c.input(1);
  const TupleShapes shapes(x.shape, indices.shape, c.attributes.integer("batch_dims", 0), c.what);
  Shape shape = shapes.places;
  shape.insert(shape.end(), shapes.row.begin(), shapes.row.end());
  checked_count(shape, c.what, kMostFolded);
  const int64_t length = element_count(shapes.row);
  KnownTensor result{.type = x.type, .shape = shape};
  for (int64_t row : shapes.rows_of(indices, c.what)) {
    for (int64_t i = 0; i < length; ++i) append(result, x, row * length + i);
  }
  return one(std::move(result));
}

Result gather_elements(const FoldCall& c) {
  const KnownTensor &x = c.input(0), &indices = c.input(1);
  KnownTensor result{.type = x.type, .shape = indices.shape};
  for (int64_t at : elements_of(x.shape, indices, c.attributes.integer("axis", 0), c.what))
    append(result, x, at);
  return one(std::move(result));
}

template <class T>
T combined(T old, T update, ScatterHow how) {
  switch (how) {
    case ScatterHow::replace:
      return update;
    case ScatterHow::add:
      return old + update;
    case ScatterHow::multiply:
      return old * update;
    case ScatterHow::largest:
      return std::max(old, update);
    case ScatterHow::smallest:
      return std::min(old, update);
  }
  return update;
}

/// Applies updates one after the other, as ONNX Runtime does: the last one that replaces an element
/// wins.
Result scattered(const FoldCall& c, const std::vector<int64_t>& rows, int64_t length) {
  const KnownTensor &x = c.input(0), &updates = c.input(2);
  if (x.real() != updates.real()) throw Error(c.what + ": its inputs mix reals and integers");
  if (updates.count() != static_cast<int64_t>(rows.size()) * length)
    throw Error(c.what + ": its updates do not fit its indices");
  const ScatterHow how = scatter_how(c.attributes.text("reduction", "none"), c.what);
  KnownTensor result = x;
  for (size_t k = 0; k < rows.size(); ++k) {
    for (int64_t i = 0; i < length; ++i) {
      const auto to = static_cast<size_t>(rows[k] * length + i);
      const auto from = k * static_cast<size_t>(length) + static_cast<size_t>(i);
      if (x.real()) {
        result.reals[to] = rounded(combined(static_cast<double>(result.reals[to]),
                                            static_cast<double>(updates.reals[from]), how),
                                   x.type);
      } else if (how == ScatterHow::add) {
        result.ints[to] = wrapping_add(result.ints[to], updates.ints[from]);
      } else if (how == ScatterHow::multiply) {
        result.ints[to] = wrapping_mul(result.ints[to], updates.ints[from]);
      } else {
        result.ints[to] = combined(result.ints[to], updates.ints[from], how);
      }
    }
  }
  return one(std::move(result));
}

Result scatter_nd(const FoldCall& c) {
  const TupleShapes shapes(c.input(0).shape, c.input(1).shape, 0, c.what);
  return scattered(c, shapes.rows_of(c.input(1), c.what), element_count(shapes.row));
}

Result scatter_elements(const FoldCall& c) {
  return scattered(
      c, elements_of(c.input(0).shape, c.input(1), c.attributes.integer("axis", 0), c.what), 1);
}

struct SelectRow {
  std::string_view op;
  Result (*run)(const FoldCall&);
};
constexpr SelectRow kSelectRows[] = {
    {"GatherND", gather_nd},       {"GatherElements", gather_elements},
    {"ScatterND", scatter_nd},     {"ScatterElements", scatter_elements},
    {"Scatter", scatter_elements},  // the name up to opset 10
};

}  // namespace

std::optional<Result> fold_select(const FoldCall& call) {
  const std::string_view op = call.node.op_type();
  for (const SelectRow& row : kSelectRows) {
    if (row.op == op) return row.run(call);
  }
  return std::nullopt;
}

TupleShapes::TupleShapes(const Shape& data, const Shape& indices, int64_t batch_dims,
                         const std::string& what) {
  const auto rank = static_cast<int64_t>(data.size());
  const int64_t length = indices.empty() ? 0 : indices.back();
  const bool fits = batch_dims >= 0 && batch_dims < static_cast<int64_t>(indices.size()) &&
                    length >= 1 && batch_dims + length <= rank &&
                    std::equal(data.begin(), data.begin() + batch_dims, indices.begin());
  if (!fits) {
    throw Error(what + ": indices " + to_string(indices) + " do not fit data " + to_string(data));
  }
  const auto tuple = data.begin() + batch_dims;
  places.assign(indices.begin(), indices.end() - 1);
  row.assign(tuple + length, data.end());
  sizes.assign(tuple, tuple + length);
  strides.assign(sizes.size(), 1);
  for (size_t i = sizes.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * sizes[i + 1];
  rows = element_count(Shape(data.begin(), tuple + length));
  if (batch_dims == 0) return;
  const int64_t batches = element_count(Shape(data.begin(), tuple));
  const int64_t each = element_count(places) / std::max<int64_t>(1, batches);
  for (int64_t i = 0; i < batches * each; ++i)
    first_rows.push_back(i / each * element_count(sizes));
}

std::vector<int64_t> TupleShapes::rows_of(const KnownTensor& indices,
                                          const std::string& what) const {
  if (indices.real()) throw Error(what + ": its indices must be integers");
  std::vector<int64_t> result(indices.ints.size() / sizes.size(), 0);
  for (size_t i = 0; i < result.size(); ++i) {
    if (!first_rows.empty()) result[i] = first_rows[i];
    for (size_t k = 0; k < sizes.size(); ++k)
      result[i] += in_range(indices.ints[i * sizes.size() + k], sizes[k], what) * strides[k];
  }
  return result;
}

std::vector<int64_t> elements_of(const Shape& data, const KnownTensor& indices, int64_t axis,
                                 const std::string& what) {
  if (indices.real()) throw Error(what + ": its indices must be integers");
  const auto along = static_cast<size_t>(checked_axis(axis, data.size(), what));
  bool fits = indices.shape.size() == data.size();
  for (size_t i = 0; fits && i < data.size(); ++i) fits = i == along || indices.shape[i] <= data[i];
  if (!fits) {
    throw Error(what + ": indices " + to_string(indices.shape) + " do not fit data " +
                to_string(data));
  }
  std::vector<int64_t> result;
  std::vector<int64_t> place(data.size(), 0);
  for (int64_t index : indices.ints) {
    int64_t at = 0;
    for (size_t d = 0; d < data.size(); ++d)
      at = at * data[d] + (d == along ? in_range(index, data[d], what) : place[d]);
    result.push_back(at);
    for (size_t d = data.size(); d-- > 0;) {
      if (++place[d] < indices.shape[d]) break;
      place[d] = 0;
    }
  }
  return result;
}

ScatterHow scatter_how(const std::string& reduction, const std::string& what) {
  if (reduction == "none") return ScatterHow::replace;
  if (reduction == "add") return ScatterHow::add;
  if (reduction == "mul") return ScatterHow::multiply;
  if (reduction == "max") return ScatterHow::largest;
  if (reduction == "min") return ScatterHow::smallest;
  throw Error(what + ": the reduction '" + reduction + "' is not supported");
}

}  // namespace halfscope::onnx_files
