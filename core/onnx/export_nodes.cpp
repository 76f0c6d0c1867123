// SPDX-License-Identifier: MIT
// How our operators are written in opset 21: which of our attributes are inputs there.
#include <algorithm>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "core/lower/narrow.h"
#include "core/onnx/exporter.h"
#include "core/onnx/tensor_proto.h"
#include "core/ops/ops.h"
#include "core/ops/softmax.h"

namespace halfscope::onnx_files {
namespace {

using Names = std::vector<std::string>;

/// Returns whether the operator moves the elements of operand i.
bool is_moved(const Node& node, size_t i) {
  const auto& moved = find_op(node.op).moves;
  return i >= moved.first && i < moved.end;
}

/// Returns whether the node only moves booleans; if so, its output is boolean too.
bool moves_booleans(Exporter& e, const Node& node) {
  bool moves = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!is_moved(node, i)) continue;
    if (!e.is_boolean(node.inputs[i])) return false;
    moves = true;
  }
  return moves;
}

/// Returns the name of an operand. Booleans stay booleans if they are moved or compared with each
/// other; all other operators read them as numbers.
std::string operand(Exporter& e, const Node& node, size_t i) {
  const bool equals =
      node.op == "Equal" && e.is_boolean(node.inputs[0]) && e.is_boolean(node.inputs[1]);
  const bool stays = equals || (is_moved(node, i) && moves_booleans(e, node));
  const bool index =
      node.inputs[i] != kNone && e.graph().value(node.inputs[i]).type == ElementType::index;
  return index && !stays ? e.integer(node.inputs[i]) : e.name_of(node.inputs[i]);
}

/// Without the scales of a product's operands, which DequantizeLinear has applied.
Names input_names(Exporter& e, const Node& node) {
  Names names;
  const size_t count = find_op(node.op).sums_products()
                           ? std::min(node.inputs.size(), kFirstScaleInput)
                           : node.inputs.size();
  for (size_t i = 0; i < count; ++i) names.push_back(operand(e, node, i));
  while (!names.empty() && names.back().empty()) names.pop_back();
  return names;
}

/// Copies attributes under their own names.
void copy_attributes(const Node& node, ::onnx::NodeProto& proto,
                     std::initializer_list<const char*> which) {
  for (const char* name : which) {
    const auto found = node.attributes.find(name);
    if (found == node.attributes.end()) continue;
    std::visit([&](const auto& value) { set_attribute(proto, name, value); }, found->second);
  }
}

/// Writes an operator that is the same in ONNX.
void same(Exporter& e, const Node& node, const Names& outputs) {
  ::onnx::NodeProto& proto = e.add(node.op, node.path, input_names(e, node), {outputs[0]});
  for (const OnnxAttribute& each : find_op(node.op).onnx.attributes)
    copy_attributes(node, proto, {each.name});
}

/// Writes a bias as PyTorch's exporters do, so that an import takes it into the product again.
void mat_mul(Exporter& e, const Node& node, const Names& outputs) {
  Names inputs = input_names(e, node);
  if (inputs.size() < 3) return same(e, node, outputs);
  const std::string product = e.fresh(node.path + "/product");
  e.add("MatMul", product, {inputs[0], inputs[1]}, {product});
  e.add("Add", node.path, {inputs[2], product}, outputs);
}

void reshape(Exporter& e, const Node& node, const Names& outputs) {
  const Shape& shape = e.graph().value(node.outputs[0]).shape;
  const std::string target = e.ints(node, "shape", shape);
  ::onnx::NodeProto& proto = e.add("Reshape", node.path, {operand(e, node, 0), target}, outputs);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    set_attribute(proto, "allowzero", int64_t{1});
}

void expand(Exporter& e, const Node& node, const Names& outputs) {
  const std::string shape = e.ints(node, "shape", e.graph().value(node.outputs[0]).shape);
  e.add("Expand", node.path, {operand(e, node, 0), shape}, outputs);
}

