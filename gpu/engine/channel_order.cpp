// SPDX-License-Identifier: MIT
#include "gpu/engine/channel_order.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "core/bodies/elements.h"
#include "core/function_list.h"
#include "core/lower/execution.h"
#include "core/ops/functions.h"
#include "core/ops/ops.h"
#include "gpu/bodies/several.h"

namespace halfscope::gpu {
namespace {

bool is_elementwise(const std::string& op) {
  const auto yes = [](auto) { return true; };
  return op == "Cast" || op == "Exp" || op == "Log" ||
         make_by_name<bool>(op, UnaryElements{}, yes) ||
         make_by_name<bool>(op, BinaryElements{}, yes) ||
         make_by_name<bool>(op, UnaryFunctions{}, yes) ||
         make_by_name<bool>(op, BinaryFunctions{}, yes) ||
         make_by_name<bool>(op, TernaryFunctions{}, yes);
}

/// Groups of values that must have the same order.
class Groups {
 public:
  explicit Groups(const Executable& executable)
      : graph_(executable.graph),
        parent_(graph_.values().size()),
        blocked_(parent_.size()),
        wanted_(parent_.size()) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }

  /// Returns whether the order of channels matters: a real [batch, channels, height, width].
  bool has_order(ValueId value) const {
    if (value == kNone) return false;
    const Value& v = graph_.value(value);
    if (v.type != ElementType::real || v.shape.size() != 4) return false;
    return v.shape[1] > 1 && v.shape[2] * v.shape[3] > 1;
  }
  void join(ValueId a, ValueId b) {
    const size_t first = root(a), second = root(b);
    parent_[second] = first;
    blocked_[first] = blocked_[first] || blocked_[second];
    wanted_[first] = wanted_[first] || wanted_[second];
  }
  void block(ValueId value) {
    if (value != kNone) blocked_[root(value)] = true;
  }
  void want(ValueId value) { wanted_[root(value)] = true; }
  bool last(ValueId value) {
    return has_order(value) && wanted_[root(value)] && !blocked_[root(value)];
  }

 private:
  size_t root(ValueId value) {
    size_t at = static_cast<size_t>(value);
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }

  const Graph& graph_;
  std::vector<size_t> parent_;
  std::vector<bool> blocked_, wanted_;
};

/// Tells the groups which orders of operands and outputs each node can work with.
class Requirements {
 public:
  Requirements(const Executable& executable, const std::set<NodeId>& convolutions, Groups& groups)
      : graph_(executable.graph), convolutions_(convolutions), groups_(groups) {}

  void of(NodeId id) {
    const Node& node = graph_.node(id);
    const ProductKind product = find_op(node.op).product;
    if (product != ProductKind::none && product != ProductKind::matrix) return convolution(id);
    if (is_elementwise(node.op) && is_simple(node)) return same(node, node.inputs.size());
    if (node.op == "BatchNormalization" && is_simple_norm(node)) return same(node, 1);
    if (node.op == "BatchNormalizationGrad" && is_simple_norm(node)) return same(node, 2);
    if (node.op == "MaxPool") return same(node, 1, true);
    if (node.op == "MaxPoolGrad") return same(node, 2, true);
    if (is_over_pixels(node)) return;
    block(node);
  }

 private:
  void block(const Node& node) {
    for (ValueId value : node.inputs) groups_.block(value);
    for (ValueId value : node.outputs) groups_.block(value);
  }

  void convolution(NodeId id) {
    const Node& node = graph_.node(id);
    if (!convolutions_.contains(id)) return block(node);
    const bool of_weight = find_op(node.op).product == ProductKind::conv_grad_weight;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool activation = i == 0 || (i == 1 && of_weight);
      if (activation) groups_.want(node.inputs[i]);
      if (!activation) groups_.block(node.inputs[i]);
    }
    if (of_weight) return groups_.block(node.outputs[0]);
    groups_.want(node.outputs[0]);
  }

