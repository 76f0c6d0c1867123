// SPDX-License-Identifier: MIT
#include "gpu/engine/fusion.h"

#include <map>
#include <set>
#include <string_view>

namespace halfscope::gpu {
namespace {

class ChainFinder {
 public:
  ChainFinder(const Executable& executable, Entry entry)
      : graph_(executable.graph), nodes_(executable.entry(entry)) {
    for (size_t at = 0; at < nodes_.size(); ++at) position_[nodes_[at]] = at;
    std::set<NodeId> all;
    for (const std::vector<NodeId>& each : executable.entries) all.insert(each.begin(), each.end());
    for (NodeId id : all) {
      for (ValueId value : graph_.node(id).inputs) {
        if (value != kNone) readers_[value].insert(id);
      }
    }
    for (const NamedValue& output : executable.outputs) outputs_.insert(output.value);
    outputs_.insert(executable.logits);
  }

  std::vector<Chain> find() {
    std::vector<Chain> chains;
    for (NodeId id : nodes_) {
      const std::string_view op = graph_.node(id).op;
      Chain chain;
      if (taken_.contains(id)) continue;
      if (op == "BatchNormalization") chain = after_normalization(id);
      if (op == "Softmax") chain = with_cast(before_softmax(id));
      if (op == "SoftmaxGrad") chain = after_gradient(id);
      if (op == "LayerNormalization" || op == "RMSNormalization") chain = with_cast({{id}});
      if (chain.nodes.size() < 2 || !may_wait(chain)) continue;
      taken_.insert(chain.nodes.begin(), chain.nodes.end());
      chains.push_back(std::move(chain));
    }
    return chains;
  }

 private:
  static constexpr size_t kMostSteps = 2;  ///< ElementSteps

  Chain after_normalization(NodeId id) const {
    Chain chain{{id}};
    ValueId value = output_of(id);
    if (!rounds_to_nearest(value)) return chain;
    const auto append = [&](NodeId next) {
      chain.nodes.push_back(next);
      if (others_read(value, next)) chain.kept.push_back(value);
      value = output_of(next);
    };
    if (const NodeId add = reader(value, "Add"); add != kNone && adds_other(add, value)) {
      append(add);
    }
    const NodeId relu = reader(value, "Relu");
    if (relu != kNone && rounds_to_nearest(output_of(relu))) append(relu);
    return chain;
  }
  /// Returns whether the node adds another tensor of the same shape.
  bool adds_other(NodeId add, ValueId value) const {
    const Node& node = graph_.node(add);
    const ValueId other = node.inputs[node.inputs[0] == value ? 1 : 0];
    return other != value && graph_.value(other).shape == graph_.value(value).shape &&
           rounds_to_nearest(node.outputs[0]);
  }

  Chain before_softmax(NodeId id) const {
    Chain chain{{id}};
    if (!rounds_to_nearest(output_of(id))) return chain;
    ValueId value = graph_.node(id).inputs[0];
    while (chain.nodes.size() <= kMostSteps) {
      const NodeId node = graph_.value(value).producer;
      if (node == kNone || !position_.contains(node) || taken_.contains(node)) break;
      if (others_read(value, chain.nodes[0]) || !rounds_to_nearest(value)) break;
      const std::optional<size_t> from = element_input(graph_, graph_.node(node));
      if (!from) break;
      chain.nodes.insert(chain.nodes.begin(), node);
      value = graph_.node(node).inputs[*from];
    }
    chain.core = chain.nodes.size() - 1;
    return chain;
  }

  /// Appends a Cast of an output that is not rounded. Others may read that, too.
  Chain with_cast(Chain chain) const {
    const ValueId value = output_of(chain.last());
    if (graph_.value(value).format != kFp32) return chain;
    const NodeId cast = reader(value, "Cast");
    if (cast == kNone || !rounds_to_nearest(output_of(cast))) return chain;
    if (graph_.value(output_of(cast)).format == kFp32) return chain;
    chain.nodes.push_back(cast);
    if (others_read(value, cast)) chain.kept.push_back(value);
    return chain;
  }