void slice(Exporter& e, const Node& node, const Names& outputs) {
  const std::vector<int64_t> starts = ints_attribute(node, "starts");
  std::vector<int64_t> axes(starts.size());
  std::iota(axes.begin(), axes.end(), int64_t{0});
  const Names inputs{
      operand(e, node, 0), e.ints(node, "starts", starts),
      e.ints(node, "ends", ints_attribute(node, "ends")),
      e.ints(node, "axes", ints_attribute(node, "axes", axes)),
      e.ints(node, "steps", ints_attribute(node, "steps", std::vector<int64_t>(starts.size(), 1)))};
  e.add("Slice", node.path, inputs, outputs);
}

void split(Exporter& e, const Node& node, const Names& outputs) {
  const std::string sizes = e.ints(node, "split", ints_attribute(node, "split"));
  copy_attributes(node, e.add("Split", node.path, {operand(e, node, 0), sizes}, outputs), {"axis"});
}

void pad(Exporter& e, const Node& node, const Names& outputs) {
  Names inputs{operand(e, node, 0), e.ints(node, "pads", ints_attribute(node, "pads"))};
  const double value = real_attribute(node, "value", 0.0);
  const bool index = e.graph().value(node.outputs[0]).type == ElementType::index;
  if (value != 0.0) {
    inputs.push_back(index
                         ? e.constant(node, "value", known_ints({static_cast<int64_t>(value)}, {}))
                         : e.scalar(node, "value", value));
  }
  e.add("Pad", node.path, inputs, outputs);
}

void reduce(Exporter& e, const Node& node, const Names& outputs) {
  const size_t rank = e.graph().value(node.inputs[0]).shape.size();
  const std::string axes = e.ints(node, "axes", reduction_axes(node, rank));
  ::onnx::NodeProto& proto = e.add(node.op, node.path, {operand(e, node, 0), axes}, outputs);
  set_attribute(proto, "keepdims", int_attribute(node, "keepdims", 1));
}

void clip(Exporter& e, const Node& node, const Names& outputs) {
  Names inputs{e.name_of(node.inputs[0])};
  const auto limit = [&](const char* name) {
    return node.attributes.contains(name) ? e.scalar(node, name, real_attribute(node, name, 0.0))
                                          : std::string();
  };
  inputs.push_back(limit("min"));
  inputs.push_back(limit("max"));
  while (inputs.back().empty()) inputs.pop_back();
  e.add("Clip", node.path, inputs, outputs);
}

void cumulative_sum(Exporter& e, const Node& node, const Names& outputs) {
  // The axis is a scalar.
  KnownTensor axis = known_ints({int_attribute(node, "axis", 0)}, {});
  const std::string name = e.constant(node, "axis", axis);
  ::onnx::NodeProto& proto = e.add("CumSum", node.path, {operand(e, node, 0), name}, outputs);
  copy_attributes(node, proto, {"exclusive", "reverse"});
}

void gelu(Exporter& e, const Node& node, const Names& outputs) {
  ::onnx::NodeProto& proto = e.add("Gelu", node.path, input_names(e, node), outputs);
  if (int_attribute(node, "tanh", 0) != 0) set_attribute(proto, "approximate", std::string("tanh"));
}

/// Writes it as in inference, whatever its mode in the graph.
void batch_normalization(Exporter& e, const Node& node, const Names& outputs) {
  Names inputs{e.name_of(node.inputs[0])};
  for (size_t i = 1; i < node.inputs.size(); ++i)
    inputs.push_back(e.stored_name_of(node.inputs[i]));
  ::onnx::NodeProto& proto = e.add("BatchNormalization", node.path, inputs, {outputs[0]});
  copy_attributes(node, proto, {"epsilon", "momentum"});
}

/// Writes a softmax that gives zeros for fully masked rows, in the form of PyTorch's exporters.
void softmax(Exporter& e, const Node& node, const Names& outputs) {
  if (!zeroes_masked_lines(node)) return same(e, node, outputs);
  const std::string line = e.fresh(node.path + "/softmax"), none = e.fresh(node.path + "/is_nan");
  copy_attributes(node, e.add("Softmax", line, input_names(e, node), {line}), {"axis"});
  e.add("IsNaN", none, {line}, {none});
  e.add("Where", node.path, {none, e.scalar(node, "masked", 0.0), line}, {outputs[0]});
}

