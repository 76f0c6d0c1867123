// SPDX-License-Identifier: MIT
// The parts of Exporter that write scaled operands as QuantizeLinear and DequantizeLinear. The
// product between them computes in float32 on the values of the codes, which runtimes turn into a
// product of codes:
//
//   activations      QuantizeLinear with a known scale, DequantizeLinear. Codes of integers are
//                    symmetric here, while QuantizeLinear goes one code lower (-128, -8). A
//                    Clip before it prevents that, unless no value can be negative
//   weights          an initializer of codes, DequantizeLinear with one scale or one per channel
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "core/bodies/scaling.h"
#include "core/error.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/scaling/block_format.h"
#include "core/numeric/scaling/tensor_scaling.h"
#include "core/onnx/exporter.h"
#include "core/ops/movement.h"
#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

/// Returns the type of codes in a format. Throws Error naming `what` if ONNX has none.
DataType code_type(FloatFormat format, const std::string& what) {
  format.saturate = false;
  if (format == kInt8Format) return DataType::int8;
  if (format == kInt4Format) return DataType::int4;
  const DataType type = needed_type(format, what);
  if (is_float8(type)) return type;
  throw Error(what + ": ONNX cannot quantize to " + format_name(format),
              "use int8, int4 or an 8-bit float in the plan");
}

KnownTensor tensor_of_codes(DataType type, Shape shape, std::vector<float> codes) {
  KnownTensor tensor{.type = type, .shape = std::move(shape)};
  if (is_integer(type)) {
    for (const float code : codes) tensor.ints.push_back(static_cast<int64_t>(code));
  } else {
    tensor.reals = std::move(codes);
  }
  return tensor;
}

/// Returns the number by which values are divided, for a scale that the file can express.
std::optional<float> static_divisor(const TensorScale& choice) {
  if (choice.kind == TensorScale::Kind::divided) return choice.factor;
  // Dividing by the inverse of a power of two is exact, too.
  int exponent = 0;
  const bool power = std::frexp(choice.factor, &exponent) == 0.5f;
  const float inverse = 1 / choice.factor;
  const bool normal = inverse >= std::numeric_limits<float>::min() && std::isfinite(inverse);
  if (choice.kind == TensorScale::Kind::fixed && power && normal) return inverse;
  return std::nullopt;
}

/// Operators without negative results, and those without them if no operand has any.
constexpr std::string_view kNeverNegative[] = {"Abs",     "Exp",     "HardSigmoid", "Relu",
                                               "Sigmoid", "Softmax", "Softplus",    "Sqrt"};
constexpr std::string_view kKeepsNegative[] = {
    "Add",     "AveragePool", "Cast",      "GlobalAveragePool", "Max",
    "MaxPool", "Mul",         "ReduceMax", "ReduceMean",        "ReduceSum"};

/// Returns whether a value certainly has no negative element.
bool never_negative(const Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  if (producer == kNone) return false;
  const Node& node = graph.node(producer);
  const auto is = [&](std::span<const std::string_view> list) {
    return std::find(list.begin(), list.end(), node.op) != list.end();
  };
  if (is(kNeverNegative)) return true;
  if (node.op == "Clip" && real_attribute(node, "min", -1.0) >= 0.0) return true;
  const OpDef& def = find_op(node.op);
  if (def.movement != nullptr && movement_of(graph, node).fill.value_or(0.0) < 0.0) return false;
  return (is(kKeepsNegative) || def.view || def.movement != nullptr || node.op == "Clip") &&
         std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
           return input == kNone || graph.value(input).type != ElementType::real ||
                  never_negative(graph, input);
         });
}

}  // namespace

struct Exporter::Codes {
  std::vector<float> codes, scales;
  int64_t axis = -1;  ///< of the scales, if there are several
};

/// Returns whether the value is a weight or constant, or such values in another order: a transposed
/// weight, or the part of it for one direction of an LSTM. Scaled operands read their codes from
/// an initializer.
bool Exporter::is_known(ValueId value) const {
  if (is_source(value)) return true;
  const Value& of = graph_.value(value);
  if (of.producer == kNone || of.type != ElementType::real) return false;
  const Node& node = graph_.node(of.producer);
  const OpDef& def = find_op(node.op);
  const bool copies = (def.view && node.inputs.size() == 1) || def.movement != nullptr;
  const bool rounds = node.op == "Cast" && of.rounding.mode == RoundingMode::nearest_even;
  return (copies || rounds) && std::all_of(node.inputs.begin(), node.inputs.end(),
                                           [&](ValueId input) { return is_known(input); });
}

/// Returns whether only scaled operands read what a node makes, so that their codes replace it.
bool Exporter::becomes_codes(const Node& node) const {
  bool read = false;
  for (const ValueId output : node.outputs) {
    if (outputs_.contains(output) || !is_known(output)) return false;
    for (const Node& reader : graph_.nodes()) {
      if (std::find(reader.inputs.begin(), reader.inputs.end(), output) == reader.inputs.end()) {
        continue;
      }
      if (reader.op != "Quantize" && !becomes_codes(reader)) return false;
      read = true;
    }
  }
  return read;
}

