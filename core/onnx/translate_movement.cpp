// SPDX-License-Identifier: MIT
// Operators that move elements.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/onnx/fold_parts.h"
#include "core/onnx/shape_rules.h"
#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

/// Reshapes input 0. `sources` has a DimensionSource for each dimension.
void to_shape(Translation& t, const Shape& shape, std::vector<int64_t> sources) {
  checked_count(shape, t.what());
  const ValueId x = t.any(0);
  t.set_reshaped(0, x, shape, std::move(sources));
}

/// Adds the shape for several samples if the target in the file depends on their number. Files that
/// write it as a plain number elsewhere give no such shape.
void expect_reshaped(Translation& t, const std::vector<int64_t>& several, bool zero_is_size) {
  SampleAxes* samples = t.importer().samples();
  if (samples == nullptr || several.empty()) return;
  Shape wanted;
  try {
    wanted = reshaped(samples->shape(t.any(0)), several, zero_is_size, t.what());
  } catch (const Error&) {
    return;
  }
  samples->expect(t.outputs()[0]->value, wanted, t.what());
}

void reshape(Translation& t) {
  const bool zero_is_size = t.attributes().integer("allowzero", 0) != 0;
  std::vector<int64_t> several;
  const std::vector<int64_t> target = t.known_shape(1, &several);
  std::vector<int64_t> sources;
  for (size_t i = 0; i < target.size(); ++i) {
    const bool open = target[i] == -1 || (i < several.size() && several[i] != target[i]);
    const bool copied = target[i] == 0 && !zero_is_size;
    sources.push_back(copied ? static_cast<int64_t>(i) : open ? kLeftOpen : kAnything);
  }
  to_shape(t, reshaped(t.shape(0), target, zero_is_size, t.what()), std::move(sources));
  expect_reshaped(t, several, zero_is_size);
}

void flatten(Translation& t) {
  const auto rank = static_cast<int64_t>(t.shape(0).size());
  const int64_t given = t.attributes().integer("axis", 1);
  const int64_t axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis > rank) throw t.error("axis is out of range");
  t.set(0, t.add("Flatten", {t.any(0)}, {{"axis", axis}}));
}

void squeeze(Translation& t) {
  const Shape from = t.shape(0);
  const std::optional<std::vector<int64_t>> given = t.ints("axes", 1);
  const std::vector<int64_t> axes =
      checked_axes(given.value_or(std::vector<int64_t>{}), from.size(), t.what());
  Shape shape;
  std::vector<int64_t> kept;
  for (size_t i = 0; i < from.size(); ++i) {
    const bool named = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (named && from[i] != 1)
      throw t.error("dimension " + std::to_string(i) + " of " + to_string(from) + " is not 1");
    if (named || (!given && from[i] == 1)) continue;
    shape.push_back(from[i]);
    kept.push_back(static_cast<int64_t>(i));
  }
  to_shape(t, shape, std::move(kept));
}

void unsqueeze(Translation& t) {
  const auto axes = t.ints("axes", 1);
  if (!axes) throw t.error("its axes are missing");
  const Shape from = t.shape(0);
  std::vector<int64_t> sources(from.size() + axes->size(), 0);
  for (const int64_t axis : checked_axes(*axes, sources.size(), t.what()))
    sources[static_cast<size_t>(axis)] = kAdded;
  int64_t next = 0;
  for (int64_t& source : sources) {
    if (source != kAdded) source = next++;
  }
  to_shape(t, unsqueezed(from, *axes, t.what()), std::move(sources));
}

void transpose(Translation& t) {
  std::vector<int64_t> order(t.shape(0).size());
  std::iota(order.rbegin(), order.rend(), int64_t{0});
  order = checked_axes(t.attributes().ints("perm", order), t.shape(0).size(), t.what());
  if (order.size() != t.shape(0).size()) throw t.error("its perm does not fit the input");
  t.set(0, t.add("Transpose", {t.any(0)}, {{"perm", order}}));
}

void concat(Translation& t) {
  std::vector<ValueId> inputs;
  const bool integers = t.computes_integers(0, t.input_count());
  for (size_t i = 0; i < t.input_count(); ++i) {
    // Skip empty parts, such as an empty cache.
    if (element_count(t.shape(i)) == 0) continue;
    if (integers && !t.is_index(i)) throw t.error("its inputs mix reals and integers");
    inputs.push_back(integers ? t.index(i) : t.real(i));
  }
  if (inputs.empty()) throw t.error("its input has no elements");
  const int64_t axis =
      checked_axis(t.attributes().integer("axis", 0), t.shape_of(inputs[0]).size(), t.what());
  t.set(0,
        inputs.size() == 1 ? t.add("Identity", inputs) : t.add("Concat", inputs, {{"axis", axis}}));
}

