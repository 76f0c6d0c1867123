// SPDX-License-Identifier: MIT
// Exporter turns nodes of our graph into nodes of a file. Internal to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"
#include "core/lower/lower.h"
#include "core/onnx/known_tensor.h"
#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

/// Opsets of exported files. kBfloat16Opset is for operators on bfloat16: Conv, pools and others
/// only support it from this opset on.
inline constexpr int64_t kExportOpset = 21, kBfloat16Opset = 22;

/// How a file expresses the graph's formats.
enum class PlanForm : uint8_t {
  none,
  casts,  ///< operators compute in float32; a Cast and one back where values round
  types,  ///< tensors and operators have the formats as types; inputs and outputs are float32
  types_and_io,  ///< inputs and outputs have them, too
};

class Exporter {
 public:
  /// `weights` must outlive this.
  Exporter(Graph graph, const NamedTensors& weights, PlanForm form);

  /// Exports `nodes`, the nodes that the outputs depend on, in execution order.
  ::onnx::ModelProto run(const std::string& name, const std::vector<NodeId>& nodes,
                         const std::vector<NamedValue>& inputs,
                         const std::vector<NamedValue>& outputs);

  // For the functions that export single operators.
  const Graph& graph() const { return graph_; }
  /// Returns the name of a value in the type that the node computes in; "" for a missing input.
  std::string name_of(ValueId value);
  /// Returns the name of a value that the node may read in a different type than its other inputs.
  std::string stored_name_of(ValueId value);
  /// Returns the type that the current node computes reals in.
  DataType real_type() const { return compute_; }
  /// Adds an initializer "PATH.WHAT" and returns its name; so do ints() and scalar().
  std::string constant(const Node& node, const std::string& what, const KnownTensor& tensor);
  std::string ints(const Node& node, const std::string& what, std::vector<int64_t> values);
  std::string scalar(const Node& node, const std::string& what, double value);
  /// Returns the name of a value as booleans, for Where and Not.
  std::string condition(ValueId value);
  /// Returns the name of a value as integers, for arithmetic, if the file has it as booleans.
  std::string integer(ValueId value);
  /// Adds a Cast of the value to another type.
  std::string cast(ValueId value, const std::string& suffix, DataType type);
  ::onnx::NodeProto& add(const std::string& op, const std::string& name,
                         const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs);
  /// Returns an unused name for a value.
  std::string fresh(const std::string& wanted);
  void mark_boolean(ValueId value) { booleans_.insert(value); }
  bool is_boolean(ValueId value) const { return booleans_.contains(value); }

 private:
  void add_source(ValueId value);
  void add_node(NodeId id);
  void add_composite(const Node& node);
  Node with_scaled_operands(Node node);
  void round_output(ValueId value, const std::string& exact);
  void name_output(const NamedValue& output);
  void add_initializer(const KnownTensor& tensor, const std::string& name);
  /// Returns the weight of a variable. Throws Error if it is missing or has another shape.
  const Tensor& weight(const Variable& variable) const;
  std::string add_cast(const std::string& from, const std::string& to, const FloatFormat& format);

  // Scaled operands (exporter_quantize.cpp).
  void add_quantize(const Node& node);
  void name_values(ValueId codes, const std::string& name);
  /// A weight or constant as codes.
  struct Codes;
  std::optional<Codes> known_codes(const Node& node) const;
  bool is_known(ValueId value) const;
  bool becomes_codes(const Node& node) const;
  std::vector<float> copied_values(ValueId value) const;

  // For PlanForm::types and types_and_io.
  bool typed() const { return form_ >= PlanForm::types; }
  std::string typed_name(ValueId value, DataType type);
  bool is_source(ValueId value) const;
  KnownTensor source_values(ValueId value) const;
  DataType type_to_compute(const Node& node) const;
  void add_typed_node(const Node& node);
  void add_typed_cast(const Node& node);
  void narrow_result(const Node& node, ValueId value);
  void type_input(ValueId value, const std::vector<NodeId>& nodes);

  Graph graph_;  // a copy in which composites are expanded
  const NamedTensors& weights_;
  PlanForm form_;
  DataType compute_ = DataType::float32;
  std::map<ValueId, DataType> types_;  ///< types of names_
  /// Names of a value in other types.
  std::map<std::pair<ValueId, DataType>, std::string> copies_;
  /// Casts of variables and constants, which become initializers, with the values they round.
  std::map<ValueId, ValueId> rounded_sources_;
  std::set<ValueId> outputs_;
  bool has_bfloat16_ = false;
  ::onnx::ModelProto file_;
  std::map<ValueId, std::string> names_;
  std::set<std::string> taken_, node_names_;
  std::set<std::string> fixed_;  ///< names of outputs
  std::set<ValueId> booleans_;
};

/// Returns the type of a format. Throws Error naming `what` if ONNX has none.
DataType needed_type(const FloatFormat& format, const std::string& what);

/// Adds the node's operator; `outputs` are the names of its outputs. Returns false for operators
/// without a counterpart in ONNX.
bool export_node(Exporter& exporter, const Node& node, const std::vector<std::string>& outputs);

void set_attribute(::onnx::NodeProto& node, const std::string& name, int64_t value);
void set_attribute(::onnx::NodeProto& node, const std::string& name, double value);
void set_attribute(::onnx::NodeProto& node, const std::string& name, const std::string& value);
void set_attribute(::onnx::NodeProto& node, const std::string& name,
                   const std::vector<int64_t>& values);
void set_attribute(::onnx::NodeProto& node, const std::string& name, const KnownTensor& value);

}  // namespace halfscope::onnx_files
