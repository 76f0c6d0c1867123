// SPDX-License-Identifier: MIT
#include "analysis/audit/roles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/ops/ops.h"

namespace halfscope {
namespace {

/// Returns the value of a constant with one element.
std::optional<double> number_of(const Graph& graph, ValueId value) {
  for (const Constant& constant : graph.constants()) {
    const bool one = constant.value == value && constant.tensor.data.size() == 1;
    if (one) return static_cast<double>(constant.tensor.data[0]);
  }
  return std::nullopt;
}

std::vector<NodeId> readers_of(const Graph& graph, ValueId value) {
  std::vector<NodeId> readers;
  for (size_t id = 0; id < graph.nodes().size(); ++id) {
    const Node& node = graph.nodes()[id];
    const auto& inputs = node.inputs;
    if (node.phase == Phase::forward &&
        std::find(inputs.begin(), inputs.end(), value) != inputs.end()) {
      readers.push_back(static_cast<NodeId>(id));
    }
  }
  return readers;
}

/// Returns whether the operator only moves elements.
bool moves(const Node& node) {
  if (node.op == "Cast") return true;
  const OpDef& def = find_op(node.op);
  return def.movement != nullptr || def.view;
}

constexpr int kFarthest = 12;  // nodes along the path

std::optional<Singular> search(const Graph& graph, ValueId value, double power, int depth);

/// Returns where a reader, or a node after it, divides by the value or takes its logarithm.
std::optional<Singular> behind(const Graph& graph, NodeId id, ValueId value, double power,
                               int depth) {
  const Node& node = graph.node(id);
  const auto on = [&](double by) { return search(graph, node.outputs[0], power * by, depth + 1); };
  const bool first = node.inputs[0] == value;
  const bool second = node.inputs.size() > 1 && node.inputs[1] == value;
  if (node.op == "Reciprocal") return Singular{id, true, power};
  if (node.op == "Log") return Singular{id, false, power};
  if (node.op == "Sqrt") return on(0.5);
  if (node.op == "Abs" || moves(node)) return on(1.0);
  if (node.op == "Div") {
    if (second) return Singular{id, true, power};
    return number_of(graph, node.inputs[1]) ? on(1.0) : std::nullopt;
  }
  if (node.op == "Pow" && first && !second) {
    const std::optional<double> exponent = number_of(graph, node.inputs[1]);
    if (!exponent || *exponent == 0.0) return std::nullopt;
    return *exponent < 0.0 ? Singular{id, true, -power * *exponent} : on(*exponent);
  }
  if (node.op == "Mul") {
    if (first && second) return on(2.0);
    const double factor = number_of(graph, node.inputs[first ? 1 : 0]).value_or(0.0);
    return factor != 0.0 ? on(1.0) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<Singular> search(const Graph& graph, ValueId value, double power, int depth) {
  if (depth > kFarthest) return std::nullopt;
  for (const NodeId reader : readers_of(graph, value)) {
    if (std::optional<Singular> found = behind(graph, reader, value, power, depth)) return found;
  }
  return std::nullopt;
}

/// Returns the softmax that reads the value, or a sum or choice of it; kNone if there is none.
/// Shapes stay the same along the path.
NodeId softmax_behind(const Graph& graph, ValueId value, int depth = 0) {
  if (depth > kFarthest) return kNone;
  for (const NodeId id : readers_of(graph, value)) {
    const Node& node = graph.node(id);
    if (node.op == "Softmax" || node.op == "LogSoftmax") return id;
    const bool passes = node.op == "Add" || node.op == "Where" || node.op == "Cast" ||
                        (node.op == "Sub" && node.inputs[0] == value);
    if (!passes || graph.value(node.outputs[0]).shape != graph.value(value).shape) continue;
    const NodeId found = softmax_behind(graph, node.outputs[0], depth + 1);
    if (found != kNone) return found;
  }
  return kNone;
}

/// Returns whether a line along `axis` of the output, whose shape is given, is infinite throughout
/// in the tensor that is broadcast to it.
bool has_whole_line(const Tensor& tensor, const Shape& shape, int64_t axis) {
  const auto infinite = [](float x) { return std::isinf(x); };
  const int64_t rank = static_cast<int64_t>(tensor.shape.size());
  const int64_t own = axis - (static_cast<int64_t>(shape.size()) - rank);
  // One number for the whole line.
  if (own < 0 || tensor.shape[static_cast<size_t>(own)] == 1) {
    return std::any_of(tensor.data.begin(), tensor.data.end(), infinite);
  }
  const auto length = static_cast<size_t>(tensor.shape[static_cast<size_t>(own)]);
  size_t stride = 1;
  for (size_t i = static_cast<size_t>(own) + 1; i < tensor.shape.size(); ++i) {
    stride *= static_cast<size_t>(tensor.shape[i]);
  }
  for (size_t block = 0; block + length * stride <= tensor.data.size(); block += length * stride) {
    for (size_t line = 0; line < stride; ++line) {
      bool whole = true;
      for (size_t i = 0; i < length && whole; ++i) {
        whole = infinite(tensor.data[block + i * stride + line]);
      }
      if (whole) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Singular> singular_behind(const Graph& graph, ValueId value) {
  return search(graph, value, 1.0, 0);
}

bool may_be_result(const Node& node) {
  constexpr std::array<std::string_view, 6> kOps{"Add", "Sub", "Max", "Min", "Clip", "Where"};
  return std::find(kOps.begin(), kOps.end(), node.op) != kOps.end();
}

Masking masking_of(const Graph& graph, NodeId id, size_t operand, const Tensor& tensor) {
  const Node& node = graph.node(id);
  const bool sums = node.op == "Add" || (node.op == "Sub" && operand == 1);
  if (!sums && node.op != "Where") return Masking::none;
  const bool negative = std::all_of(tensor.data.begin(), tensor.data.end(), [&](float x) {
    return !std::isinf(x) || (node.op == "Sub" ? x > 0.0f : x < 0.0f);
  });
  const NodeId softmax = negative ? softmax_behind(graph, node.outputs[0]) : kNone;
  if (softmax == kNone) return Masking::none;
  if (int_attribute(graph.node(softmax), "zero_masked", 0) != 0) return Masking::guarded;
  if (!sums) return Masking::unknown;
  const Shape& shape = graph.value(node.outputs[0]).shape;
  int64_t axis = int_attribute(graph.node(softmax), "axis", -1);
  if (axis < 0) axis += static_cast<int64_t>(shape.size());
  return has_whole_line(tensor, shape, axis) ? Masking::whole : Masking::guarded;
}

}  // namespace halfscope
