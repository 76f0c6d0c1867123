// SPDX-License-Identifier: MIT
// PyTorch operators without an ONNX counterpart, which its exporters write as primitives. The
// primitives remain nodes, and the intermediate ones are marked (core/graph/unrounded.h).
//   standard deviation, variance   mean((x - mean(x))^2) N / (N - correction), and its root.
//                                  Without the factors, the network may have computed it that way.
//   affine_grid                    the product inside it
//   functions of one kernel        glu, lerp and others, if the file names the call of each node
#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/graph/unrounded.h"
#include "core/onnx/matches.h"
#include "core/onnx/recognise.h"
#include "core/policy/torch_lists.h"

namespace halfscope::onnx_files {
namespace {

/// A number and the other operand of the node that uses it.
struct Scaled {
  ValueId value = kNone;
  double by = 0.0;
};

std::optional<Scaled> scaled_by(const Surroundings& in, ValueId value, const char* op) {
  const Node* node = in.made_by(value, op);
  if (node == nullptr) return std::nullopt;
  if (const auto by = in.scalar(node->inputs[1])) return Scaled{node->inputs[0], *by};
  const auto by = op == std::string_view("Mul") ? in.scalar(node->inputs[0]) : std::nullopt;
  return by ? std::optional(Scaled{node->inputs[1], *by}) : std::nullopt;
}

/// Returns how many elements a mean averages; 0 for other values.
double averaged_elements(const Surroundings& in, ValueId value) {
  const Node* mean = in.made_by(value, "ReduceMean");
  if (mean == nullptr) return 0.0;
  return static_cast<double>(element_count(in.shape(mean->inputs[0]))) /
         static_cast<double>(element_count(in.shape(value)));
}

/// Returns the steps of the variance at `root`, without `root` itself.
std::set<NodeId> steps_of_variance(const Surroundings& in, ValueId root) {
  const auto quotient = scaled_by(in, root, "Div");
  const auto total = quotient ? scaled_by(in, quotient->value, "Mul") : std::nullopt;
  if (!total || total->by != averaged_elements(in, total->value)) return {};
  if (!(quotient->by < total->by)) return {};
  const ValueId squares = in.made_by(total->value, "ReduceMean")->inputs[0];
  const Node* square = in.made_by(squares, "Mul");
  if (square == nullptr || square->inputs[0] != square->inputs[1]) return {};
  const Node* difference = in.made_by(square->inputs[0], "Sub");
  if (difference == nullptr) return {};
  const Node* mean = in.made_by(difference->inputs[1], "ReduceMean");
  if (mean == nullptr || mean->inputs[0] != difference->inputs[0]) return {};
  return {in.producer(quotient->value), in.producer(total->value), in.producer(squares),
          in.producer(square->inputs[0]), in.producer(difference->inputs[1])};
}

/// Returns the product of an affine grid: the positions (x, y, 1) of all pixels times a matrix per
/// sample, as the sum over the second last axis of [pixels, 3, 1] * [samples, 1, 3, 2]. For volumes
/// one more. PyTorch's kernel calls bmm.
///   source: PyTorch 2.15, torch/_decomp/decompositions.py, _affine_grid_generator_4d
std::set<NodeId> steps_of_grid(const Surroundings& in, const Node& sum) {
  const Node* product = sum.op == "ReduceSum" ? in.made_by(sum.inputs[0], "Mul") : nullptr;
  if (product == nullptr || ints_attribute(sum, "axes") != std::vector<int64_t>{2}) return {};
  for (size_t i = 0; i < 2; ++i) {
    const Tensor* grid = in.constant(product->inputs[i]);
    if (grid == nullptr || grid->shape.size() != 3 || grid->shape[2] != 1) continue;
    const int64_t size = grid->shape[1];
    const Shape& matrices = in.shape(product->inputs[1 - i]);
    if (matrices.size() != 4 || matrices[1] != 1 || matrices[3] != size - 1) continue;
    bool homogeneous = size == 3 || size == 4;
    for (int64_t at = size - 1; at < element_count(grid->shape); at += size)
      homogeneous = homogeneous && grid->data[static_cast<size_t>(at)] == 1.0f;
    if (homogeneous) return {in.producer(sum.inputs[0])};
  }
  return {};
}

Match steps_at(const Surroundings& in, NodeId id) {
  const Node& node = in.graph().node(id);
  Match match{.op = node.op, .inputs = {}, .attributes = {}, .nodes = {}, .root = id};
  if (node.op == "Sqrt") {
    // Exporters insert a Reshape, and an Expand that changes nothing, before the root to restore
    // the axes that the mean dropped.
    std::set<NodeId> between;
    ValueId variance = node.inputs[0];
    for (const char* op : {"Expand", "Reshape"}) {
      const Node* shape = in.made_by(variance, op);
      if (shape == nullptr) continue;
      between.insert(in.producer(variance));
      variance = shape->inputs[0];
    }
    match.nodes = steps_of_variance(in, variance);
    if (!match.nodes.empty()) {
      match.nodes.merge(between);
      match.nodes.insert(in.producer(variance));
    }
  } else if (node.op == "Div") {
    match.nodes = steps_of_variance(in, node.outputs[0]);
  } else if (node.op == "ReduceSum") {
    match.nodes = steps_of_grid(in, node);
  }
  if (!match.nodes.empty()) match.nodes.insert(id);
  return match;
}

bool is_pool_of_volume(const Surroundings& in, const Node& node) {
  if (node.inputs.empty() || in.shape(node.inputs[0]).size() != 5) return false;
  if (node.op == "GlobalAveragePool") return true;
  // A mean that a network takes itself usually has its axes in ascending order.
  return node.op == "ReduceMean" && node.attributes.contains(kTorchFunction) &&
         int_attribute(node, "keepdims", 1) != 0 &&
         ints_attribute(node, "axes") == std::vector<int64_t>{4, 3, 2};
}

/// Marks functions that TorchScript's exporter writes as several nodes, by their form:
///   linear     Add(bias, MatMul): a network's own sum has the product first
///   rsqrt      Div(1, Sqrt(x)): a network's own quotient is a Reciprocal
/// Both exporters write the adaptive average pool of a volume to one element as a mean:
///   TorchScript  GlobalAveragePool
///   dynamo       ReduceMean over the axes [-1, -2, -3], as PyTorch's own decomposition has them
/// Dynamo writes the product inside affine_grid element by element, see steps_of_grid().
void mark_functions(const Surroundings& in, Graph& graph) {
  const auto mark = [&](NodeId id, std::string_view function) {
    graph.node(id).attributes.try_emplace(kTorchFunction, torch_function_number(function));
  };
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    if (node.op == "Add") {
      const Variable* bias = graph.variable_of(node.inputs[0]);
      const bool is_bias = bias != nullptr && graph.value(bias->value).shape.size() == 1;
      if (is_bias && in.made_by(node.inputs[1], "MatMul") != nullptr) mark(id, "linear");
    } else if (node.op == "Div" && in.made_by(node.inputs[1], "Sqrt") != nullptr) {
      if (in.scalar(node.inputs[0]) != 1.0) continue;
      mark(in.producer(node.inputs[1]), "rsqrt");
      mark(id, "rsqrt");
    } else if (const std::set<NodeId> product = steps_of_grid(in, node); !product.empty()) {
      for (const NodeId part : {*product.begin(), id})
        graph.node(part).attributes[kTorchFunction] = torch_function_number("bmm");
    } else if (is_pool_of_volume(in, node)) {
      graph.node(id).attributes[kTorchFunction] = torch_function_number("adaptive_avg_pool3d");
    }
  }
}

/// Functions of one kernel that exporters write as several nodes.
constexpr std::string_view kKernels[] = {"addcdiv", "addcmul", "erfc",  "expm1",
                                         "glu",     "lerp",    "log1p", "logaddexp"};

}  // namespace

