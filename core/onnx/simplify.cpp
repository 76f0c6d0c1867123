// SPDX-License-Identifier: MIT
#include "core/onnx/simplify.h"

#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/onnx/graph_copy.h"
#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

/// A Transpose of `x`, in place of three nodes of which the last made `result`.
struct Direct {
  ValueId x = kNone, result = kNone;
  std::vector<int64_t> order;
};

class Detours {
 public:
  explicit Detours(const Model& model) : graph_(model.graph) {
    for (const Node& node : graph_.nodes()) {
      for (const ValueId input : node.inputs) ++readers_[input];
    }
    for (const NamedValue& output : model.outputs) ++readers_[output.value];
    for (const Variable& variable : graph_.variables()) ++readers_[variable.next];
  }

  /// By the node in the middle, with the nodes that go.
  std::map<NodeId, Direct> find(std::set<NodeId>& gone) const {
    std::map<NodeId, Direct> found;
    for (NodeId last = 0; last < static_cast<NodeId>(graph_.nodes().size()); ++last) {
      const NodeId middle = maker(last, "Reshape");
      const NodeId first = middle == kNone ? kNone : maker(middle, "Transpose");
      if (first == kNone || graph_.node(first).op != "Reshape") continue;
      auto direct = direct_of(graph_.node(first), graph_.node(middle), graph_.node(last));
      if (!direct || gone.contains(first)) continue;
      gone.insert({first, middle, last});
      found.emplace(middle, std::move(*direct));
    }
    return found;
  }

 private:
  const Shape& shape(ValueId value) const { return graph_.value(value).shape; }

  /// The node that makes the operand of a node of that operator, if nobody else reads it.
  NodeId maker(NodeId id, const char* op) const {
    const Node& node = graph_.node(id);
    if (node.op != op || readers_.at(node.inputs[0]) != 1) return kNone;
    return graph_.value(node.inputs[0]).producer;
  }

  std::optional<Direct> direct_of(const Node& first, const Node& middle, const Node& last) const {
    const Shape &from = shape(first.inputs[0]), &merged = shape(first.outputs[0]),
                &to = shape(last.outputs[0]);
    const std::vector<int64_t> order = transpose_axes(middle, merged.size());
    size_t front = 0;  // dimensions that stay where they are
    while (front < order.size() && order[front] == static_cast<int64_t>(front)) ++front;
    const size_t moved = merged.size() - front;
    if (moved == 0 || from.size() < moved || from.size() != to.size()) return std::nullopt;
    const size_t kept = from.size() - moved;
    Direct direct{first.inputs[0], last.outputs[0], std::vector<int64_t>(from.size())};
    std::iota(direct.order.begin(), direct.order.end(), int64_t{0});
    for (size_t i = 0; i < from.size(); ++i) {
      if (i >= kept) {
        if (from[i] != merged[i - kept + front]) return std::nullopt;
        const auto source = static_cast<size_t>(order[i - kept + front]) - front + kept;
        direct.order[i] = static_cast<int64_t>(source);
      }
      if (to[i] != from[static_cast<size_t>(direct.order[i])]) return std::nullopt;
    }
    return direct;
  }

  const Graph& graph_;
  std::map<ValueId, int> readers_;
};

}  // namespace

Model simplified(Model model) {
  std::set<NodeId> gone;
  const std::map<NodeId, Direct> direct = Detours(model).find(gone);
  if (direct.empty()) return model;
  GraphCopy copy(model);
  for (NodeId id = 0; id < static_cast<NodeId>(model.graph.nodes().size()); ++id) {
    const Node& node = model.graph.node(id);
    if (const auto found = direct.find(id); found != direct.end()) {
      const Direct& each = found->second;
      copy.set(each.result, copy.graph().add1("Transpose", node.path, {copy.moved(each.x)},
                                              {{"perm", each.order}}));
    } else if (!gone.contains(id)) {
      copy.copy(node);
    }
  }
  return copy.finish();
}

}  // namespace halfscope::onnx_files
