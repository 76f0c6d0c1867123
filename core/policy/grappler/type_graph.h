// SPDX-License-Identifier: MIT
// The graph that is painted: one vertex per type attribute of each node, with an edge wherever a
// tensor goes from one to another. For the sources of this folder.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/policy/grappler/tf_graph.h"

namespace halfscope::grappler {

/// A type attribute of a node: "T", one type of a list ("dtypes[2]"), or the fixed type of operands
/// or results that have no attribute.
struct TypeId {
  std::string attr{};
  int index = -1;  ///< in the list; -1: not a list
  TfType fixed = 0;

  friend bool operator==(const TypeId&, const TypeId&) = default;
  std::string text() const;  ///< "T", "dtypes[2]", "variant"
};

struct TypeVertex {
  size_t node = 0;
  TypeId id{};
  TfType type = 0;
  std::vector<size_t> in_ports{}, out_ports{};
  std::vector<size_t> from{}, to{};  ///< ascending, without duplicates
};

/// One end of an edge between nodes.
struct Port {
  size_t node = 0, port = 0;
  friend bool operator==(const Port&, const Port&) = default;
};

class TypeGraph {
 public:
  /// Throws Error if an operator is unknown, an input does not exist, or a node has the wrong
  /// number of inputs or lacks a type.
  explicit TypeGraph(const TfGraph& graph);

  const std::vector<TypeVertex>& vertices() const noexcept { return vertices_; }
  const TypeVertex& vertex(size_t v) const { return vertices_.at(v); }
  /// Returns the range [first, end) of a node's vertices.
  std::pair<size_t, size_t> vertices_of(size_t node) const {
    return {first_.at(node), first_.at(node + 1)};
  }
  /// Returns the vertex, or SIZE_MAX.
  size_t find(size_t node, const TypeId& id) const;
  size_t of_input(Port input) const { return input_vertex_.at(input.node).at(input.port); }
  /// Returns the readers of an output, in the order of the nodes.
  const std::vector<Port>& readers(Port output) const;
  /// Returns what a node reads at a port that is not a control input.
  Port source(Port input) const { return sources_.at(input.node).at(input.port); }
  size_t inputs(size_t node) const { return sources_.at(node).size(); }
  const TfOp& op(size_t node) const { return *ops_.at(node); }

  void add_edges(const std::vector<std::pair<size_t, size_t>>& edges);

 private:
  void add_vertices(const TfGraph& graph, size_t node);
  size_t intern(size_t node, const TypeId& id, TfType type);

  std::vector<TypeVertex> vertices_;
  std::vector<size_t> first_;
  std::vector<const TfOp*> ops_;
  std::vector<std::vector<size_t>> input_vertex_, output_vertex_;
  std::vector<std::vector<Port>> sources_;
  std::vector<std::vector<std::vector<Port>>> readers_;
};

/// Splits "node:1" into the name and 1, "node" into the name and 0.
std::pair<std::string, size_t> parse_input(const std::string& input);
inline bool is_control(const std::string& input) { return input.starts_with('^'); }

}  // namespace halfscope::grappler