/// Returns whether a slice of a whole dimension uses explicit bounds, such as [0:1] or [-1:]. Such
/// a slice would take only part of a dimension of another size.
bool names_end(const SliceArguments& arguments, size_t axis, const Shape& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  for (size_t k = 0; k < arguments.starts.size() && k < arguments.ends.size(); ++k) {
    const int64_t named = arguments.axes ? arguments.axes->at(k) : static_cast<int64_t>(k);
    if ((named < 0 ? named + rank : named) != static_cast<int64_t>(axis)) continue;
    return arguments.starts[k] != 0 || arguments.ends[k] <= shape[axis];
  }
  return false;
}

void slice(Translation& t) {
  SliceArguments arguments;
  if (t.opset() < 10) {
    arguments = {t.attributes().ints("starts", {}), t.attributes().ints("ends", {}),
                 t.attributes().ints("axes"), std::nullopt};
  } else {
    arguments = {t.known_ints(1, "starts"), t.known_ints(2, "ends"), std::nullopt, std::nullopt};
    if (t.has(3)) arguments.axes = t.known_ints(3, "axes");
    if (t.has(4)) arguments.steps = t.known_ints(4, "steps");
  }
  const Shape from = t.shape(0);
  const std::vector<SliceAxis> ranges = slice_ranges(arguments, from, t.what());
  const ValueId x = t.any(0);
  std::vector<int64_t> starts, ends, axes, steps;
  bool nothing = false;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const SliceAxis& range = ranges[i];
    if (range.count == from[i] && range.step == 1) {
      if (t.importer().samples() != nullptr && names_end(arguments, i, from))
        t.importer().samples()->picked(x, i, t.what());
      continue;
    }
    nothing = nothing || range.count == 0;
    axes.push_back(static_cast<int64_t>(i));
    starts.push_back(range.start);
    steps.push_back(range.step);
    const int64_t end = range.start + range.step * (range.count - 1) + (range.step > 0 ? 1 : -1);
    // The end is before the first element; -1 would mean the last one.
    ends.push_back(end < 0 ? std::numeric_limits<int32_t>::min() : end);
  }
  if (nothing) {  // for example after partial rotary embeddings; a Concat skips it
    KnownTensor empty{.type = t.type(0), .shape = from};
    for (size_t i = 0; i < ranges.size(); ++i) empty.shape[i] = ranges[i].count;
    t.set_known(0, std::move(empty));
    return;
  }
  t.set(0, axes.empty()
               ? t.add("Identity", {x})
               : t.add("Slice", {x},
                       {{"starts", starts}, {"ends", ends}, {"axes", axes}, {"steps", steps}}));
}

void split(Translation& t) {
  const Shape shape = t.shape(0);
  const int64_t axis = checked_axis(t.attributes().integer("axis", 0), shape.size(), t.what());
  const std::vector<int64_t> sizes = split_sizes(t.ints("split", 1), t.node().output_size(),
                                                 shape[static_cast<size_t>(axis)], t.what());
  const std::vector<ValueId> parts =
      t.add_all("Split", {t.any(0)}, {{"axis", axis}, {"split", sizes}});
  for (size_t k = 0; k < parts.size(); ++k) {
    // Nothing reads a part without elements.
    if (sizes[k] > 0) t.set(k, parts[k]);
  }
}

/// Returns the source row for each row of a padded axis, for the modes that repeat existing rows.
std::vector<int64_t> padded_rows(Translation& t, const std::string& mode, int64_t size,
                                 int64_t before, int64_t after) {
  std::vector<int64_t> rows;
  if (size == 0 || (mode == "reflect" && (before >= size || after >= size)))
    throw t.error("its pads are larger than the input");
  for (int64_t i = -before; i < size + after; ++i) {
    if (mode == "edge") {
      rows.push_back(std::clamp<int64_t>(i, 0, size - 1));
    } else if (mode == "wrap") {
      rows.push_back((i % size + size) % size);
    } else {
      const int64_t at = i < 0 ? -i : i;
      rows.push_back(at < size ? at : 2 * (size - 1) - at);
    }
  }
  return rows;
}

