// SPDX-License-Identifier: MIT
// The parts of Exporter that write strongly typed files: which type an operator computes in, and
// where Casts convert between types. An ONNX operator reads and writes the same type, but a plan's
// node may use two:
//
//   reads and writes fp16    the operator in FLOAT16
//   reads fp16, writes fp32  Casts to FLOAT, the operator in FLOAT
//   reads fp32, writes fp16  the operator in FLOAT, a Cast to FLOAT16
#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/lower/execution.h"
#include "core/lower/narrow.h"
#include "core/numeric/formats/round.h"
#include "core/onnx/exporter.h"
#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

/// Returns the narrowest type that operators compute in and that has all values of these formats.
DataType common_type(const std::vector<FloatFormat>& formats) {
  constexpr std::array<DataType, 2> kNarrow{DataType::float16, DataType::bfloat16};
  for (DataType type : kNarrow) {
    const FloatFormat format = *format_of(type);
    if (!formats.empty() && std::all_of(formats.begin(), formats.end(),
                                        [&](const auto& each) { return format.contains(each); })) {
      return type;
    }
  }
  return DataType::float32;
}

bool is_rounded_to(const FloatFormat& format, const std::vector<float>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [&](float number) {
    return std::isnan(number) || round_to_format(number, format).value == number;
  });
}

void check_rounding(const Graph& graph, ValueId value) {
  const Value& of = graph.value(value);
  if (of.rounding.mode == RoundingMode::nearest_even) return;
  throw Error(graph.node(of.producer).path + ": ONNX can only round to nearest, not " +
              rounding_name(of.rounding));
}

}  // namespace

bool Exporter::is_source(ValueId value) const {
  if (rounded_sources_.contains(value) || graph_.variable_of(value) != nullptr) {
    return true;
  }
  return std::any_of(graph_.constants().begin(), graph_.constants().end(),
                     [&](const Constant& constant) { return constant.value == value; });
}

KnownTensor Exporter::source_values(ValueId value) const {
  KnownTensor tensor;
  if (const auto of = rounded_sources_.find(value); of != rounded_sources_.end()) {
    tensor = source_values(of->second);
  } else if (const Variable* variable = graph_.variable_of(value)) {
    const Tensor& weights = weight(*variable);
    tensor = {.shape = weights.shape, .reals = weights.data};
  } else if (graph_.value(value).producer != kNone) {
    tensor = {.shape = graph_.value(value).shape, .reals = copied_values(value)};
  } else {
    for (const Constant& constant : graph_.constants()) {
      if (constant.value != value) continue;
      return {.shape = constant.tensor.shape, .reals = constant.tensor.data};
    }
  }
  const FloatFormat& format = graph_.value(value).format;
  if (format == kFp32) return tensor;
  for (float& number : tensor.reals) number = round_to_format(number, format).value;
  return tensor;
}

std::string Exporter::typed_name(ValueId value, DataType type) {
  has_bfloat16_ |= type == DataType::bfloat16;
  const auto own = types_.find(value);
  if (own != types_.end() && own->second == type) return names_.at(value);
  std::string& name = copies_[{value, type}];
  if (!name.empty()) return name;
  if (own != types_.end()) {
    const std::string& from = names_.at(value);
    name = add_cast(from, fresh(from + "_" + type_name(type)), *format_of(type));
    return name;
  }
  if (!is_source(value))
    throw Error("value " + std::to_string(value) +
                " is not an input, variable, constant or node output, so it cannot be exported");
  ValueId first = value;
  while (rounded_sources_.contains(first)) first = rounded_sources_.at(first);
  const Variable* variable = graph_.variable_of(first);
  std::string wanted = "constant_" + std::to_string(first);
  if (variable != nullptr) wanted = variable->alias.empty() ? variable->path : variable->alias;
  KnownTensor tensor = source_values(value);
  tensor.type = type;
  name = fresh(wanted);
  add_initializer(tensor, name);
  return name;
}

std::string Exporter::stored_name_of(ValueId value) {
  if (value == kNone || !typed()) return name_of(value);
  return typed_name(value, common_type({graph_.value(value).format}));
}

