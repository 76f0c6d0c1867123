// SPDX-License-Identifier: MIT
// The parts of Importer that find the formats in which the file itself computes.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/graph/unrounded.h"
#include "core/numeric/formats/round.h"
#include "core/onnx/importer.h"
#include "core/onnx/linear_layers.h"
#include "core/onnx/recognise.h"
#include "core/ops/ops.h"
#include "core/plan/own_path.h"
#include "core/policy/torch_lists.h"

namespace halfscope::onnx_files {
namespace {

bool is_rounded_by(const FloatFormat& format, float number) {
  return round_to_format(number, format).value != number && !std::isnan(number);
}

/// Operators that are several of ours, and the function that PyTorch's exporters write as such.
constexpr std::pair<const char*, const char*> kFunctionOf[] = {
    {"Celu", "celu"},
    {"ConvTranspose", "conv_transpose2d"},
    {"Cosh", "cosh"},
    {"GridSample", "grid_sampler"},
    {"ReduceL2", "linalg_vector_norm"},
    {"ReduceLogSumExp", "logsumexp"},
    {"ReduceProd", "prod"},
    {"Resize", "upsample_bilinear2d"},  // all modes are on the same lists
    {"Selu", "selu"},
    {"Sinh", "sinh"},
    {"Tan", "tan"},
};

/// Returns the function that an operator stands for, whatever the file says; "" if its type does
/// not tell.
std::string function_of_operator(const ::onnx::NodeProto& node) {
  std::string mode;
  int dimensions = 0;
  for (const ::onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == "mode") mode = attribute.s();
    if (attribute.name() == "kernel_shape") dimensions = attribute.ints_size();
  }
  const std::string& op = node.op_type();
  if (op == "Pad" && mode == "reflect") return "reflection_pad2d";
  if (op == "Pad" && mode == "edge") return "replication_pad2d";
  if (op == "MaxPool" && dimensions == 3) return "max_pool3d";
  if (op == "AveragePool" && dimensions == 3) return "avg_pool3d";
  for (const auto& [type, function] : kFunctionOf) {
    if (op == type) return function;
  }
  return "";
}

}  // namespace

Model Importer::composed() {
  const auto type_of = [&](const Node& node) { return format_of_node(node); };
  const bool by_torch = file_.producer_name() == "pytorch";
  const auto call_in = [](const std::map<std::string, std::string>& calls) {
    return [&calls](const Node& node) {
      const auto found = calls.find(node.path);
      return found == calls.end() ? std::string() : found->second;
    };
  };
  Model model = recognise_composites(std::exchange(model_, {}), type_of, by_torch, call_in(calls_));
  mark_steps(model, type_of);
  if (!kernel_calls_.empty()) mark_kernels(call_in(kernel_calls_), model.graph);
  // HalfScope writes linear layers as PyTorch does.
  if (!by_torch && file_.producer_name() != "HalfScope") return model;
  return with_linear_layers(std::move(model), type_of,
                            [&](const Node& node) { return copies_.contains(node.path); });
}

void Importer::note_function(const ::onnx::NodeProto& node, size_t first) {
  std::string function = function_of_operator(node);
  static const NodeOrigin unknown;
  const auto found = origins_.find(&node);
  const NodeOrigin& origin = found == origins_.end() ? unknown : found->second;
  if (function.empty() && !origin.call.empty()) function = origin.what;
  for (size_t i = first; i < model_.graph.nodes().size(); ++i) {
    Node& made = model_.graph.node(static_cast<NodeId>(i));
    Attributes& attributes = made.attributes;
    if (!origin.call.empty()) calls_.try_emplace(made.path, origin.call);
    if (is_one_kernel(function)) kernel_calls_.try_emplace(made.path, origin.call);
    if (!function.empty()) attributes.try_emplace(kTorchFunction, torch_function_number(function));
    if (!origin.casts.empty()) attributes.try_emplace(kTorchCast, origin.casts);
    if (!origin.autocast_off.empty()) attributes.try_emplace(kAutocastOff, origin.autocast_off);
  }
}

bool Importer::casts_in_code(const ::onnx::NodeProto& node) const {
  const auto origin = origins_.find(&node);
  return origin != origins_.end() && !origin->second.casts.empty();
}

