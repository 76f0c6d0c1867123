// SPDX-License-Identifier: MIT
// Importer walks the nodes of a model: nodes with known inputs are folded, the translators
// (translate.h) turn the rest into nodes of our graph. Internal to this folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/onnx/batch_axis.h"
#include "core/onnx/fold.h"
#include "core/onnx/function_attributes.h"
#include "core/onnx/import.h"
#include "core/onnx/known_tensor.h"
#include "core/onnx/module_names.h"
#include "core/onnx/node_attributes.h"
#include "core/onnx/proto.h"
#include "core/onnx/readings.h"

namespace halfscope::onnx_files {

/// Attribute of nodes that compute in float32 whatever the type of their results is; 1 if results
/// beyond the range become the type's largest number, 0 if they overflow.
inline constexpr const char* kComputesCodes = "computes_codes";

/// The value behind a name of a file.
struct Binding {
  std::string name;
  std::shared_ptr<const KnownTensor> known{};  ///< null if it is computed at run time
  ValueId value = kNone;     ///< of known tensors: set once a node computes with it
  ValueId as_index = kNone;  ///< known integers that a node uses as indices
  DataType type = DataType::float32;
  bool trainable = false;              ///< an initializer that trains
  bool frozen = false;                 ///< does not train, even as a weight
  bool turned = false;                 ///< transpose of the user's parameter
  bool computed = false;               ///< computed by the exporter, so its elements may repeat
  std::string parameter{};             ///< the user's name: "layer1.0.conv1.weight"
  std::shared_ptr<Binding> form_of{};  ///< the parameter that it is computed from, see `form`
  Reading form{};
  /// The elements, for a list of tensors; all other members are then unused.
  std::shared_ptr<const std::vector<std::shared_ptr<Binding>>> sequence{};
  /// The value for the whole batch, if a known tensor depends on the number of samples.
  std::shared_ptr<const KnownTensor> several{};
  /// Set if intermediate roundings change a known tensor: adds the nodes that compute it in each
  /// lane's formats.
  std::function<ValueId()> at_run_time{};
};
using BindingPtr = std::shared_ptr<Binding>;

/// Names of one graph; names of the enclosing graphs are visible, too.
struct Scope {
  const Scope* outer = nullptr;
  std::string prefix{};  ///< of node paths: "call1/"
  std::unordered_map<std::string, BindingPtr> names{};

  BindingPtr find(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      if (const auto found = scope->names.find(name); found != scope->names.end())
        return found->second;
    }
    return nullptr;
  }
};

class Translation;

class Importer {
 public:
  /// `file` must outlive this; elements of its tensors are freed once they are read.
  Importer(::onnx::ModelProto& file, std::string name, std::filesystem::path folder,
           ImportOptions options);
  /// Imports the file. May be called once.
  OnnxImport run();

  Graph& graph() { return model_.graph; }
  const ImportOptions& options() const { return options_; }
  int64_t opset() const { return opset_; }
  /// Returns whether some node of the file is in training mode.
  bool is_training_export() const;

  /// Returns the binding's value as an operand. A known tensor becomes a variable "PATH.ROLE" if it
  /// is trainable or `weight` marks it as a weight, else a constant. Throws Error naming `what` for
  /// integers that are computed at run time.
  ValueId real_value(Binding& binding, const std::string& path, const std::string& role,
                     bool weight, const std::string& what);
  ValueId index_value(Binding& binding, const std::string& what);
  /// Adds a buffer "PATH.ROLE" that starts from the known tensor.
  ValueId buffer(const KnownTensor& start, const std::string& path, const std::string& role);
  void set_buffer_next(ValueId buffer, ValueId next);

  /// Adds a node and checks the sizes of its outputs.
  std::vector<ValueId> add(const std::string& op, const std::string& path,
                           std::vector<ValueId> inputs, Attributes attributes);
  /// Returns an unused node path.
  std::string unique_path(const std::string& wanted);
  void note(const std::string& text);
  /// Sets the type that a node writes, if it differs from that of its translation.
  void set_node_type(const std::string& path, DataType type) { node_types_[path] = type; }

  /// Returns the object that follows the samples if the file fixes the batch at 1 and the options
  /// request more; null otherwise, and once the samples cannot be followed.
  SampleAxes* samples() {
    return samples_ != nullptr && samples_->refusal().empty() ? samples_.get() : nullptr;
  }

