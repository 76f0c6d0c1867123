// SPDX-License-Identifier: MIT
// GatherND, ScatterND and ScatterElements as a Gather of rows. GatherND computes each row number
// from its tuple of indices. Scattering with known indices takes each row of the result from the
// data or from the updates. Sums at computed indices are the gradient of a Gather, and other
// updates at computed indices are such sums in place of the data.
#include <algorithm>
#include <map>
#include <numeric>

#include "core/onnx/select_rules.h"
#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

/// Updates of the same row, one after the other. More are sums.
constexpr int64_t kMostRepeats = 64;

ValueId constant_of(Translation& t, const Shape& shape, const std::vector<int64_t>& values) {
  std::vector<int32_t> numbers;
  for (int64_t value : values) {
    if (value > INT32_MAX) throw t.error("selecting among more than 2^31 rows is not supported");
    numbers.push_back(static_cast<int32_t>(value));
  }
  return t.graph().add_index_constant(shape, std::move(numbers));
}

/// Computes the row numbers at run time. from_start: negative indices become others.
ValueId computed_rows(Translation& t, const TupleShapes& shapes, bool from_start) {
  const auto length = static_cast<int64_t>(shapes.sizes.size());
  ValueId rows = t.integers(1);
  // Gather counts negative indices from the end, but a sum of several indices cannot.
  if (length == 1 && shapes.first_rows.empty() && !from_start)
    return t.reshape(rows, shapes.places, "rows");
  if (shapes.rows > INT32_MAX / 2)
    throw t.error("selecting among more than 2^30 rows is not supported");
  const ValueId given = rows, sizes = constant_of(t, {length}, shapes.sizes);
  rows = t.add("Mod", {given, sizes}, {}, "from_start");
  // An index in range is moved by 0 or by the size. Any other index must not reach another row, so
  // `beyond` moves it out of range.
  const ValueId moved = t.add("Sub", {rows, given}, {}, "moved");
  const ValueId rest = t.add("Sub", {moved, sizes}, {}, "moved_rest");
  const ValueId wrong = t.add("Mul", {moved, rest}, {}, "out_of_range");
  const auto last = static_cast<int64_t>(shapes.places.size());
  if (length > 1) {
    rows = t.add("Mul", {rows, constant_of(t, {length}, shapes.strides)}, {}, "scaled");
    rows = t.add("ReduceSum", {rows},
                 {{"axes", std::vector<int64_t>{last}}, {"keepdims", int64_t{0}}}, "rows");
  } else {
    rows = t.reshape(rows, shapes.places, "rows");
  }
  if (!shapes.first_rows.empty())
    rows = t.add("Add", {rows, constant_of(t, shapes.places, shapes.first_rows)}, {}, "batch_rows");
  const ValueId size = t.add("Abs", {wrong}, {}, "out_of_range_size");
  const ValueId most =
      t.add("ReduceMax", {size}, {{"axes", std::vector<int64_t>{last}}, {"keepdims", int64_t{0}}},
            "out_of_range_most");
  const ValueId one = t.add("Min", {most, constant_of(t, {}, {1})}, {}, "out_of_range_once");
  const ValueId beyond = t.add("Mul", {one, constant_of(t, {}, {shapes.rows})}, {}, "beyond");
  return t.add("Add", {rows, beyond}, {}, "checked_rows");
}

Shape with_rows(int64_t rows, const Shape& row) {
  Shape shape{rows};
  shape.insert(shape.end(), row.begin(), row.end());
  return shape;
}

void gather_nd(Translation& t) {
  const TupleShapes shapes(t.shape(0), t.shape(1), t.attributes().integer("batch_dims", 0),
                           t.what());
  std::vector<int64_t> known;
  if (t.is_known(1)) known = shapes.rows_of(t.known(1, "indices"), t.what());
  const ValueId rows =
      t.is_known(1) ? constant_of(t, shapes.places, known) : computed_rows(t, shapes, false);
  const ValueId data = t.reshape(t.any(0), with_rows(shapes.rows, shapes.row), "data");
  if (t.is_known(1) && set_rows_of_each_sample(t, data, shapes.places, known)) return;
  t.set(0, t.add("Gather", {data, rows}, {{"axis", int64_t{0}}}));
}

