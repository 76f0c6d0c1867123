// SPDX-License-Identifier: MIT
#include "gpu/engine/grouping.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace halfscope::gpu {
namespace {

/// Memory that a node touches.
struct Range {
  int64_t begin, end;
  bool written;

  bool conflicts(const Range& other) const {
    return (written || other.written) && begin < other.end && other.begin < end;
  }
};

std::vector<Range> ranges_of(const Graph& graph, const Node& node, const Layout& layout) {
  std::vector<Range> ranges;
  const auto add = [&](ValueId value, bool written) {
    if (value == kNone || layout.place(value) < 0) return;
    const Value& description = graph.value(value);
    const bool real = description.type == ElementType::real;
    const int64_t bytes = real ? bytes_of(layout.storage(value)) : int64_t{sizeof(int32_t)};
    const int64_t begin = layout.place(value);
    ranges.push_back({begin, begin + element_count(description.shape) * bytes, written});
  };
  for (ValueId value : node.inputs) add(value, false);
  for (ValueId value : node.outputs) add(value, true);
  return ranges;
}

/// Nodes that run at one place of the new order.
struct Place {
  std::string kind;
  std::vector<NodeId> nodes;
  std::vector<Range> ranges;

  bool conflicts(const std::vector<Range>& others) const {
    return std::any_of(others.begin(), others.end(), [&](const Range& other) {
      return std::any_of(ranges.begin(), ranges.end(),
                         [&](const Range& own) { return own.conflicts(other); });
    });
  }
};

}  // namespace

bool runs_in_groups(std::string_view op) {
  constexpr std::string_view kOps[] = {
      "GradientSum", "Momentum",  "AdamMoments", "SquareAverage", "RmsMomentum",   "SgdUpdate",
      "Assign",      "RmsUpdate", "AdamUpdate",  "WeightAverage", "RankGradients", "RankReduction"};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

std::map<NodeId, std::vector<NodeId>> find_groups(
    const Executable& executable, Entry entry, const Layout& layout,
    const std::function<std::string(NodeId)>& kind_of) {
  std::vector<Place> order;
  for (NodeId id : executable.entry(entry)) {
    const std::string kind = kind_of(id);
    const std::vector<Range> own = ranges_of(executable.graph, executable.graph.node(id), layout);
    size_t at = order.size();
    // Moves ahead past everything that it does not depend on and that does not depend on it.
    for (size_t before = order.size(); !kind.empty() && before > 0; --before) {
      const Place& place = order[before - 1];
      if (place.conflicts(own)) break;
      if (place.kind != kind) continue;
      at = before - 1;
      break;
    }
    if (at == order.size()) order.push_back({kind, {}, {}});
    order[at].nodes.push_back(id);
    order[at].ranges.insert(order[at].ranges.end(), own.begin(), own.end());
  }
  std::map<NodeId, std::vector<NodeId>> groups;
  for (const Place& place : order) {
    if (place.nodes.size() < 2) continue;
    groups[place.nodes.front()].assign(place.nodes.begin() + 1, place.nodes.end());
  }
  return groups;
}

}  // namespace halfscope::gpu
