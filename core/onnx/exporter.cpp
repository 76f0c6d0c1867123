// SPDX-License-Identifier: MIT
#include "core/onnx/exporter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/lower/execution.h"
#include "core/lower/narrow.h"
#include "core/numeric/formats/round.h"
#include "core/onnx/export.h"
#include "core/onnx/model_file.h"
#include "core/onnx/tensor_proto.h"
#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

void describe(::onnx::ValueInfoProto& info, const std::string& name, const Value& value,
              DataType real) {
  info.set_name(name);
  ::onnx::TypeProto::Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
  const DataType type = value.type == ElementType::index ? DataType::int64 : real;
  tensor.set_elem_type(static_cast<int32_t>(type));
  ::onnx::TensorShapeProto& shape = *tensor.mutable_shape();
  for (int64_t size : value.shape) shape.add_dim()->set_dim_value(size);
}

/// Returns whether the plan's accumulation matters for the node.
bool takes_sums(const Node& node) {
  constexpr std::array<std::string_view, 12> kSumming{"AveragePool",

                                                      "CumSum",
                                                      "GlobalAveragePool",
                                                      "GroupNormalization",
                                                      "InstanceNormalization",
                                                      "LayerNormalization",
                                                      "LogSoftmax",
                                                      "RMSNormalization",
                                                      "ReduceMean",
                                                      "ReduceSum",
                                                      "Softmax",
                                                      "SoftmaxCrossEntropyLoss"};
  return find_op(node.op).sums_products() ||
         std::find(kSumming.begin(), kSumming.end(), node.op) != kSumming.end();
}

}  // namespace

DataType needed_type(const FloatFormat& format, const std::string& what) {
  const std::optional<DataType> type = type_of(format);
  if (type && format.saturate && !is_float8(*type)) {
    throw Error(what + ": a Cast to " + type_name(*type) + " cannot saturate in ONNX",
                "remove \"overflow\": \"saturate\" for this node from the plan");
  }
  if (type) return *type;
  throw Error(what + ": ONNX has no type for " + format_name(format),
              "use float16, bfloat16 or an 8-bit format of OCP or AMD in the plan");
}

Exporter::Exporter(Graph graph, const NamedTensors& weights, PlanForm form)
    : graph_(std::move(graph)), weights_(weights), form_(form) {}

std::string Exporter::fresh(const std::string& wanted) {
  std::string name = wanted;
  for (int n = 2; !taken_.insert(name).second; ++n) name = wanted + "_" + std::to_string(n);
  return name;
}

::onnx::NodeProto& Exporter::add(const std::string& op, const std::string& name,
                                 const std::vector<std::string>& inputs,
                                 const std::vector<std::string>& outputs) {
  ::onnx::NodeProto& node = *file_.mutable_graph()->add_node();
  node.set_op_type(op);
  std::string own = name;
  for (int n = 2; !node_names_.insert(own).second; ++n) own = name + "_" + std::to_string(n);
  node.set_name(own);
  for (const std::string& input : inputs) node.add_input(input);
  for (const std::string& output : outputs) node.add_output(output);
  return node;
}

void Exporter::add_initializer(const KnownTensor& tensor, const std::string& name) {
  write_tensor(tensor, name, *file_.mutable_graph()->add_initializer());
}

std::string Exporter::constant(const Node& node, const std::string& what,
                               const KnownTensor& tensor) {
  const std::string name = fresh(node.path + "." + what);
  add_initializer(tensor, name);
  return name;
}

std::string Exporter::ints(const Node& node, const std::string& what, std::vector<int64_t> values) {
  return constant(node, what, known_list(std::move(values)));
}

std::string Exporter::scalar(const Node& node, const std::string& what, double value) {
  KnownTensor tensor;
  const FloatFormat format = format_of(compute_).value_or(kFp32);
  tensor.type = compute_;
  tensor.reals = {round_to_format(static_cast<float>(value), format).value};
  return constant(node, what, tensor);
}

std::string Exporter::cast(ValueId value, const std::string& suffix, DataType type) {
  const std::string name = name_of(value), result = fresh(name + suffix);
  ::onnx::NodeProto& cast = add("Cast", result, {name}, {result});
  set_attribute(cast, "to", static_cast<int64_t>(type));
  return result;
}

