// SPDX-License-Identifier: MIT
// The explicit list of operators, and helpers that their rules share.
#include <algorithm>
#include <array>
#include <numeric>

#include "core/error.h"
#include "core/ops/definitions.h"
#include "core/ops/ops.h"

namespace halfscope {

std::span<const OpDef> op_table() {
  static const auto table = [] {
    std::vector<OpDef> all;
#define HALFSCOPE_OPERATORS(file) all.insert(all.end(), ops::file().begin(), ops::file().end());
#include "core/ops/list.inc"
#undef HALFSCOPE_OPERATORS
    std::sort(all.begin(), all.end(), [](const OpDef& a, const OpDef& b) {
      return std::string_view(a.name) < std::string_view(b.name);
    });
    return all;
  }();
  return table;
}

const OpDef* lookup_op(std::string_view name) {
  const std::span<const OpDef> table = op_table();
  const auto found =
      std::lower_bound(table.begin(), table.end(), name,
                       [](const OpDef& def, std::string_view wanted) { return def.name < wanted; });
  return found == table.end() || name != found->name ? nullptr : &*found;
}

const OpDef& find_op(const std::string& name) {
  const OpDef* def = lookup_op(name);
  if (def == nullptr) throw Error("unknown operator '" + name + "'");
  return *def;
}

void check_node(const Node& node, bool ok, const std::string& text) {
  if (!ok) throw Error(node.path + " (" + node.op + "): " + text);
}

Shape broadcast_shapes(const Node& node, const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape result(rank, 1);
  for (size_t i = 0; i < rank; ++i) {  // from the last dimension backwards
    const int64_t from_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t from_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    check_node(node, from_a == from_b || from_a == 1 || from_b == 1,
               "shapes " + to_string(a) + " and " + to_string(b) + " do not broadcast");
    result[rank - 1 - i] = from_a == 1 ? from_b : from_a;
  }
  return result;
}

void check_real(const Graph& graph, const Node& node, size_t i) {
  check_node(node, graph.value(node.inputs.at(i)).type == ElementType::real,
             "input " + std::to_string(i) + " must be real");
}

void check_index(const Graph& graph, const Node& node, size_t i) {
  check_node(node, graph.value(node.inputs.at(i)).type == ElementType::index,
             "input " + std::to_string(i) + " must contain indices");
}

ElementType common_type(const Graph& graph, const Node& node, size_t first) {
  std::optional<ElementType> type;
  for (size_t i = first; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNone) continue;
    const ElementType own = graph.value(node.inputs[i]).type;
    check_node(node, type.value_or(own) == own, "takes real numbers or indices, not both");
    type = own;
  }
  return type.value_or(ElementType::real);
}

int64_t axis_attribute(const Node& node, size_t rank, std::optional<int64_t> fallback) {
  check_node(node, fallback || node.attributes.contains("axis"), "needs an axis");
  const int64_t given = int_attribute(node, "axis", fallback.value_or(0));
  const int64_t axis = given < 0 ? given + static_cast<int64_t>(rank) : given;
  check_node(node, axis >= 0 && axis < static_cast<int64_t>(rank), "axis out of range");
  return axis;
}

AxisSplit split_at(const Shape& shape, int64_t axis) {
  AxisSplit split;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t& part = static_cast<int64_t>(i) < axis    ? split.outer
                    : static_cast<int64_t>(i) == axis ? split.length
                                                      : split.inner;
    part *= shape[i];
  }
  return split;
}

std::vector<int64_t> reduction_axes(const Node& node, size_t rank) {
  std::vector<int64_t> axes = ints_attribute(node, "axes");
  if (axes.empty() && int_attribute(node, "noop_with_empty_axes", 0) == 0) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), int64_t{0});
  }
  for (int64_t& axis : axes) {
    if (axis < 0) axis += static_cast<int64_t>(rank);
    check_node(node, axis >= 0 && axis < static_cast<int64_t>(rank), "axis out of range");
  }
  std::sort(axes.begin(), axes.end());
  check_node(node, std::adjacent_find(axes.begin(), axes.end()) == axes.end(), "repeated axis");
  return axes;
}

}  // namespace halfscope