DataType Importer::type_of_node(const Node& node) const {
  const std::string& path = node.alias.empty() ? node.path : node.alias;
  auto found = node_types_.find(path);
  // Nodes that with_batch() adds have the type of the node that they belong to.
  if (found == node_types_.end()) found = node_types_.find(path.substr(0, path.rfind('/')));
  return found == node_types_.end() ? DataType::float32 : found->second;
}

FloatFormat Importer::format_of_node(const Node& node) const {
  return format_of(type_of_node(node)).value_or(kFp32);
}

/// Adds the types inside a composite that the file computes in a type narrower than float32. If the
/// file has it as primitives, each of them rounds. ONNX gives layer and group normalizations an
/// attribute `stash_type`, float32 by default, for their statistics; those of InstanceNormalization
/// have the type of its input.
void Importer::add_inner_types(const Node& node, Plan& plan) const {
  const FloatFormat own = format_of_node(node);
  const auto compute_stagewise = [&] {
    plan.rules.push_back({.path = own_path_glob(node.path), .op = "", .stagewise = true});
  };
  const bool step = int_attribute(node, kUnrounded, 0) == kStepOfSeveral;
  if ((node.op == "InstanceNormalization" || step) && own != kFp32) compute_stagewise();
  if (node.written == nullptr) return;
  if (!find_op(node.op).always_expands) {
    if (own != kFp32) compute_stagewise();
    return;
  }
  // An attention always computes in primitives. Some may be between Casts, such as a softmax.
  for (const Node& part : node.written->graph.nodes()) {
    const FloatFormat format = format_of_node(part);
    if (part.path.empty() || format == own) continue;
    PlanRule rule{.path = own_path_glob(node.path + "/" + part.path), .op = ""};
    rule.read = rule.write = format;
    plan.rules.push_back(std::move(rule));
  }
}

/// Adds rules for numbers that the file casts to a narrower type: they are known unrounded here,
/// but the file computes with the rounded ones.
void Importer::add_cast_numbers(const Node& node, const std::map<ValueId, float>& numbers,
                                Plan& plan) const {
  const FloatFormat own = format_of_node(node);
  const auto keep_rounded = [&](const std::string& path) {
    plan.rules.push_back({.path = own_path_glob(path), .op = "", .stagewise = true});
  };
  if (node.op == "Attention" && node.attributes.contains("scale")) {
    const auto scale = static_cast<float>(real_attribute(node, "scale", 1.0));
    if (is_rounded_by(own, scale)) keep_rounded(node.path + "/scale");
  }
  if (!find_op(node.op).reads_numbers) return;
  const bool rounds = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
    const auto found = numbers.find(input);
    return found != numbers.end() && is_rounded_by(own, found->second);
  });
  if (rounds) keep_rounded(node.path);
}

Plan Importer::types_of(const Graph& graph) const {
  Plan plan;
  plan.name = "as_exported";
  std::map<DataType, int64_t> count;
  const auto formats = [](DataType type) { return format_of(type).value_or(kFp32); };
  const auto type_of = [&](const Node& node) { return type_of_node(node); };
  for (const Node& node : graph.nodes()) ++count[type_of(node)];
  DataType usual = DataType::float32;
  for (const auto& [type, number] : count) {
    if (formats(type) != kFp32 && number > count[usual]) usual = type;
  }
  plan.defaults.read = plan.defaults.write = formats(usual);
  std::map<ValueId, float> numbers;
  for (const Constant& constant : graph.constants()) {
    if (constant.tensor.data.size() == 1) numbers[constant.value] = constant.tensor.data[0];
  }
  for (const Node& node : graph.nodes()) {
    const DataType type = type_of(node);
    const bool codes = node.attributes.contains(kComputesCodes);
    if (formats(type) != formats(usual) || codes) {
      PlanRule rule;
      rule.path = own_path_glob(node.path);
      rule.read = rule.write = formats(type);
      if (codes) {
        rule.read = kFp32;
        rule.write->saturate = int_attribute(node, kComputesCodes, 1) != 0;
      }
      plan.rules.push_back(std::move(rule));
    }
    add_inner_types(node, plan);
    add_cast_numbers(node, numbers, plan);
  }
  if (weight_types_.size() == 1) plan.storage = formats(weight_types_.begin()->first);
  return plan;
}

}  // namespace halfscope::onnx_files