std::string Exporter::condition(ValueId value) {
  return is_boolean(value) ? name_of(value) : cast(value, "_bool", DataType::boolean);
}

std::string Exporter::integer(ValueId value) {
  return is_boolean(value) ? cast(value, "_int", DataType::int64) : name_of(value);
}

std::string Exporter::name_of(ValueId value) {
  if (value == kNone) return "";
  if (typed() && graph_.value(value).type == ElementType::real) return typed_name(value, compute_);
  if (!names_.contains(value)) add_source(value);
  return names_.at(value);
}

const Tensor& Exporter::weight(const Variable& variable) const {
  const auto found = weights_.find(variable.path);
  if (found == weights_.end()) throw Error("variable '" + variable.path + "' has no weights");
  if (found->second.shape != graph_.value(variable.value).shape) {
    throw Error("'" + variable.path + "' has shape " + to_string(found->second.shape) +
                ", but the network needs " + to_string(graph_.value(variable.value).shape));
  }
  return found->second;
}

/// Adds a Cast whose output is named `to`.
std::string Exporter::add_cast(const std::string& from, const std::string& to,
                               const FloatFormat& format) {
  const DataType type = needed_type(format, from);
  ::onnx::NodeProto& cast = add("Cast", to, {from}, {to});
  set_attribute(cast, "to", static_cast<int64_t>(type));
  if (is_float8(type)) set_attribute(cast, "saturate", int64_t{format.saturate});
  return to;
}

/// Writes a variable or a constant.
void Exporter::add_source(ValueId value) {
  if (const Variable* variable = graph_.variable_of(value)) {
    const Tensor& of = weight(*variable);
    const std::string name = fresh(variable->alias.empty() ? variable->path : variable->alias);
    names_[value] = name;
    KnownTensor tensor{.shape = of.shape, .reals = of.data};
    const FloatFormat& format = graph_.value(value).format;
    if (form_ == PlanForm::none || format == kFp32) {
      add_initializer(tensor, name);
      return;
    }
    tensor.type = needed_type(format, variable->path);
    add_initializer(tensor, name);
    names_[value] = add_cast(name, fresh(name + "_float"), kFp32);
    return;
  }
  for (const Constant& constant : graph_.constants()) {
    if (constant.value != value) continue;
    KnownTensor tensor{.shape = constant.tensor.shape};
    if (graph_.value(value).type == ElementType::index) {
      tensor.type = DataType::int64;
      tensor.ints.assign(constant.indices.begin(), constant.indices.end());
    } else {
      tensor.reals = constant.tensor.data;
    }
    const std::string name = fresh("constant_" + std::to_string(value));
    names_[value] = name;
    add_initializer(tensor, name);
    return;
  }
  throw Error("value " + std::to_string(value) +
              " is not an input, variable, constant or node output, so it cannot be exported");
}

/// Casts a value to its narrow format and back to float32.
void Exporter::round_output(ValueId value, const std::string& exact) {
  const Value& of = graph_.value(value);
  const Node& node = graph_.node(of.producer);
  if (of.rounding.mode != RoundingMode::nearest_even) {
    throw Error(node.path + ": ONNX can only round to nearest, not " + rounding_name(of.rounding));
  }
  const DataType type = needed_type(of.format, node.path);
  const std::string narrow = fresh(exact + "_" + type_name(type)), wide = fresh(exact + "_rounded");
  names_[value] = add_cast(add_cast(exact, narrow, of.format), wide, kFp32);
}