DataType Exporter::type_to_compute(const Node& node) const {
  if (scales_operands(node)) return DataType::float32;  // as DequantizeLinear writes
  // ONNX allows separate types for a batch normalization's scale, bias, mean and variance.
  const size_t end = node.op == "BatchNormalization" ? 1 : node.inputs.size();
  std::vector<FloatFormat> formats;
  std::vector<ValueId> numbers;
  bool reads = false;
  for (size_t i = 0; i < end; ++i) {
    const ValueId input = node.inputs[i];
    if (input == kNone || graph_.value(input).type != ElementType::real) continue;
    reads = true;
    const bool is_constant = is_source(input) && !rounded_sources_.contains(input) &&
                             graph_.variable_of(input) == nullptr;
    if (is_constant) {
      numbers.push_back(input);
    } else {
      formats.push_back(graph_.value(input).format);
    }
  }
  if (reads) formats.push_back(node.plan.read);
  const Value& result = graph_.value(node.outputs[0]);
  if (result.type == ElementType::real) formats.push_back(result.format);
  const DataType type = common_type(formats);
  const FloatFormat format = *format_of(type);
  // Values that are rounded again must not be rounded before that.
  const bool rounds_twice =
      result.type == ElementType::real && result.format != format && !find_op(node.op).selects;
  // Numbers that the type cannot represent are read unrounded.
  const bool has_numbers = std::all_of(numbers.begin(), numbers.end(), [&](ValueId number) {
    return is_rounded_to(format, source_values(number).reals);
  });
  return rounds_twice || !has_numbers ? DataType::float32 : type;
}

void Exporter::add_typed_cast(const Node& node) {
  const ValueId from = node.inputs[0], to = node.outputs[0];
  check_rounding(graph_, to);
  const FloatFormat& format = graph_.value(to).format;
  const DataType type = needed_type(format, node.path);
  has_bfloat16_ |= type == DataType::bfloat16;
  if (is_source(from)) {
    rounded_sources_[to] = from;
    return;
  }
  types_[to] = type;
  if (types_.at(from) == type) {
    names_[to] = names_.at(from);
    return;
  }
  const std::string& name = names_.at(from);
  names_[to] = add_cast(name, fresh(name + "_" + type_name(type)), format);
}

/// Casts the result to the type of its format if the operator computes in another type.
void Exporter::narrow_result(const Node& node, ValueId value) {
  const FloatFormat& format = graph_.value(value).format;
  if (needs_rounding(graph_, node, graph_.value(value))) check_rounding(graph_, value);
  const DataType type = needed_type(format, node.path);
  has_bfloat16_ |= type == DataType::bfloat16;
  if (types_.at(value) == type) return;
  const std::string name = names_.at(value);
  names_[value] = add_cast(name, fresh(name + "_" + type_name(type)), format);
  types_[value] = type;
}

void Exporter::add_typed_node(const Node& node) {
  if (node.op == "Cast") return add_typed_cast(node);
  compute_ = type_to_compute(node);
  const DataType type = compute_;
  std::vector<std::string> outputs;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    outputs.push_back(fresh(node.path + "_out" + (i == 0 ? "" : ":" + std::to_string(i))));
  }
  // Statistics are not exported.
  const size_t results = std::min(node.outputs.size(), find_op(node.op).statistics_from);
  if (export_node(*this, node, outputs)) {
    for (size_t i = 0; i < results; ++i) {
      names_[node.outputs[i]] = outputs[i];
      types_[node.outputs[i]] = type;
    }
  } else {
    add_composite(node);
  }
  for (size_t i = 0; i < results; ++i) {
    const ValueId result = node.outputs[i];
    const bool real = graph_.value(result).type == ElementType::real;
    if (real && names_.contains(result)) narrow_result(node, result);
  }
}

/// A typed input gets the format that all its readers read.
void Exporter::type_input(ValueId value, const std::vector<NodeId>& nodes) {
  types_[value] = DataType::float32;
  if (form_ != PlanForm::types_and_io) return;
  std::vector<FloatFormat> wanted;
  for (NodeId id : nodes) {
    const Node& node = graph_.node(id);
    if (std::find(node.inputs.begin(), node.inputs.end(), value) == node.inputs.end()) continue;
    if (node.op != "Cast") return;
    wanted.push_back(graph_.value(node.outputs[0]).format);
  }
  const bool same = !wanted.empty() && std::equal(wanted.begin() + 1, wanted.end(), wanted.begin());
  if (same) types_[value] = needed_type(wanted.front(), "an input");
}

}  // namespace halfscope::onnx_files