ValueId rows_at(Translation& t, ValueId data, const std::vector<int64_t>& rows, const char* name) {
  const ValueId at = constant_of(t, {static_cast<int64_t>(rows.size())}, rows);
  return t.add("Gather", {data, at}, {{"axis", int64_t{0}}}, name);
}

/// Replaces the rows `targets` (all different) of the data [rows, ...] with the updates [n, ...].
ValueId replaced(Translation& t, ValueId data, ValueId updates,
                 const std::vector<int64_t>& targets) {
  const int64_t count = t.shape_of(data)[0];
  if (targets.empty()) return data;
  std::vector<int64_t> from(static_cast<size_t>(count));
  // The data is not used if all rows are replaced.
  const bool all = static_cast<int64_t>(targets.size()) == count;
  const int64_t first = all ? 0 : count;
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int64_t>(i);
  for (size_t k = 0; k < targets.size(); ++k)
    from[static_cast<size_t>(targets[k])] = first + static_cast<int64_t>(k);
  if (all) {
    const bool in_order = std::is_sorted(from.begin(), from.end());
    return in_order ? updates : rows_at(t, updates, from, "rows");
  }
  const ValueId both = t.add("Concat", {data, updates}, {{"axis", int64_t{0}}}, "old_and_new");
  return rows_at(t, both, from, "rows");
}

/// Returns how often the row is written that is written most often.
int64_t most_repeats(const std::vector<int64_t>& targets) {
  std::map<int64_t, int64_t> written;
  int64_t most = 0;
  for (const int64_t target : targets) most = std::max(most, ++written[target]);
  return most;
}

/// Groups the updates into rounds that write each row at most once.
std::vector<std::vector<int64_t>> rounds_of(Translation& t, const std::vector<int64_t>& targets) {
  std::vector<std::vector<int64_t>> rounds;
  std::map<int64_t, size_t> written;
  for (size_t k = 0; k < targets.size(); ++k) {
    const size_t round = written[targets[k]]++;
    if (round == static_cast<size_t>(kMostRepeats))
      throw t.error("it changes a row more than " + std::to_string(kMostRepeats) + " times");
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(static_cast<int64_t>(k));
  }
  return rounds;
}

/// Sets the output to this value in the shape of the data.
void set_as_data(Translation& t, ValueId value) {
  t.set(0, t.add("Reshape", {value}, {{"shape", t.shape(0)}, {"allowzero", int64_t{1}}}));
}

/// Adds `sums` to the data, or sets the output to the sums alone if the data is all zeros.
void add_to_data(Translation& t, const char* op, const std::vector<ValueId>& operands,
                 const Shape& shape, int64_t axis) {
  const auto zero = [](float value) { return value == 0.0f; };
  const bool alone =
      t.is_known(0) && !t.is_trained(0) &&
      std::all_of(t.known(0, "data").reals.begin(), t.known(0, "data").reals.end(), zero);
  const bool whole = shape == t.shape(0);
  ValueId sums =
      t.add(op, operands, {{"axis", axis}, {"shape", shape}}, alone && whole ? "" : "sums");
  if (!whole) {
    sums = t.add("Reshape", {sums}, {{"shape", t.shape(0)}, {"allowzero", int64_t{1}}},
                 alone ? "" : "sums_shape");
  }
  t.set(0, alone ? sums : t.add("Add", {t.real(0), sums}));
}