void pad(Translation& t) {
  const Shape shape = t.shape(0);
  const size_t rank = shape.size();
  std::vector<int64_t> given = t.ints("pads", 1).value_or(std::vector<int64_t>{});
  given = bounded(t, given, -(int64_t{1} << 30), int64_t{1} << 30, "a pad");
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), int64_t{0});
  if (t.has(3)) axes = checked_axes(t.known_ints(3, "axes"), rank, t.what());
  if (given.size() != 2 * axes.size()) throw t.error("its pads do not fit the input");
  std::vector<int64_t> pads(2 * rank, 0);
  Shape result = shape;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(axes[i]);
    pads[axis] = given[i];
    pads[axis + rank] = given[i + axes.size()];
    result[axis] += pads[axis] + pads[axis + rank];
  }
  checked_count(result, t.what());
  const std::string mode = t.attributes().text("mode", "constant");
  if (mode == "constant") {
    double value = t.attributes().real("value", 0.0);
    if (t.has(2)) value = t.known_scalar(2, "value");
    Attributes attributes{{"pads", pads}};
    if (value != 0.0) attributes["value"] = value;
    t.set(0, t.add("Pad", {t.any(0)}, attributes));
    return;
  }
  if (mode != "reflect" && mode != "edge" && mode != "wrap")
    throw t.error("the mode '" + mode + "' is not supported");
  ValueId y = t.any(0);
  for (size_t axis = 0; axis < rank; ++axis) {
    if (pads[axis] == 0 && pads[axis + rank] == 0) continue;
    if (pads[axis] < 0 || pads[axis + rank] < 0)
      throw t.error("negative pads are not supported in this mode");
    y = gather_rows(t, y, static_cast<int64_t>(axis),
                    padded_rows(t, mode, shape[axis], pads[axis], pads[axis + rank]),
                    "axis" + std::to_string(axis));
  }
  t.set(0, t.add("Identity", {y}));
}

void expand(Translation& t) {
  std::vector<int64_t> several;
  const std::vector<int64_t> wanted = t.known_shape(1, &several);
  const Shape shape = broadcast_of(t.shape(0), wanted, t.what());
  checked_count(shape, t.what());
  const ValueId x = t.any(0);
  const ValueId y = t.add("Expand", {x}, {{"shape", shape}});
  t.set(0, y);
  SampleAxes* samples = t.importer().samples();
  if (samples == nullptr || several.empty()) return;
  try {
    samples->expect(y, broadcast_of(samples->shape(x), several, t.what()), t.what());
  } catch (const Error&) {
    samples->refuse(t.what(), "it cannot expand several samples to its shape");
  }
}

/// Reshapes every dimension d to [1, d] and expands it to [repeats, d].
void tile(Translation& t) {
  const Shape shape = t.shape(0);
  const std::vector<int64_t> repeats =
      bounded(t, t.known_ints(1, "repeats"), 1, int64_t{1} << 30, "a repeat");
  if (repeats.size() != shape.size()) throw t.error("its repeats do not fit the input");
  Shape split, wide, result;
  std::vector<int64_t> sources;
  for (size_t i = 0; i < shape.size(); ++i) {
    sources.insert(sources.end(), {kAdded, static_cast<int64_t>(i)});
    split.insert(split.end(), {1, shape[i]});
    wide.insert(wide.end(), {repeats[i], shape[i]});
    checked_count({repeats[i], shape[i]}, t.what());
    result.push_back(repeats[i] * shape[i]);
  }
  checked_count(result, t.what());
  const ValueId parts = t.reshape(t.any(0), split, "split", sources);
  const ValueId copies = t.add("Expand", {parts}, {{"shape", wide}}, "copies");
  t.set(0, t.add("Reshape", {copies}, {{"shape", result}, {"allowzero", int64_t{1}}}));
}

void gather(Translation& t) {
  const Shape shape = t.shape(0);
  const int64_t axis = checked_axis(t.attributes().integer("axis", 0), shape.size(), t.what());
  const ValueId x = t.any(0);
  if (t.is_known(1)) {
    const std::vector<int64_t> indices = t.known_ints(1, "indices");
    for (int64_t index : indices) {
      const int64_t size = shape[static_cast<size_t>(axis)];
      if (index < -size || index >= size)
        throw t.error("index " + std::to_string(index) + " is out of range for size " +
                      std::to_string(size));
    }
    if (axis == 0 && set_rows_of_each_sample(t, x, t.shape(1), indices)) return;
  }
  t.set(0, t.add("Gather", {x, t.index(1)}, {{"axis", axis}}));
}