void where(Exporter& e, const Node& node, const Names& outputs) {
  e.add("Where", node.path, {e.condition(node.inputs[0]), operand(e, node, 1), operand(e, node, 2)},
        outputs);
}

void compare(Exporter& e, const Node& node, const Names& outputs) {
  e.add(node.op, node.path, input_names(e, node), outputs);
  e.mark_boolean(node.outputs[0]);
}

void arg_max(Exporter& e, const Node& node, const Names& outputs) {
  // ONNX Runtime has no ArgMax kernel for int64.
  const bool index = e.graph().value(node.inputs[0]).type == ElementType::index;
  const std::string x =
      index ? e.cast(node.inputs[0], "_int32", DataType::int32) : e.name_of(node.inputs[0]);
  copy_attributes(node, e.add("ArgMax", node.path, {x}, outputs),
                  {"axis", "keepdims", "select_last_index"});
}

void arg_sort(Exporter& e, const Node& node, const Names& outputs) {
  const int64_t axis = axis_attribute(node, e.graph().value(node.inputs[0]).shape.size(), -1);
  const int64_t count = e.graph().value(node.outputs[0]).shape[static_cast<size_t>(axis)];
  ::onnx::NodeProto& proto =
      e.add("TopK", node.path, {e.name_of(node.inputs[0]), e.ints(node, "count", {count})},
            {node.path + "/sorted", outputs[0]});
  set_attribute(proto, "axis", axis);
}

void convert(Exporter& e, const Node& node, const Names& outputs) {
  ::onnx::NodeProto& proto = e.add("Cast", node.path, {e.name_of(node.inputs[0])}, outputs);
  const DataType to = node.op == "IndexToReal" ? e.real_type() : DataType::int64;
  set_attribute(proto, "to", static_cast<int64_t>(to));
}

void logical(Exporter& e, const Node& node, const Names& outputs) {
  Names inputs;
  for (ValueId input : node.inputs) inputs.push_back(e.condition(input));
  e.add(node.op, node.path, inputs, outputs);
  e.mark_boolean(node.outputs[0]);
}

void gather_elements(Exporter& e, const Node& node, const Names& outputs) {
  if (int_attribute(node, "labels", 0) != 0)
    throw Error(node.path + " (GatherElements): picking by labels cannot be exported to ONNX");
  ::onnx::NodeProto& proto = e.add("GatherElements", node.path, input_names(e, node), outputs);
  copy_attributes(node, proto, {"axis"});
}

/// Scattered sums in forward nodes come from gradients of gathers.
void scattered_sums(Exporter& e, const Node& node, const Names& outputs) {
  // This is not an initializer, because training could change an initializer.
  const std::string data = node.path + "/zeros";
  const std::string shape = e.ints(node, "shape", e.graph().value(node.outputs[0]).shape);
  ::onnx::NodeProto& zeros = e.add("ConstantOfShape", data, {shape}, {data});
  if (e.real_type() != DataType::float32) {
    set_attribute(zeros, "value",
                  KnownTensor{.type = e.real_type(), .shape = {1}, .reals = {0.0f}});
  }
  const std::string updates = operand(e, node, 0);
  const std::string indices = operand(e, node, 1);
  if (node.op == "GatherElementsGrad") {
    ::onnx::NodeProto& proto =
        e.add("ScatterElements", node.path, {data, indices, updates}, outputs);
    copy_attributes(node, proto, {"axis"});
    set_attribute(proto, "reduction", std::string("add"));
    return;
  }
  if (int_attribute(node, "axis", 0) != 0)
    throw Error(node.path + " (GatherGrad): sums along another axis cannot be exported to ONNX");
  const Names tuples{node.path + "/tuples"};
  e.add("Unsqueeze", node.path + "/tuples", {indices, e.ints(node, "last", {-1})}, tuples);
  ::onnx::NodeProto& proto = e.add("ScatterND", node.path, {data, tuples[0], updates}, outputs);
  set_attribute(proto, "reduction", std::string("add"));
}

