// SPDX-License-Identifier: MIT
// QuantizeLinear and DequantizeLinear, in real arithmetic on whole numbers:
//
//   QuantizeLinear(x, scale, zero)    Clip(Round(x / scale) + zero), whatever the plan
//   DequantizeLinear(q, scale, zero)  (q - zero) * scale; of known codes, fold_movement.cpp
//
// The gradient passes through the rounding and stops where the Clip cuts off, as in PyTorch's fake
// quantization: the derivative of the rounding is zero, and nothing before it would train.
//
// 8-bit floats are only divided and multiplied. The type of the quotient says how the file rounds
// it, and the plan as_exported rounds to that type, as it does for a Cast.
#include <optional>
#include <utility>

#include "core/onnx/translate.h"
#include "core/ops/straight_through.h"

namespace halfscope::onnx_files {
namespace {

struct Range {
  double lowest = 0.0, highest = 0.0;
};

std::optional<Range> range_of(DataType type) {
  switch (type) {
    case DataType::int8:
      return Range{-128.0, 127.0};
    case DataType::uint8:
      return Range{0.0, 255.0};
    case DataType::int4:
      return Range{-8.0, 7.0};
    case DataType::uint4:
      return Range{0.0, 15.0};
    case DataType::int16:
      return Range{-32768.0, 32767.0};
    case DataType::uint16:
      return Range{0.0, 65535.0};
    default:
      return std::nullopt;
  }
}

void check_blocks(const Translation& t) {
  if (t.attributes().integer("block_size", 0) == 0) return;
  throw t.error("scales for blocks of one axis are not supported");
}

/// The axis that a list of scales runs along, for operand 0.
size_t scale_axis(const Translation& t) {
  const auto rank = static_cast<int64_t>(t.shape(0).size());
  const int64_t given = t.attributes().integer("axis", 1), axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis >= rank) throw t.error("axis " + std::to_string(given) + " is out of range");
  return static_cast<size_t>(axis);
}

/// The shape in which input i, a number or a list along the axis, broadcasts with operand 0.
Shape broadcast_shape(const Translation& t, size_t i) {
  const Shape own = t.shape(i);
  if (element_count(own) == 1) return {};
  const size_t axis = scale_axis(t);
  if (own.size() != 1 || own[0] != t.shape(0)[axis]) {
    throw t.error("a scale or zero point of shape " + to_string(own) + " does not fit its input");
  }
  Shape shape(t.shape(0).size(), 1);
  shape[axis] = own[0];
  return shape;
}

/// A known input i as real numbers.
ValueId known_numbers(Translation& t, size_t i, const char* name) {
  const KnownTensor& known = t.known(i, name);
  Tensor numbers{broadcast_shape(t, i), {}};
  for (int64_t at = 0; at < known.count(); ++at) {
    numbers.data.push_back(static_cast<float>(known.number(at)));
  }
  return t.graph().add_constant(std::move(numbers));
}

ValueId scale(Translation& t) {
  if (t.is_known(1)) return known_numbers(t, 1, "scale");
  return t.reshape(t.real(1, "scale"), broadcast_shape(t, 1), "scale");
}

/// The zero point; kNone if it is zero.
ValueId zero_point(Translation& t) {
  if (!t.has(2)) return kNone;
  const KnownTensor& known = t.known(2, "zero point");
  for (int64_t at = 0; at < known.count(); ++at) {
    if (known.number(at) != 0.0) return known_numbers(t, 2, "zero point");
  }
  return kNone;
}

DataType type_of_codes(const Translation& t) {
  if (t.has(2)) return t.type(2);
  const int64_t given = t.attributes().integer("output_dtype", 0);
  return given == 0 ? DataType::uint8 : DataType{static_cast<int32_t>(given)};
}

void quantize_linear(Translation& t) {
  check_blocks(t);
  const DataType type = type_of_codes(t);
  if (is_real(type)) {
    t.set_type(type);
    const int64_t saturates = t.attributes().integer("saturate", 1);
    t.set(0, t.add("Div", {t.real(0), scale(t)}, {{kComputesCodes, saturates}}));
    return;
  }
  const std::optional<Range> range = range_of(type);
  if (!range) throw t.error("codes of " + type_name(type) + " are not supported");
  ValueId codes = t.add_step("Div", {t.real(0), scale(t)}, {}, "scaled");
  codes = t.add_step("Round", {codes}, {{kStraightThrough, int64_t{1}}}, "rounded");
  if (const ValueId zero = zero_point(t); zero != kNone) {
    codes = t.add_step("Add", {codes, zero}, {}, "shifted");
  }
  t.set(0, t.add("Clip", {codes}, {{"min", range->lowest}, {"max", range->highest}}));
}

void dequantize_linear(Translation& t) {
  check_blocks(t);
  ValueId codes = t.is_index(0) ? t.add("IndexToReal", {t.index(0)}, {}, "codes") : t.real(0);
  if (const ValueId zero = zero_point(t); zero != kNone) {
    codes = t.add_step("Sub", {codes, zero}, {}, "shifted");
  }
  const int64_t type = t.attributes().integer("output_dtype", 0);
  t.set_type(type == 0 ? t.type(1) : DataType{static_cast<int32_t>(type)});
  t.set(0, t.add("Mul", {codes, scale(t)}));
}

constexpr Translator kQuantizeTranslators[] = {
    {"QuantizeLinear", quantize_linear},
    {"DequantizeLinear", dequantize_linear},
};

}  // namespace

std::span<const Translator> quantize_translators() { return kQuantizeTranslators; }

}  // namespace halfscope::onnx_files
