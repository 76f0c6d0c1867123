// SPDX-License-Identifier: MIT
// Exporter turns nodes of our graph into nodes of a file. For the sources of this folder.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"
#include "core/lower/lower.h"
#include "core/onnx/known_tensor.h"
#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

/// The later one is for operators on bfloat16: only from there on do Conv, pools and others take
/// it.
inline constexpr int64_t kExportOpset = 21, kBfloat16Opset = 22;

/// What a file says of the graph's formats.
enum class PlanForm : uint8_t {
  none,
  casts,  ///< operators compute in float32; a Cast and one back stand where values round
  types,  ///< tensors and operators have the formats for types; inputs and outputs are float32
  types_and_io,  ///< inputs and outputs, too
};

class Exporter {
 public:
  /// `weights` must outlive this.
  Exporter(Graph graph, const NamedTensors& weights, PlanForm form);

  /// The nodes in execution order that the outputs depend on.
  ::onnx::ModelProto run(const std::string& name, const std::vector<NodeId>& nodes,
                         const std::vector<NamedValue>& inputs,
                         const std::vector<NamedValue>& outputs);

  // For the rules of single operators.
  const Graph& graph() const { return graph_; }
  /// The name of a value, in the type that the node computes in; "" for an input left out.
  std::string name_of(ValueId value);
  /// The name of a value that the node may read in another type than others.
  std::string stored_name_of(ValueId value);
  /// The type that the current node computes reals in.
  DataType real_type() const { return compute_; }
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
  /// Of a variable; checked.
  const Tensor& weight(const Variable& variable) const;
  std::string add_cast(const std::string& from, const std::string& to, const FloatFormat& format);

  // Of PlanForm::types.
  bool typed() const { return form_ >= PlanForm::types; }
  std::string typed_name(ValueId value, DataType type);
  bool is_source(ValueId value) const;
  KnownTensor source_values(ValueId value) const;
  DataType type_to_compute(const Node& node) const;
  void add_typed_node(const Node& node);
  void add_typed_cast(const Node& node);
  void narrow_result(const Node& node, ValueId value);
  void type_input(ValueId value, const std::vector<NodeId>& nodes);

  Graph graph_;  // a copy, which composites are expanded in
  const NamedTensors& weights_;
  PlanForm form_;
  DataType compute_ = DataType::float32;
  std::map<ValueId, DataType> types_;  ///< of names_
  /// Names of a value in other types.
  std::map<std::pair<ValueId, DataType>, std::string> copies_;
  /// Casts of variables and constants, which are initializers: what they round.
  std::map<ValueId, ValueId> rounded_sources_;
  bool has_bfloat16_ = false;
  ::onnx::ModelProto file_;
  std::map<ValueId, std::string> names_;
  std::set<std::string> taken_, node_names_;
  std::set<std::string> fixed_;  ///< names of outputs
  std::set<ValueId> booleans_;
};

/// The type of a format. Throws Error naming `what` if ONNX has none.
DataType needed_type(const FloatFormat& format, const std::string& what);

/// Adds the node's operator; `outputs` are the names of what it makes. False for operators that
/// have no counterpart in ONNX.
bool export_node(Exporter& exporter, const Node& node, const std::vector<std::string>& outputs);

void set_attribute(::onnx::NodeProto& node, const std::string& name, int64_t value);
void set_attribute(::onnx::NodeProto& node, const std::string& name, double value);
void set_attribute(::onnx::NodeProto& node, const std::string& name, const std::string& value);
void set_attribute(::onnx::NodeProto& node, const std::string& name,
                   const std::vector<int64_t>& values);
void set_attribute(::onnx::NodeProto& node, const std::string& name, const KnownTensor& value);

}  // namespace halfscope::onnx_files
