// SPDX-License-Identifier: MIT
#include "gpu/engine/fusion.h"

#include <algorithm>
#include <map>
#include <set>

namespace halfscope::gpu {
namespace {

class ChainFinder {
 public:
  ChainFinder(const Executable& executable, Entry entry)
      : executable_(executable), graph_(executable.graph), nodes_(executable.entry(entry)) {
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

  std::vector<NormalizationChain> find() {
    std::vector<NormalizationChain> chains;
    for (NodeId id : nodes_) {
      if (graph_.node(id).op != "BatchNormalization" || taken_.contains(id)) continue;
      const NormalizationChain chain = from(id);
      if (chain.last() == kNone || !may_wait(chain)) continue;
      for (NodeId each : {chain.normalization, chain.add, chain.relu}) {
        if (each != kNone) taken_.insert(each);
      }
      chains.push_back(chain);
    }
    return chains;
  }

 private:
  NormalizationChain from(NodeId id) const {
    NormalizationChain chain{.normalization = id};
    ValueId value = graph_.node(id).outputs[0];
    if (!rounds_to_nearest(value)) return chain;
    if (const NodeId add = reader(value, "Add"); add != kNone && !taken_.contains(add)) {
      const Node& node = graph_.node(add);
      const bool first = node.inputs[0] == value;
      const ValueId other = node.inputs[first ? 1 : 0];
      const bool same = other != value && graph_.value(other).type == ElementType::real &&
                        graph_.value(other).shape == graph_.value(value).shape;
      if (same && rounds_to_nearest(node.outputs[0])) {
        chain.add = add;
        chain.other = other;
        chain.keeps_normal = others_read(value, add);
        value = node.outputs[0];
      }
    }
    const NodeId relu = reader(value, "Relu");
    if (relu != kNone && rounds_to_nearest(graph_.node(relu).outputs[0])) {
      chain.relu = relu;
      const bool keeps = others_read(value, relu);
      (chain.add != kNone ? chain.keeps_sum : chain.keeps_normal) = keeps;
    }
    return chain;
  }

  bool rounds_to_nearest(ValueId value) const {
    return graph_.value(value).rounding.mode == RoundingMode::nearest_even;
  }
  /// Returns the first node of the entry with this operator that reads the value, or kNone.
  NodeId reader(ValueId value, const char* op) const {
    const auto readers = readers_.find(value);
    if (readers == readers_.end()) return kNone;
    NodeId first = kNone;
    for (NodeId id : readers->second) {
      if (!position_.contains(id) || graph_.node(id).op != op) continue;
      if (first == kNone || position_.at(id) < position_.at(first)) first = id;
    }
    return first;
  }
  bool others_read(ValueId value, NodeId reader) const {
    const std::set<NodeId>& readers = readers_.at(value);
    return readers.size() > 1 || !readers.contains(reader) || outputs_.contains(value);
  }

  /// Returns whether nothing outside the chain reads its outputs before its last node runs.
  bool may_wait(const NormalizationChain& chain) const {
    const size_t end = position_.at(chain.last());
    for (NodeId id : {chain.normalization, chain.add}) {
      if (id == kNone) continue;
      for (ValueId value : graph_.node(id).outputs) {
        const auto readers = readers_.find(value);
        if (readers == readers_.end()) continue;
        const bool early =
            std::any_of(readers->second.begin(), readers->second.end(), [&](NodeId r) {
              return position_.contains(r) && position_.at(r) < end && !chain.contains(r);
            });
        if (early) return false;
      }
    }
    return true;
  }

  const Executable& executable_;
  const Graph& graph_;
  const std::vector<NodeId>& nodes_;
  std::map<NodeId, size_t> position_;
  std::map<ValueId, std::set<NodeId>> readers_;  ///< in any entry
  std::set<ValueId> outputs_;
  std::set<NodeId> taken_;
};

}  // namespace

std::vector<NormalizationChain> find_chains(const Executable& executable, Entry entry) {
  return ChainFinder(executable, entry).find();
}

}  // namespace halfscope::gpu
