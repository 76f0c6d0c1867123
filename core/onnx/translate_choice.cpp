// SPDX-License-Identifier: MIT
// Operators that mark, find or keep elements.
#include <algorithm>
#include <numeric>

#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

/// Returns 0, 1, ... along one of `rank` axes.
ValueId counted(Translation& t, int64_t size, size_t rank, int64_t axis) {
  Shape shape(rank, 1);
  shape[static_cast<size_t>(axis)] = size;
  checked_count(shape, t.what(), kMostFolded);
  std::vector<int32_t> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  return t.graph().add_index_constant(shape, std::move(values));
}

/// Puts values[1] at the class given by each index. Negative indices count from the end.
void one_hot(Translation& t) {
  const Shape shape = t.shape(0);
  const auto depth = static_cast<int64_t>(t.known_scalar(1, "depth"));
  if (depth < 1 || depth > int64_t{1} << 30) throw t.error("its depth is out of range");
  const size_t rank = shape.size() + 1;
  const int64_t axis = checked_axis(t.attributes().integer("axis", -1), rank, t.what());
  const KnownTensor& values = t.known(2, "values");
  if (values.count() != 2) throw t.error("its values must be exactly two numbers");
  ValueId index = t.is_index(0) ? t.index(0) : t.add("RealToIndex", {t.real(0)}, {}, "classes");
  const auto integer = [&](int64_t value) {
    return t.graph().add_index_constant({}, {static_cast<int32_t>(value)});
  };
  const ValueId negative = t.add("Less", {index, integer(0)}, {}, "is_negative");
  const ValueId from_end = t.add("Add", {index, integer(depth)}, {}, "from_end");
  index = t.add("Where", {negative, from_end, index}, {}, "class");
  Shape wide = shape;
  wide.insert(wide.begin() + axis, 1);
  index = t.add("Reshape", {index}, {{"shape", wide}, {"allowzero", int64_t{1}}}, "column");
  const ValueId hit = t.add("Equal", {index, counted(t, depth, rank, axis)}, {}, "is_class");
  if (values.real()) {
    t.set_type(values.type);
    const ValueId off = t.graph().add_constant(values.reals[0]);
    t.set(0, t.add("Where", {hit, t.graph().add_constant(values.reals[1]), off}));
    return;
  }
  const ValueId off = integer(values.ints[0]);
  t.set_integers(0, t.add("Where", {hit, integer(values.ints[1]), off}), values.type);
}

/// Marks the first largest element along an axis. Up to opset 12, all dimensions from `axis` on
/// count as one.
void hard_max(Translation& t) {
  const Shape shape = t.shape(0);
  const bool flattens = t.opset() < 13;
  int64_t axis =
      checked_axis(t.attributes().integer("axis", flattens ? 1 : -1), shape.size(), t.what());
  ValueId x = t.real(0);
  if (flattens && axis + 1 < static_cast<int64_t>(shape.size())) {
    x = t.reshape(x,
                  {element_count({shape.begin(), shape.begin() + axis}),
                   element_count({shape.begin() + axis, shape.end()})},
                  "rows");
    axis = 1;
  }
  const Shape rows = t.shape_of(x);
  const ValueId place =
      t.add("ArgMax", {x},
            {{"axis", axis}, {"keepdims", int64_t{1}}, {"select_last_index", int64_t{0}}}, "place");
  const ValueId counts = counted(t, rows[static_cast<size_t>(axis)], rows.size(), axis);
  const ValueId hit = t.add("Equal", {place, counts}, {}, "is_largest");
  const ValueId one = t.graph().add_constant(1.0f), zero = t.graph().add_constant(0.0f);
  const ValueId y = t.add("Where", {hit, one, zero}, {}, "chosen");
  t.set(0, t.add("Reshape", {y}, {{"shape", shape}, {"allowzero", int64_t{1}}}));
}

/// Returns values in the opposite order: -x for reals, and -1 - x for integers, because -x
/// overflows for the smallest one.
ValueId opposite(Translation& t) {
  if (!t.is_index(0)) return t.add("Neg", {t.real(0)}, {}, "opposite");
  const ValueId minus_one = t.graph().add_index_constant({}, {-1});
  return t.add("Sub", {minus_one, t.index(0)}, {}, "opposite");
}

/// Computes ArgMin as ArgMax of the opposite values.
void arg_min(Translation& t) {
  const int64_t axis = checked_axis(t.attributes().integer("axis", 0), t.shape(0).size(), t.what());
  const ValueId place =
      t.add("ArgMax", {opposite(t)},
            {{"axis", axis},
             {"keepdims", t.attributes().integer("keepdims", 1)},
             {"select_last_index", t.attributes().integer("select_last_index", 0)}});
  t.set_integers(0, place, DataType::int64);
}

/// Finds the largest or smallest elements along an axis, the first one of them first.
void top_k(Translation& t) {
  const Shape shape = t.shape(0);
  const int64_t axis = checked_axis(t.attributes().integer("axis", -1), shape.size(), t.what());
  const std::vector<int64_t> counts = t.known_ints(1, "number of elements");
  const int64_t size = shape[static_cast<size_t>(axis)];
  if (counts.size() != 1 || counts[0] < 1 || counts[0] > size)
    throw t.error("it must pick between 1 and " + std::to_string(size) + " elements");
  const ValueId x = t.any(0);
  const bool largest = t.attributes().integer("largest", 1) != 0;
  const ValueId in_order = largest ? x : opposite(t);
  const ValueId places =
      counts[0] == 1
          ? t.add("ArgMax", {in_order}, {{"axis", axis}, {"keepdims", int64_t{1}}}, "places")
          : t.add("ArgSort", {in_order}, {{"axis", axis}, {"count", counts[0]}}, "places");
  t.set(0, t.add("GatherElements", {x, places}, {{"axis", axis}}));
  t.set_integers(1, places, DataType::int64);
}

/// Keeps the rows where a known condition is true. Without an axis, selects among all elements.
void compress(Translation& t) {
  const KnownTensor& condition = t.known(1, "condition");
  if (condition.real()) throw t.error("its condition must be booleans");
  std::vector<int64_t> rows;
  for (size_t i = 0; i < condition.ints.size(); ++i) {
    if (condition.ints[i] != 0) rows.push_back(static_cast<int64_t>(i));
  }
  ValueId x = t.any(0);
  int64_t axis = 0;
  if (t.attributes().has("axis")) {
    axis = checked_axis(t.attributes().integer("axis", 0), t.shape(0).size(), t.what());
  } else {
    const Shape line{element_count(t.shape(0))};
    if (t.shape_of(x) != line)
      x = t.add("Reshape", {x}, {{"shape", line}, {"allowzero", int64_t{1}}}, "line");
  }
  const int64_t size = t.shape_of(x)[static_cast<size_t>(axis)];
  if (rows.empty() || rows.back() >= size) throw t.error("its condition does not fit the input");
  t.set(0, gather_rows(t, x, axis, rows, ""));
}

constexpr Translator kChoiceTranslators[] = {
    {"OneHot", one_hot}, {"Hardmax", hard_max},  {"ArgMin", arg_min},
    {"TopK", top_k},     {"Compress", compress},
};

}  // namespace

std::span<const Translator> choice_translators() { return kChoiceTranslators; }

}  // namespace halfscope::onnx_files