  Chain after_gradient(NodeId id) const {
    Chain chain{{id}};
    ValueId value = output_of(id);
    while (chain.nodes.size() <= kMostSteps && rounds_to_nearest(value)) {
      const auto readers = readers_.find(value);
      if (readers == readers_.end() || readers->second.size() != 1) break;
      const NodeId next = *readers->second.begin();
      if (!position_.contains(next) || taken_.contains(next) || outputs_.contains(value)) break;
      const std::optional<size_t> from = element_input(graph_, graph_.node(next), value);
      if (!from || graph_.node(next).inputs[*from] != value) break;
      if (!rounds_to_nearest(output_of(next))) break;
      chain.nodes.push_back(next);
      value = output_of(next);
    }
    return chain;
  }

  ValueId output_of(NodeId id) const { return graph_.node(id).outputs[0]; }
  bool rounds_to_nearest(ValueId value) const {
    return graph_.value(value).rounding.mode == RoundingMode::nearest_even;
  }
  /// Returns the first free node of the entry with this operator that reads the value, or kNone.
  NodeId reader(ValueId value, std::string_view op) const {
    const auto readers = readers_.find(value);
    if (readers == readers_.end()) return kNone;
    NodeId first = kNone;
    for (NodeId id : readers->second) {
      if (!position_.contains(id) || taken_.contains(id) || graph_.node(id).op != op) continue;
      if (first == kNone || position_.at(id) < position_.at(first)) first = id;
    }
    return first;
  }
  bool others_read(ValueId value, NodeId reader) const {
    const std::set<NodeId>& readers = readers_.at(value);
    return readers.size() > 1 || !readers.contains(reader) || outputs_.contains(value);
  }

  /// Returns whether nothing outside the chain reads its outputs before its last node runs.
  bool may_wait(const Chain& chain) const {
    const size_t end = position_.at(chain.last());
    for (NodeId id : chain.nodes) {
      if (id == chain.last()) continue;
      for (ValueId value : graph_.node(id).outputs) {
        const auto readers = readers_.find(value);
        if (readers == readers_.end()) continue;
        for (NodeId reader : readers->second) {
          const auto at = position_.find(reader);
          const bool early = at != position_.end() && at->second < end;
          if (early && !chain.contains(reader)) return false;
        }
      }
    }
    return true;
  }

  const Graph& graph_;
  const std::vector<NodeId>& nodes_;
  std::map<NodeId, size_t> position_;
  std::map<ValueId, std::set<NodeId>> readers_;  ///< in any entry
  std::set<ValueId> outputs_;
  std::set<NodeId> taken_;
};

}  // namespace

std::vector<Chain> find_chains(const Executable& executable, Entry entry) {
  return ChainFinder(executable, entry).find();
}

std::optional<size_t> element_input(const Graph& graph, const Node& node, ValueId preferred) {
  const bool chooses = node.op == "Where";
  if (!chooses && node.op != "Mul" && node.op != "Div" && node.op != "Add") return std::nullopt;
  const Value& output = graph.value(node.outputs[0]);
  if (output.type != ElementType::real) return std::nullopt;
  const auto fits = [&](size_t i) {
    const ValueId value = node.inputs[i];
    return value != kNone && graph.value(value).type == ElementType::real &&
           element_count(graph.value(value).shape) == element_count(output.shape);
  };
  std::optional<size_t> found;
  // Only the dividend of a Div is worked on.
  const size_t first = chooses ? 1 : 0, end = node.op == "Div" ? 1 : node.inputs.size();
  for (size_t i = first; i < end; ++i) {
    if (fits(i) && (!found || node.inputs[i] == preferred)) found = i;
  }
  // x * x, for example, has no other operand.
  const size_t other = found && *found == first ? first + 1 : first;
  if (found && node.inputs[other] == node.inputs[*found]) return std::nullopt;
  return found;
}

}  // namespace halfscope::gpu