/// A convolution's gradient in forward nodes comes from a ConvTranspose.
void conv_transpose(Exporter& e, const Node& node, const Names& outputs) {
  const Graph& graph = e.graph();
  const Shape& x = graph.value(node.inputs[0]).shape;
  const Shape& w = graph.value(node.inputs[1]).shape;
  const Shape& y = graph.value(node.outputs[0]).shape;
  const ConvWindow window = conv_window(node);
  const std::vector<int64_t> extra{
      y[2] - ((x[2] - 1) * window.stride_h + window.dilation_h * (w[2] - 1) + 1 - window.pad_top -
              window.pad_bottom),
      y[3] - ((x[3] - 1) * window.stride_w + window.dilation_w * (w[3] - 1) + 1 - window.pad_left -
              window.pad_right)};
  ::onnx::NodeProto& proto = e.add("ConvTranspose", node.path, input_names(e, node), outputs);
  copy_attributes(node, proto, {"strides", "dilations", "pads", "group"});
  set_attribute(proto, "output_padding", extra);
}

void identity(Exporter& e, const Node& node, const Names& outputs) {
  e.add("Identity", node.path, {operand(e, node, 0)}, outputs);
}

struct Rule {
  std::string_view op;
  void (*run)(Exporter&, const Node&, const Names&);
};
constexpr Rule kRules[] = {
    {"MatMul", mat_mul},
    {"Reshape", reshape},
    {"Expand", expand},
    {"Slice", slice},
    {"Split", split},
    {"Pad", pad},
    {"ReduceSum", reduce},
    {"ReduceMean", reduce},
    {"ReduceMax", reduce},
    {"ReduceMin", reduce},
    {"Clip", clip},
    {"CumSum", cumulative_sum},
    {"Gelu", gelu},
    {"BatchNormalization", batch_normalization},
    {"Softmax", softmax},
    {"Where", where},
    {"ArgMax", arg_max},
    {"ArgSort", arg_sort},
    {"IndexToReal", convert},
    {"RealToIndex", convert},
    {"Equal", compare},
    {"Less", compare},
    {"LessOrEqual", compare},
    {"Greater", compare},
    {"GreaterOrEqual", compare},
    {"And", logical},
    {"Or", logical},
    {"Not", logical},
    {"GatherElements", gather_elements},
    {"ConvGradInput", conv_transpose},
    {"GatherGrad", scattered_sums},
    {"GatherElementsGrad", scattered_sums},
    {"StopGradient", identity},
    {"Dropout", identity},  // files are for inference
};

}  // namespace

bool export_node(Exporter& exporter, const Node& node, const std::vector<std::string>& outputs) {
  if (moves_booleans(exporter, node)) {
    for (ValueId output : node.outputs) exporter.mark_boolean(output);
  }
  for (const Rule& rule : kRules) {
    if (rule.op != node.op) continue;
    rule.run(exporter, node, outputs);
    return true;
  }
  if (!find_op(node.op).onnx.written) return false;
  same(exporter, node, outputs);
  return true;
}

void set_attribute(::onnx::NodeProto& node, const std::string& name, int64_t value) {
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(::onnx::AttributeProto::INT);
  attribute.set_i(value);
}

void set_attribute(::onnx::NodeProto& node, const std::string& name, double value) {
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(::onnx::AttributeProto::FLOAT);
  attribute.set_f(static_cast<float>(value));
}

void set_attribute(::onnx::NodeProto& node, const std::string& name, const std::string& value) {
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(::onnx::AttributeProto::STRING);
  attribute.set_s(value);
}

void set_attribute(::onnx::NodeProto& node, const std::string& name,
                   const std::vector<int64_t>& values) {
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(::onnx::AttributeProto::INTS);
  for (int64_t value : values) attribute.add_ints(value);
}

void set_attribute(::onnx::NodeProto& node, const std::string& name, const KnownTensor& value) {
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(::onnx::AttributeProto::TENSOR);
  write_tensor(value, name, *attribute.mutable_t());
}

}  // namespace halfscope::onnx_files
