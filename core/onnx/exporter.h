// SPDX-License-Identifier: MIT
// Exporter turns nodes of our graph into nodes of a file. For the sources of this folder.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/lower/lower.h"
#include "core/onnx/known_tensor.h"
#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

inline constexpr int64_t kExportOpset = 21;

class Exporter {
 public:
  /// `formats`: whether the graph's formats are shown by Casts.
  /// `weights` must outlive this.
  Exporter(Graph graph, const NamedTensors& weights, bool formats);

  /// The nodes in execution order that the outputs depend on.
  ::onnx::ModelProto run(const std::string& name, const std::vector<NodeId>& nodes,
                         const std::vector<NamedValue>& inputs,
                         const std::vector<NamedValue>& outputs);

  // For the rules of single operators.
  const Graph& graph() const { return graph_; }
  /// The name of a value; "" for an input left out.
  std::string name_of(ValueId value);
  /// An initializer "PATH.WHAT".
  std::string constant(const Node& node, const std::string& what, const KnownTensor& tensor);
  std::string ints(const Node& node, const std::string& what, std::vector<int64_t> values);
  std::string scalar(const Node& node, const std::string& what, double value);
  /// Booleans as Where and Not want them.
  std::string condition(ValueId value);
  /// Numbers as arithmetic wants them, where the file has booleans.
  std::string integer(ValueId value);
  /// The value as another type.
  std::string cast(ValueId value, const std::string& suffix, DataType type);
  ::onnx::NodeProto& add(const std::string& op, const std::string& name,
                         const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs);
  /// A name that no value has yet.
  std::string fresh(const std::string& wanted);
  void mark_boolean(ValueId value) { booleans_.insert(value); }
  bool is_boolean(ValueId value) const { return booleans_.contains(value); }

 private:
  void add_source(ValueId value);
  void add_node(NodeId id);
  void add_composite(const Node& node);
  void round_output(ValueId value, const std::string& exact);
  void name_output(const NamedValue& output);
  void add_initializer(const KnownTensor& tensor, const std::string& name);

  Graph graph_;  // a copy, which composites are expanded in
  const NamedTensors& weights_;
  bool formats_;
  ::onnx::ModelProto file_;
  std::map<ValueId, std::string> names_;
  std::set<std::string> taken_, node_names_;
  std::set<std::string> fixed_;  ///< names of outputs
  std::set<ValueId> booleans_;
};

/// Adds the node's operator; `outputs` are the names of what it makes. False for operators that
/// have no counterpart in ONNX.
bool export_node(Exporter& exporter, const Node& node, const std::vector<std::string>& outputs);

void set_attribute(::onnx::NodeProto& node, const std::string& name, int64_t value);
void set_attribute(::onnx::NodeProto& node, const std::string& name, double value);
void set_attribute(::onnx::NodeProto& node, const std::string& name, const std::string& value);
void set_attribute(::onnx::NodeProto& node, const std::string& name,
                   const std::vector<int64_t>& values);

}  // namespace halfscope::onnx_files