bool is_one_kernel(const std::string& function) {
  return std::find(std::begin(kKernels), std::end(kKernels), function) != std::end(kKernels);
}

void mark_kernels(const std::function<std::string(const Node&)>& call_of, Graph& graph) {
  std::map<ValueId, std::set<std::string>> readers;
  for (const Node& node : graph.nodes()) {
    for (const ValueId input : node.inputs) readers[input].insert(call_of(node));
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    Node& node = graph.node(id);
    const std::string call = call_of(node);
    const bool stays = !call.empty() && readers[node.outputs[0]] == std::set<std::string>{call};
    if (stays) node.attributes[kUnrounded] = kStepOfSeveral;
  }
}

void mark_steps(Model& model, const std::function<FloatFormat(const Node&)>& type_of) {
  const Surroundings in(model, type_of);
  std::set<NodeId> steps;
  for (NodeId id = 0; id < static_cast<NodeId>(model.graph.nodes().size()); ++id) {
    const Match match = steps_at(in, id);
    if (match.nodes.empty() || !in.is_closed(match)) continue;
    for (const NodeId node : match.nodes) {
      if (node != id) steps.insert(node);
    }
  }
  mark_losses(in, model.graph);
  mark_functions(in, model.graph);
  for (const NodeId id : steps) model.graph.node(id).attributes[kUnrounded] = kStepOfSeveral;
}

}  // namespace halfscope::onnx_files