  /// The first `inputs` operands and the first output have one order; `indices`: integers, too.
  void same(const Node& node, size_t inputs, bool indices = false) {
    const auto takes_part = [&](ValueId value) {
      return groups_.has_order(value) ||
             (indices && value != kNone && graph_.value(value).type == ElementType::index);
    };
    std::vector<ValueId> values;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (i < inputs && takes_part(node.inputs[i])) values.push_back(node.inputs[i]);
      if (i >= inputs) groups_.block(node.inputs[i]);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (takes_part(node.outputs[i]) && (i == 0 || indices)) values.push_back(node.outputs[i]);
    }
    for (const ValueId value : values) groups_.join(values[0], value);
  }

  /// Returns whether each operand has the output's shape, or is one number.
  bool is_simple(const Node& node) const {
    const Shape& shape = graph_.value(node.outputs[0]).shape;
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId value) {
      if (value == kNone || graph_.value(value).type != ElementType::real) return false;
      const Shape& own = graph_.value(value).shape;
      return own == shape || element_count(own) == 1;
    });
  }

  /// Returns whether there are kernels for channels last: whole packs of channels, sums in double.
  bool is_simple_norm(const Node& node) const {
    const Shape& x = graph_.value(node.inputs[0]).shape;
    return x.size() == 4 && x[1] % kSeveral == 0 && !names_inner_sums(sum_spec_of(graph_, node));
  }

  /// Returns whether the node reduces pixels to a number (of all samples, too), or spreads a number
  /// over pixels.
  bool is_over_pixels(const Node& node) const {
    const bool spreads = node.op == "ReduceMeanGrad";
    const Shape& pixels = graph_.value(spreads ? node.outputs[0] : node.inputs[0]).shape;
    if (pixels.size() != 4) return false;
    if (node.op == "GlobalAveragePool") return true;
    const bool reduces = node.op == "ReduceMean" || node.op == "ReduceSum";
    const std::vector<int64_t> axes = reduction_axes(node, 4);
    const bool all_samples = reduces && axes == std::vector<int64_t>{0, 2, 3};
    return ((reduces || spreads) && axes == std::vector<int64_t>{2, 3}) || all_samples;
  }

  const Graph& graph_;
  const std::set<NodeId>& convolutions_;
  Groups& groups_;
};

}  // namespace

ChannelOrder::ChannelOrder(const Executable& executable, const std::set<NodeId>& convolutions)
    : last_(executable.graph.values().size()) {
  if (convolutions.empty()) return;
  const Graph& graph = executable.graph;
  Groups groups(executable);
  Requirements require(executable, convolutions, groups);
  std::map<NodeId, std::set<size_t>> entries;  // that run a node
  for (size_t entry = 0; entry < kEntryCount; ++entry) {
    for (NodeId id : executable.entries[entry]) entries[id].insert(entry);
  }
  for (const auto& [id, where] : entries) {
    require.of(id);
    const Node& node = graph.node(id);
    for (ValueId value : node.outputs) {
      if (graph.value(value).rounding.mode != RoundingMode::nearest_even) groups.block(value);
    }
    for (ValueId value : node.inputs) {
      if (value == kNone) continue;
      // Whoever reads a value runs with its producer, in the same way.
      const auto producer = entries.find(graph.value(value).producer);
      const bool together = producer != entries.end() &&
                            std::includes(producer->second.begin(), producer->second.end(),
                                          where.begin(), where.end());
      if (!together) groups.block(value);
    }
  }
  for (const auto& [value, target] : memory_aliases(graph)) {
    groups.block(value);
    groups.block(target);
  }
  for (size_t i = 0; i < last_.size(); ++i) last_[i] = groups.last(static_cast<ValueId>(i));
  for (const auto& [id, where] : entries) {
    for (ValueId value : graph.node(id).outputs) {
      if (!last(value)) continue;
      for (const size_t entry : where) made_by_[entry].push_back(value);
    }
  }
}

}  // namespace halfscope::gpu