void Exporter::add_node(NodeId id) {
  const Node node = graph_.node(id);  // a copy, because expansions grow the graph
  const Accumulation& sums = node.plan.accumulation;
  // Sums of integers are exact, in double as in a runtime's 32-bit integers.
  const bool exact =
      sums == Accumulation::fp64 && scales_operands(node) && node.plan.read.evenly_spaced();
  if (form_ != PlanForm::none && takes_sums(node) && !exact &&
      (sums.kind != Accumulation::Kind::fp32 || !sums.is_single_chain())) {
    throw Error(node.path + " (" + node.op + "): ONNX cannot express how this operator accumulates",
                "export a plan that accumulates in fp32");
  }
  if (becomes_codes(node)) return;
  if (node.op == "Quantize") return add_quantize(node);
  if (node.op == "Dequantize") return name_values(node.outputs[0], names_.at(node.inputs[0]));
  if (typed()) return add_typed_node(node);
  if (node.op == "Cast") {
    names_[node.outputs[0]] = name_of(node.inputs[0]);
    if (graph_.value(node.outputs[0]).format != kFp32)
      round_output(node.outputs[0], names_[node.outputs[0]]);
    return;
  }
  std::vector<std::string> outputs;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const std::string suffix = i == 0 ? "" : ":" + std::to_string(i);
    outputs.push_back(fresh(node.path + "_out" + suffix));
  }
  if (export_node(*this, node, outputs)) {
    for (size_t i = 0; i < node.outputs.size(); ++i) names_[node.outputs[i]] = outputs[i];
  } else {
    add_composite(node);
  }
  for (ValueId result : node.outputs) {
    if (form_ != PlanForm::none && graph_.value(result).type == ElementType::real &&
        names_.contains(result) && needs_rounding(graph_, node, graph_.value(result))) {
      round_output(result, names_.at(result));
    }
  }
}

/// Returns an attention that one kernel computes as PyTorch's exporters write it, by which an
/// import knows it: both operands of its first product times the root of the scale.
Node Exporter::with_scaled_operands(Node node) {
  const double scale = real_attribute(node, "scale", 1.0);
  if (int_attribute(node, "one_kernel", 0) == 0 || scale < 0.0) return node;
  const ValueId root = graph_.add_constant(static_cast<float>(std::sqrt(scale)));
  node.inputs[0] = graph_.add1("Mul", node.path + "/q", {node.inputs[0], root});
  node.inputs[1] = graph_.add1("Mul", node.path + "/k", {node.inputs[1], root});
  node.attributes.erase("scale");
  return node;
}

/// Writes composites that opset 21 lacks as primitives. They compute in float32, as the fused
/// operator does internally.
void Exporter::add_composite(const Node& node) {
  const OpDef& def = find_op(node.op);
  if (def.expand == nullptr)
    throw Error(node.path + " (" + node.op + "): this operator cannot be exported to ONNX");
  const auto first = static_cast<NodeId>(graph_.nodes().size());
  const std::vector<ValueId> results = def.expand(graph_, with_scaled_operands(node));
  const NodeId last = graph_.value(results.at(0)).producer;
  if (last >= first) graph_.node(last).path = node.path;
  for (NodeId id = first; id < static_cast<NodeId>(graph_.nodes().size()); ++id) add_node(id);
  for (size_t i = 0; i < node.outputs.size() && i < results.size(); ++i) {
    if (results[i] == kNone) continue;
    compute_ = DataType::float32;
    names_[node.outputs[i]] = name_of(results[i]);
    types_[node.outputs[i]] = compute_;
  }
}

/// Writes a value under the output's name, through an Identity if the value must keep its own name.
void Exporter::name_output(const NamedValue& output) {
  const std::string name = name_of(output.value);
  bool made = false;
  for (::onnx::NodeProto& node : *file_.mutable_graph()->mutable_node()) {
    for (std::string& each : *node.mutable_output()) {
      if (each != name || fixed_.contains(name)) continue;
      each = output.name;
      made = true;
    }
  }
  if (!made) {
    add("Identity", output.name, {name}, {output.name});
    return;
  }
  for (::onnx::NodeProto& node : *file_.mutable_graph()->mutable_node()) {
    std::replace(node.mutable_input()->begin(), node.mutable_input()->end(), name, output.name);
  }
  names_[output.value] = output.name;
  for (auto& [value, copy] : copies_) {
    if (copy == name) copy = output.name;
  }
  fixed_.insert(output.name);
}