/// Reverses the first elements of every sample along the axis of time, as many as its length says.
void reverse_sequence(Translation& t) {
  const Shape shape = t.shape(0);
  if (shape.size() < 2) throw t.error("its input needs two dimensions, samples and time");
  const int64_t samples = t.attributes().integer("batch_axis", 1);
  const int64_t time = t.attributes().integer("time_axis", 0);
  if (samples < 0 || samples > 1 || time != 1 - samples)
    throw t.error("batch_axis and time_axis must be 0 and 1, or 1 and 0");
  const std::vector<int64_t> lengths = t.known_ints(1, "sequence_lens");
  const int64_t count = shape[static_cast<size_t>(samples)];
  const int64_t steps = shape[static_cast<size_t>(time)];
  if (static_cast<int64_t>(lengths.size()) != count)
    throw t.error("it needs one length for each of its " + std::to_string(count) + " samples");
  bounded(t, lengths, 0, steps, "a sequence length");
  const auto source = [](int64_t step, int64_t length) {
    return step < length ? length - 1 - step : step;
  };
  const ValueId x = t.any(0);
  if (std::adjacent_find(lengths.begin(), lengths.end(), std::not_equal_to<>()) == lengths.end()) {
    std::vector<int64_t> rows;
    for (int64_t step = 0; step < steps && count > 0; ++step)
      rows.push_back(source(step, lengths[0]));
    t.set(0, count == 0 ? t.add("Identity", {x}) : gather_rows(t, x, time, rows, ""));
    return;
  }
  const int64_t all = element_count(shape), row = all / (count * steps);
  std::vector<int32_t> indices;
  indices.reserve(static_cast<size_t>(all));
  for (int64_t i = 0; i < all; ++i) {
    const int64_t outer = i / row / shape[1], inner = i / row % shape[1];
    const int64_t sample = samples == 0 ? outer : inner;
    indices.push_back(static_cast<int32_t>(
        source(samples == 0 ? inner : outer, lengths[static_cast<size_t>(sample)])));
  }
  const ValueId index = t.graph().add_index_constant(shape, std::move(indices));
  t.set(0, t.add("GatherElements", {x, index}, {{"axis", time}}));
}

void gather_elements(Translation& t) {
  const int64_t axis = checked_axis(t.attributes().integer("axis", 0), t.shape(0).size(), t.what());
  const ValueId x = t.any(0);
  t.set(0, t.add("GatherElements", {x, t.index(1)}, {{"axis", axis}}));
}

void identity(Translation& t) { t.set(0, t.add("Identity", {t.any(0)})); }

/// In training mode, drops elements while the network trains; else passes everything through.
void dropout(Translation& t) {
  const bool trains = t.has(2) && t.known_scalar(2, "training_mode") != 0.0;
  if (!trains) {
    t.importer().note("dropout is left out, as in inference");
    return identity(t);
  }
  const double ratio = t.has(1) ? t.known_scalar(1, "ratio") : 0.5;
  if (!(ratio >= 0.0 && ratio <= 1.0)) throw t.error("its ratio must be from 0 to 1");
  t.set(0, t.add("Dropout", {t.real(0)}, {{"ratio", ratio}, {"training_mode", int64_t{1}}}));
}

void cast(Translation& t) { cast_to(t, static_cast<DataType>(t.attributes().integer("to", 0))); }

/// Casts to the type of another input, whose values do not matter.
void cast_like(Translation& t) {
  const DataType to = t.type(1);
  const bool variable = t.is_trained(0);
  if (!t.is_known(0) || variable) return cast_to(t, to);
  t.set_known(0, converted(t.known(0, "input"), to, t.what()));
}

/// Returns whether the position in a block comes before the channel (DCR) or after it (CRD).
bool is_deep(Translation& t) {
  const std::string mode = t.attributes().text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") throw t.error("the mode '" + mode + "' is not supported");
  return mode == "DCR";
}

void depth_to_space(Translation& t) {
  const Shape shape = t.shape(0);
  const int64_t block = t.attributes().integer("blocksize", 0);
  if (shape.size() != 4 || block < 1 || block > 1024 || shape[1] % (block * block) != 0)
    throw t.error("its block size does not fit " + to_string(shape));
  const int64_t n = shape[0], c = shape[1] / (block * block), h = shape[2], w = shape[3];
  const bool deep = is_deep(t);
  const ValueId split =
      t.reshape(t.real(0), deep ? Shape{n, block, block, c, h, w} : Shape{n, c, block, block, h, w},
                "split", {0, kAnything, kAnything, kAnything, kAnything, kAnything});
  const std::vector<int64_t> order =
      deep ? std::vector<int64_t>{0, 3, 4, 1, 5, 2} : std::vector<int64_t>{0, 1, 4, 2, 5, 3};
  const ValueId moved = t.add("Transpose", {split}, {{"perm", order}}, "move");
  t.set(0, t.reshape(moved, {n, c, h * block, w * block}, "", {0, 1, kAnything, kAnything}));
}