 private:
  void check_operators() const;
  TensorPtr initializer(const ::onnx::TensorProto& proto) const;
  void bind_initializer(const ::onnx::TensorProto& proto, TensorPtr tensor, Scope& scope);
  void read_inputs(const ::onnx::GraphProto& graph, Scope& scope);
  BindingPtr binding_of(const Reading& reading, const BindingPtr& stored);
  void restore_bias(const ::onnx::NodeProto& node, const NodeAttributes& attributes,
                    std::vector<BindingPtr>& inputs) const;
  ValueId variable(Binding& binding, const std::string& wanted);
  ValueId form(const Binding& binding, const std::string& wanted);
  Shape input_shape(const ::onnx::ValueInfoProto& input);
  bool fixed_at_one(const ::onnx::ValueInfoProto& input, const Shape& shape) const;
  bool is_index_input(const std::string& name) const;
  void run_nodes(const google::protobuf::RepeatedPtrField<::onnx::NodeProto>& nodes, Scope& scope,
                 int depth);
  void run_node(const ::onnx::NodeProto& node, Scope& scope, int depth);
  void run_branch(const ::onnx::NodeProto& node, const NodeAttributes& attributes, Scope& scope,
                  const std::string& path, const std::string& what, int depth);
  struct Unrolled;
  /// Unrolls Loop, Scan and operators on lists of tensors; returns false for others.
  bool run_unrolled(const ::onnx::NodeProto& node, const NodeAttributes& attributes,
                    const std::vector<BindingPtr>& inputs, Scope& scope, const std::string& path,
                    const std::string& what, int depth);
  void run_function(const ::onnx::NodeProto& node, const ::onnx::FunctionProto& function,
                    Scope& scope, const std::string& path, const std::string& what, int depth);
  const ::onnx::FunctionProto* find_function(const ::onnx::NodeProto& node) const;
  bool fold_node(const ::onnx::NodeProto& node, const NodeAttributes& attributes,
                 const std::vector<BindingPtr>& inputs, Scope& scope, const std::string& what);
  std::shared_ptr<const KnownTensor> fold_with_batch(const FoldCall& call,
                                                     const std::vector<BindingPtr>& inputs,
                                                     const KnownTensor& one, size_t output);
  void take_batch(OnnxImport& result);
  bool is_one(ValueId value) const;
  void bind(Scope& scope, const std::string& name, BindingPtr binding, const std::string& what);
  /// Returns why there is no such value, for errors.
  std::string why_missing(const std::string& value) const;
  void read_outputs(const ::onnx::GraphProto& graph, const Scope& scope);
  void give_weights();
  /// Returns the network with several nodes as one where they are one operator.
  Model composed();
  DataType type_of_node(const Node& node) const;
  FloatFormat format_of_node(const Node& node) const;
  void add_inner_types(const Node& node, Plan& plan) const;
  void add_cast_numbers(const Node& node, const std::map<ValueId, float>& numbers,
                        Plan& plan) const;
  Plan types_of(const Graph& graph) const;
  std::vector<BindingPtr> translated(void (*translate)(Translation&), const ::onnx::NodeProto& node,
                                     const NodeAttributes& attributes,
                                     const std::vector<BindingPtr>& inputs, const std::string& path,
                                     const std::string& what);
  /// Notes which function of PyTorch the nodes from number `first` on come from, if the file says
  /// so.
  void note_function(const ::onnx::NodeProto& node, size_t first);
  /// Returns whether the node only changes the format of its input, under autocast.
  bool casts_in_code(const ::onnx::NodeProto& node) const;
  void compute_at_run_time(Binding& binding, const ::onnx::NodeProto& node,
                           const std::vector<BindingPtr>& inputs, const std::string& prefix,
                           int output);
  std::string module_of(const ::onnx::NodeProto& node, const NodeOrigin& origin) const;
  void list_parameters(OnnxImport& result) const;
  std::string variable_path(const std::string& wanted);

  ::onnx::ModelProto& file_;
  std::string name_;
  std::filesystem::path folder_;
  ImportOptions options_;
  int64_t opset_ = 0;
  int64_t fixed_batch_ = 0;               ///< first dimension of inputs, if the file fixes it
  std::string open_batch_, given_batch_;  ///< members of OnnxImport
  std::map<std::string, std::string> input_types_;  ///< member of OnnxImport
  Model model_;
  std::unique_ptr<SampleAxes> samples_;
  std::map<std::string, TensorPtr> starts_;            ///< future Model::initial
  std::map<std::string, int> paths_, variable_paths_;  ///< number of requests for each path
  std::set<std::string> used_dimensions_;
  std::map<const ::onnx::FunctionProto*, AttributeList> function_defaults_;
  Initializers initializers_;  ///< of the file's own graph
  Origins origins_;
  Readings readings_;
  ModuleOfPath modules_;
  std::map<std::string, std::string> calls_;         ///< of PyTorch, by node path
  std::map<std::string, std::string> kernel_calls_;  ///< only of functions that are one kernel
  std::set<std::string> copies_;                     ///< paths of nodes with NodeOrigin::reads_copy
  std::map<std::string, BindingPtr> identities_;     ///< of readings
  std::set<std::string> turned_;                     ///< variables of turned bindings
  std::map<std::string, std::string> left_out_;      ///< outputs that we do not compute, described
  std::map<std::string, DataType> node_types_;       ///< types that nodes write, by path
  std::map<DataType, int64_t> weight_types_;         ///< elements of trainable initializers
  std::vector<std::string> notes_;
  int64_t elements_ = 0;  ///< of all tensors
  int64_t folded_ = 0;    ///< elements computed while reading
  size_t nodes_run_ = 0;
};

}  // namespace halfscope::onnx_files