/// Scatters rows. ONNX does not define which of two updates of the same row remains.
void scatter(Translation& t, const std::vector<int64_t>& targets, const Shape& as_rows) {
  const ScatterHow how = scatter_how(t.attributes().text("reduction", "none"), t.what());
  Shape update_rows = as_rows;
  update_rows[0] = static_cast<int64_t>(targets.size());
  if (element_count(t.shape(2)) != element_count(update_rows))
    throw t.error("its updates " + to_string(t.shape(2)) + " do not fit its indices");
  if (t.is_index(0) != t.is_index(2)) throw t.error("its inputs mix reals and integers");
  const ValueId updates = t.reshape(t.any(2, "updates"), update_rows, "updates");
  if (how == ScatterHow::add && !t.is_index(0) && most_repeats(targets) > kMostRepeats) {
    const ValueId rows = constant_of(t, {update_rows[0]}, targets);
    return add_to_data(t, "GatherGrad", {updates, rows}, as_rows, 0);
  }
  ValueId data = t.reshape(t.any(0), as_rows, "data");
  const std::vector<std::vector<int64_t>> rounds = rounds_of(t, targets);
  if (how == ScatterHow::replace && rounds.size() > 1)
    throw t.error("it writes the same element twice, and ONNX does not define which value stays");
  for (const std::vector<int64_t>& round : rounds) {
    std::vector<int64_t> rows;
    for (int64_t k : round) rows.push_back(targets[static_cast<size_t>(k)]);
    ValueId fresh = rounds.size() == 1 ? updates : rows_at(t, updates, round, "round");
    if (how != ScatterHow::replace) {
      const char* op = how == ScatterHow::add        ? "Add"
                       : how == ScatterHow::multiply ? "Mul"
                       : how == ScatterHow::largest  ? "Max"
                                                     : "Min";
      fresh = t.add(op, {rows_at(t, data, rows, "old"), fresh}, {}, "changed");
    }
    data = replaced(t, data, fresh, rows);
  }
  set_as_data(t, data);
}

/// How updates get to positions that are computed at run time.
enum class Computed : uint8_t {
  add,      ///< to reals
  replace,  ///< some of the reals
  reorder,  ///< each row is replaced by another one
};

/// all: there are as many updates as rows.
Computed computed_how(Translation& t, bool all) {
  const ScatterHow how = scatter_how(t.attributes().text("reduction", "none"), t.what());
  if (how == ScatterHow::replace && all) return Computed::reorder;
  const bool reals = !t.is_index(0) && !t.is_index(2);
  if (how == ScatterHow::add && reals) return Computed::add;
  if (how == ScatterHow::replace && (reals || t.type(0) == DataType::boolean))
    return Computed::replace;
  throw Error(
      t.what() + ": its indices are only known at run time",
      "scatter real numbers or booleans, with reduction = none, or reals with add; or export "
      "fixed indices");
}

/// Returns the updates in the order in which they replace all rows. An index out of range, or two
/// that are equal, become an index out of range.
ValueId reordered(Translation& t, const TupleShapes& shapes) {
  const Shape line{shapes.rows};
  if (shapes.rows > INT32_MAX / 2) throw t.error("it has too many rows");
  const ValueId rows = t.reshape(computed_rows(t, shapes, true), line, "row");
  const ValueId backward = t.add("Sub", {constant_of(t, {}, {-1}), rows}, {}, "row_from_the_last");
  const ValueId order = t.add("ArgSort", {backward}, {{"axis", int64_t{0}}}, "order");
  std::vector<int64_t> numbers(static_cast<size_t>(shapes.rows));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  const ValueId sorted = t.add("Gather", {rows, order}, {{"axis", int64_t{0}}}, "sorted");
  const ValueId wrong = t.add("Sub", {sorted, constant_of(t, line, numbers)}, {}, "not_its_row");
  const ValueId least = t.add("Max", {wrong, constant_of(t, {}, {-1})}, {}, "not_its_row_least");
  const ValueId once = t.add("Min", {least, constant_of(t, {}, {1})}, {}, "not_its_row_once");
  const ValueId beyond =
      t.add("Mul", {once, constant_of(t, {}, {2 * shapes.rows})}, {}, "out_of_range");
  const ValueId from = t.add("Add", {order, beyond}, {}, "from");
  const ValueId updates = t.reshape(t.any(2, "updates"), with_rows(shapes.rows, shapes.row), "new");
  return t.add("Gather", {updates, from}, {{"axis", int64_t{0}}}, "with_each_row_once");
}