::onnx::ModelProto Exporter::run(const std::string& name, const std::vector<NodeId>& nodes,
                                 const std::vector<NamedValue>& inputs,
                                 const std::vector<NamedValue>& outputs) {
  file_.set_ir_version(10);  // the version for opset 21
  file_.set_producer_name("HalfScope");
  ::onnx::OperatorSetIdProto& opset = *file_.add_opset_import();
  opset.set_domain("");
  ::onnx::GraphProto& graph = *file_.mutable_graph();
  graph.set_name(name.empty() ? "network" : name);
  for (const NamedValue& output : outputs) {
    taken_.insert(output.name);
    outputs_.insert(output.value);
  }
  for (const NamedValue& input : inputs) {
    names_[input.value] = fresh(input.name);
    type_input(input.value, nodes);
    describe(*graph.add_input(), names_[input.value], graph_.value(input.value),
             types_.at(input.value));
    const Value& value = graph_.value(input.value);
    if (form_ == PlanForm::casts && value.type == ElementType::real && value.format != kFp32)
      throw Error("input '" + input.name + "' is stored in " + format_name(value.format) +
                  ", expected float32");
  }
  for (NodeId id : nodes) add_node(id);
  for (const NamedValue& output : outputs) {
    compute_ = DataType::float32;
    if (form_ == PlanForm::types_and_io && types_.contains(output.value))
      compute_ = types_.at(output.value);
    name_output(output);
    ::onnx::ValueInfoProto& info = *graph.add_output();
    describe(info, output.name, graph_.value(output.value), compute_);
    if (booleans_.contains(output.value)) {
      info.mutable_type()->mutable_tensor_type()->set_elem_type(
          static_cast<int32_t>(DataType::boolean));
    }
  }
  opset.set_version(has_bfloat16_ ? kBfloat16Opset : kExportOpset);
  return std::move(file_);
}

namespace {

/// Returns the nodes that the outputs depend on, in the order of the graph.
std::vector<NodeId> needed_nodes(const Graph& graph, const std::vector<NamedValue>& outputs) {
  std::set<ValueId> wanted;
  for (const NamedValue& output : outputs) wanted.insert(output.value);
  std::vector<NodeId> nodes;
  for (NodeId id = static_cast<NodeId>(graph.nodes().size()) - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    if (std::none_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId value) { return wanted.contains(value); })) {
      continue;
    }
    nodes.push_back(id);
    wanted.insert(node.inputs.begin(), node.inputs.end());
  }
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

/// Returns the inputs that the nodes read.
std::vector<NamedValue> read_inputs(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::vector<NamedValue> inputs;
  for (const Input& input : graph.inputs()) {
    const bool read = std::any_of(nodes.begin(), nodes.end(), [&](NodeId id) {
      const std::vector<ValueId>& of = graph.node(id).inputs;
      return std::find(of.begin(), of.end(), input.value) != of.end();
    });
    if (read) inputs.push_back({input.name, input.value});
  }
  return inputs;
}

}  // namespace
}  // namespace halfscope::onnx_files

namespace halfscope {

std::string onnx_bytes(const Model& model, const NamedTensors& weights) {
  std::vector<NamedValue> outputs = model.outputs;
  if (outputs.empty() && model.logits != kNone) outputs.push_back({"logits", model.logits});
  if (outputs.empty()) throw Error("network '" + model.name + "' has no outputs to export");
  const std::vector<NodeId> nodes = onnx_files::needed_nodes(model.graph, outputs);
  onnx_files::Exporter exporter(model.graph, weights, onnx_files::PlanForm::none);
  return onnx_files::model_bytes(
      exporter.run(model.name, nodes, onnx_files::read_inputs(model.graph, nodes), outputs),
      model.name);
}

std::string onnx_bytes(const Executable& executable, const std::string& name,
                       const NamedTensors& weights, ShownPlan shown) {
  using onnx_files::PlanForm;
  const PlanForm form = shown == ShownPlan::casts   ? PlanForm::casts
                        : shown == ShownPlan::types ? PlanForm::types
                                                    : PlanForm::types_and_io;
  const std::vector<NodeId>& nodes = executable.entry(Entry::eval);
  onnx_files::Exporter exporter(executable.graph, weights, form);
  return onnx_files::model_bytes(
      exporter.run(name, nodes, onnx_files::read_inputs(executable.graph, nodes),
                   executable.outputs),
      name);
}

}  // namespace halfscope