/// Returns the elements of a known value that a node has copied from others.
std::vector<float> Exporter::copied_values(ValueId value) const {
  const Value& of = graph_.value(value);
  const Node& node = graph_.node(of.producer);
  if (find_op(node.op).movement == nullptr) return source_values(node.inputs[0]).reals;
  const auto output = static_cast<size_t>(
      std::find(node.outputs.begin(), node.outputs.end(), value) - node.outputs.begin());
  const Movement movement = movement_of(graph_, node);
  std::vector<float> copied(static_cast<size_t>(element_count(of.shape)),
                            static_cast<float>(movement.fill.value_or(0.0)));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const std::vector<float> from = source_values(node.inputs[i]).reals;
    for (const BoxCopy& box : movement.boxes) {
      if (box.input != i || box.output != output) continue;
      copy_box(box, std::span<const float>(from), std::span<float>(copied));
    }
  }
  return copied;
}

std::optional<Exporter::Codes> Exporter::known_codes(const Node& node) const {
  const ValueId value = node.inputs[0];
  if (!is_known(value)) return std::nullopt;
  const TensorScale& choice = node.plan.scale;
  const FloatFormat& code = node.plan.write;
  const KnownTensor source = source_values(value);
  Codes result{.codes = source.reals, .scales = {}};
  if (choice.kind == TensorScale::Kind::channel) {
    const BlockShape shape = block_shape(node, source.shape);
    result.axis = shape.inner == 1 ? int_attribute(node, "axis", 0) - 1
                                   : static_cast<int64_t>(source.shape.size()) - 1;
    const bool one_axis =
        result.axis < 0 || shape.outer == 1 || (shape.inner == 1 && shape.outer == source.shape[0]);
    if (!one_axis) return std::nullopt;
    const BlockFormat format = block_format(node);
    result.scales.resize(static_cast<size_t>(block_count(shape, format)));
    block_scales(source.reals, shape, format, result.scales);
    const auto row = static_cast<size_t>(shape.length * shape.inner);
    const auto inner = static_cast<size_t>(shape.inner);
    for (size_t i = 0; i < result.codes.size(); ++i) {
      const float scale = result.scales[i / row * inner + i % inner];
      result.codes[i] = code_by_quotient(result.codes[i], scale);
    }
  } else if (choice.kind == TensorScale::Kind::divided || choice.kind == TensorScale::Kind::fixed ||
             choice.kind == TensorScale::Kind::current) {
    const float factor = tensor_factor(choice, code, largest_magnitude(source.reals), 0.0f);
    result.scales = {undone(choice, factor)};
    for (float& each : result.codes) {
      each = choice.kind == TensorScale::Kind::divided ? code_by_quotient(each, factor)
                                                       : each * factor;
    }
  } else {
    return std::nullopt;
  }
  for (float& each : result.codes) each = round_to_format(each, code).value;
  return result;
}

void Exporter::name_values(ValueId codes, const std::string& name) {
  names_[codes] = name;
  types_[codes] = DataType::float32;
}

void Exporter::add_quantize(const Node& node) {
  const ValueId value = node.inputs[0];
  const DataType type = code_type(node.plan.write, node.path);
  if (graph_.value(node.outputs[0]).rounding.mode != RoundingMode::nearest_even) {
    throw Error(node.path + ": ONNX can only round codes to nearest",
                "remove the rounding from the plan");
  }
  const std::optional<Codes> known = known_codes(node);
  const std::optional<float> divisor = static_divisor(node.plan.scale);
  if (!known && !divisor) {
    throw Error(node.path + ": ONNX cannot express how the scale of its operands is computed",
                "halfscope quantize makes a plan with static scales");
  }
  compute_ = DataType::float32;
  const Variable* const variable = graph_.variable_of(value);
  const std::string stem = variable == nullptr       ? node.path
                           : variable->alias.empty() ? variable->path
                                                     : variable->alias;
  KnownTensor scales{.reals = known ? known->scales : std::vector<float>{*divisor}};
  const bool several = known && known->axis >= 0 && scales.reals.size() > 1;
  if (several) scales.shape = {static_cast<int64_t>(scales.reals.size())};
  const std::string scale = fresh(stem + "_scale"), zero = fresh(stem + "_zero_point");
  add_initializer(scales, scale);
  add_initializer(
      tensor_of_codes(type, scales.shape, std::vector<float>(several ? scales.reals.size() : 1)),
      zero);
  const std::string codes = fresh(stem + "_" + type_name(type));
  if (known) {
    add_initializer(tensor_of_codes(type, graph_.value(value).shape, known->codes), codes);
  } else {
    std::string from = name_of(value);
    if (is_integer(type) && !never_negative(graph_, value)) {
      const double lowest = -node.plan.write.max_finite() * static_cast<double>(*divisor);
      const std::string clipped = fresh(stem + "_clipped");
      add("Clip", clipped, {from, scalar(node, "lowest", lowest)}, {clipped});
      from = clipped;
    }
    add("QuantizeLinear", codes, {from, scale, zero}, {codes});
  }
  const std::string values = fresh(codes + "_values");
  ::onnx::NodeProto& back = add("DequantizeLinear", values, {codes, scale, zero}, {values});
  if (several) set_attribute(back, "axis", known->axis);
  name_values(node.outputs[0], values);
}

}  // namespace halfscope::onnx_files