/// Returns how often each row or element is written, as reals.
ValueId hits_of(Translation& t, const char* op, ValueId rows, const Shape& shape, int64_t axis) {
  const ValueId yes = t.add("Equal", {rows, rows}, {}, "hit");
  const ValueId ones = t.add("IndexToReal", {yes}, {}, "ones");
  return t.add(op, {ones, rows}, {{"axis", axis}, {"shape", shape}}, "hits");
}

/// Returns the updates as reals.
ValueId real_updates(Translation& t) {
  if (!t.is_index(2)) return t.real(2, "updates");
  return t.add("IndexToReal", {t.index(2)}, {}, "real_updates");
}

/// Returns the sums where something is written, and the data elsewhere. Sums of booleans are true
/// unless they are 0.
ValueId where_hit(Translation& t, ValueId hits, ValueId sums, ValueId data) {
  if (t.is_index(0)) sums = t.add("RealToIndex", {sums}, {}, "booleans");
  const ValueId written = t.add("Greater", {hits, t.graph().add_constant(0.5f)}, {}, "is_written");
  return t.add("Where", {written, sums, data}, {}, "replaced");
}

void scatter_nd(Translation& t) {
  const TupleShapes shapes(t.shape(0), t.shape(1), 0, t.what());
  const Shape as_rows = with_rows(shapes.rows, shapes.row);
  if (t.is_known(1)) return scatter(t, shapes.rows_of(t.known(1, "indices"), t.what()), as_rows);
  Shape wanted = shapes.places;
  wanted.insert(wanted.end(), shapes.row.begin(), shapes.row.end());
  if (t.shape(2) != wanted) throw t.error("its updates do not fit its indices");
  if (t.is_index(0) != t.is_index(2)) throw t.error("its inputs mix reals and integers");
  const Computed how = computed_how(t, element_count(shapes.places) == shapes.rows);
  if (how == Computed::reorder) return set_as_data(t, reordered(t, shapes));
  const ValueId updates = real_updates(t), rows = computed_rows(t, shapes, false);
  if (how == Computed::add) return add_to_data(t, "GatherGrad", {updates, rows}, as_rows, 0);
  const ValueId sums =
      t.add("GatherGrad", {updates, rows}, {{"axis", int64_t{0}}, {"shape", as_rows}}, "sums");
  const ValueId hits = hits_of(t, "GatherGrad", rows, {shapes.rows}, 0);
  const ValueId wide = t.reshape(hits, with_rows(shapes.rows, Shape(shapes.row.size(), 1)), "wide");
  set_as_data(t, where_hit(t, wide, sums, t.reshape(t.any(0), as_rows, "data")));
}

void scatter_elements(Translation& t) {
  const Shape shape = t.shape(0);
  const int64_t axis = checked_axis(t.attributes().integer("axis", 0), shape.size(), t.what());
  if (t.is_known(1)) {
    return scatter(t, elements_of(shape, t.known(1, "indices"), axis, t.what()),
                   {element_count(shape)});
  }
  if (t.shape(1) != t.shape(2)) throw t.error("its updates do not fit its indices");
  const Computed how = computed_how(t, false);
  const ValueId updates = real_updates(t), places = t.index(1);
  if (how == Computed::add)
    return add_to_data(t, "GatherElementsGrad", {updates, places}, shape, axis);
  const ValueId sums =
      t.add("GatherElementsGrad", {updates, places}, {{"axis", axis}, {"shape", shape}}, "sums");
  const ValueId hits = hits_of(t, "GatherElementsGrad", places, shape, axis);
  set_as_data(t, where_hit(t, hits, sums, t.any(0)));
}

constexpr Translator kScatterTranslators[] = {
    {"GatherND", gather_nd},
    {"ScatterND", scatter_nd},
    {"ScatterElements", scatter_elements},
    {"Scatter", scatter_elements},
};

}  // namespace

std::span<const Translator> scatter_translators() { return kScatterTranslators; }

}  // namespace halfscope::onnx_files