void space_to_depth(Translation& t) {
  const Shape shape = t.shape(0);
  const int64_t block = t.attributes().integer("blocksize", 0);
  if (shape.size() != 4 || block < 1 || shape[2] % block != 0 || shape[3] % block != 0)
    throw t.error("its block size does not fit " + to_string(shape));
  const int64_t n = shape[0], c = shape[1], h = shape[2] / block, w = shape[3] / block;
  const ValueId split = t.reshape(t.real(0), {n, c, h, block, w, block}, "split",
                                  {0, 1, kAnything, kAnything, kAnything, kAnything});
  const bool deep = is_deep(t);
  const std::vector<int64_t> order =
      deep ? std::vector<int64_t>{0, 3, 5, 1, 2, 4} : std::vector<int64_t>{0, 1, 3, 5, 2, 4};
  const ValueId moved = t.add("Transpose", {split}, {{"perm", order}}, "move");
  t.set(0,
        t.reshape(moved, {n, c * block * block, h, w}, "", {0, kAnything, kAnything, kAnything}));
}

constexpr Translator kMovementTranslators[] = {
    {"Reshape", reshape},
    {"Flatten", flatten},
    {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze},
    {"Transpose", transpose},
    {"Concat", concat},
    {"Slice", slice},
    {"Split", split},
    {"Pad", pad},
    {"Expand", expand},
    {"Tile", tile},
    {"Gather", gather},
    {"GatherElements", gather_elements},
    {"ReverseSequence", reverse_sequence},
    {"Identity", identity},
    {"Dropout", dropout},
    {"Cast", cast},
    {"CastLike", cast_like},
    {"DepthToSpace", depth_to_space},
    {"SpaceToDepth", space_to_depth},
};

}  // namespace

/// Casts between real types only mark the rounding, because the plan rounds (see
/// OnnxImport::types). Casts between integers do nothing.
void cast_to(Translation& t, DataType to) {
  if (is_real(to) && !t.is_index(0)) {
    if (to == t.type(0) && !t.is_known(0)) {
      t.set(0, t.real(0));
      return;
    }
    t.set_type(to);
    t.set(0, t.add("Identity", {t.rounded_real(0)}));
    // Statistics stored in a narrow type must still be known after their Cast.
    if (to == DataType::float32 && t.is_known(0)) t.set_start(0, 0);
    return;
  }
  const bool boolean = t.type(0) == DataType::boolean;
  if (to == DataType::boolean && !boolean) {  // true if not zero
    const ValueId zero =
        t.is_index(0) ? t.add("Not", {t.index(0)}, {}, "zero")
                      : t.add("Equal", {t.real(0), t.graph().add_constant(0.0f)}, {}, "zero");
    t.set_boolean(0, t.add("Not", {zero}));
    return;
  }
  if (is_real(to) && boolean) {
    t.set_type(to);
    const ValueId one = t.graph().add_constant(1.0f), zero = t.graph().add_constant(0.0f);
    t.set(0, t.add("Where", {t.index(0), one, zero}));
    return;
  }
  if (is_real(to)) {
    t.set_type(to);
    t.set(0, t.add("IndexToReal", {t.index(0)}));
    return;
  }
  // Our integers have 32 bits. Casts to fewer bits or to unsigned types would have to wrap.
  const bool wide = to == DataType::int32 || to == DataType::int64;
  const bool keeps = t.is_index(0) && (boolean || to == t.type(0));
  if (!is_integer(to) || !(wide || keeps))
    throw t.error("a cast to " + type_name(to) + " at run time is not supported");
  ValueId value = kNone;
  if (!t.is_index(0)) {
    value = t.add("RealToIndex", {t.real(0)});
  } else if (boolean && to != DataType::boolean) {
    const ValueId one = t.graph().add_index_constant({}, {1});
    value = t.add("Where", {t.index(0), one, t.graph().add_index_constant({}, {0})});
  } else {
    value = t.index(0);
  }
  t.set_integers(0, value, to);
}

std::span<const Translator> movement_translators() { return kMovementTranslators; }

}  // namespace halfscope::onnx_files
