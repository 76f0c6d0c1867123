// SPDX-License-Identifier: MIT
#include "core/onnx/linear_layers.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "core/onnx/graph_copy.h"
#include "core/onnx/matches.h"
#include "core/ops/ops.h"
#include "core/ops/samples.h"
#include "core/policy/torch_lists.h"

namespace halfscope::onnx_files {
namespace {

struct Layer {
  NodeId product = kNone;
  ValueId bias = kNone;
};

int64_t function_of(const Node& node) {
  return int_attribute(node, kTorchFunction, kUnknownFunction);
}

class Finder {
 public:
  Finder(const Model& model, const std::function<FloatFormat(const Node&)>& type_of,
         const std::function<bool(const Node&)>& is_copied)
      : in_(model, type_of), is_copied_(is_copied) {}

  /// Returns the layers by the nodes that add their biases.
  std::map<NodeId, Layer> find() const {
    std::map<NodeId, Layer> layers;
    for (NodeId id = 0; id < static_cast<NodeId>(in_.graph().nodes().size()); ++id) {
      const Node& sum = in_.graph().node(id);
      if (sum.op != "Add" || function_of(sum) != kLinear) continue;
      for (size_t i = 0; i < 2; ++i) {
        const ValueId result = sum.inputs[i], bias = sum.inputs[1 - i];
        if (fits(sum, result, bias)) layers.emplace(id, Layer{in_.producer(result), bias});
      }
    }
    return layers;
  }

 private:
  bool fits(const Node& sum, ValueId result, ValueId bias) const {
    const Node* product = in_.made_by(result, "MatMul");
    if (product == nullptr || product->inputs.size() != 2 || in_.only_reader(result) == nullptr)
      return false;
    if (function_of(*product) != kLinear && function_of(*product) != kUnknownFunction) return false;
    const Shape& shape = in_.shape(result);
    const bool row = !shape.empty() && in_.shape(bias) == Shape{shape.back()};
    return row && !in_.is_computed(bias) && in_.shape(product->inputs[1]).size() == 2 &&
           in_.shape(sum.outputs[0]) == shape && in_.type_of(*product) == in_.type_of(sum) &&
           (is_copied_(*product) || is_contiguous(product->inputs[0]));
  }

  /// Returns whether PyTorch stores a value without gaps in the order of its dimensions. `exactly`:
  /// nothing has packed the value since.
  bool is_contiguous(ValueId value, bool exactly = true) const {
    const Shape shape = in_.shape(value);
    // Dimension i of the value is dimension axes[i] of the one that is looked at.
    std::vector<int64_t> axes(shape.size());
    std::iota(axes.begin(), axes.end(), int64_t{0});
    while (in_.producer(value) != kNone) {
      const Node& node = in_.graph().node(in_.producer(value));
      if (node.op == "Transpose") {  // a view
        const std::vector<int64_t> order = transpose_axes(node, axes.size());
        for (int64_t& axis : axes) axis = order[static_cast<size_t>(axis)];
        value = node.inputs[0];
      } else if (const ValueId like = ordered_like(node); like != kNone) {
        exactly = false;  // the result has no gaps
        value = like;
      } else if (node.op == "Reshape" && splits(in_.shape(node.inputs[0]), in_.shape(value))) {
        return are_in_order(axes, shape) && is_contiguous(node.inputs[0], exactly);
      } else if (exactly && leaves_gaps(node, value)) {
        return false;
      } else {
        break;
      }
    }
    return are_in_order(axes, shape);
  }

  static bool are_in_order(const std::vector<int64_t>& axes, const Shape& shape) {
    int64_t last = -1;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (shape[i] == 1) continue;
      if (axes[i] < last) return false;
      last = axes[i];
    }
    return true;
  }

  /// Returns whether each dimension becomes one or several, which is a view of any tensor.
  static bool splits(const Shape& from, const Shape& to) {
    size_t next = 0;
    for (const int64_t size : from) {
      int64_t product = 1;
      while (next < to.size() && (product < size || to[next] == 1)) product *= to[next++];
      if (product != size) return false;
    }
    return next == to.size();
  }

  /// Returns whether the node makes a view of a part, or of repeated elements: Slice and Split of
  /// inner dimensions, Expand, and Gather of one position.
  bool leaves_gaps(const Node& node, ValueId value) const {
    const Shape &from = in_.shape(node.inputs[0]), &to = in_.shape(value);
    if (node.op == "Expand") return element_count(from) != element_count(to);
    if (node.op == "Gather") {
      const int64_t axis = int_attribute(node, "axis", 0);
      const int64_t outer = element_count(Shape(from.begin(), from.begin() + axis));
      return in_.shape(node.inputs[1]).empty() && !in_.is_computed(node.inputs[1]) && outer > 1;
    }
    if ((node.op != "Slice" && node.op != "Split") || from.size() != to.size()) return false;
    int64_t outer = 1;  // positions in the dimensions before
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] != to[i] && outer > 1) return true;
      outer *= to[i];
    }
    const std::vector<int64_t> steps = ints_attribute(node, "steps");
    return std::any_of(steps.begin(), steps.end(), [](int64_t step) { return step > 1; });
  }

  /// Returns the operand whose order in memory the node's result has; kNone if it is in order.
  ValueId ordered_like(const Node& node) const {
    if (!samples::is_elementwise(find_op(node.op))) return kNone;
    const Shape& shape = in_.shape(node.outputs[0]);
    const auto full = std::find_if(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return input != kNone && in_.shape(input) == shape;
    });
    return full == node.inputs.end() ? kNone : *full;
  }

  const int64_t kLinear = torch_function_number("linear");
  const Surroundings in_;
  const std::function<bool(const Node&)>& is_copied_;
};

}  // namespace

Model with_linear_layers(Model model, const std::function<FloatFormat(const Node&)>& type_of,
                         const std::function<bool(const Node&)>& is_copied) {
  const std::map<NodeId, Layer> layers = Finder(model, type_of, is_copied).find();
  if (layers.empty()) return model;
  std::set<NodeId> products;
  for (const auto& [sum, layer] : layers) products.insert(layer.product);
  GraphCopy copy(model);
  for (NodeId id = 0; id < static_cast<NodeId>(model.graph.nodes().size()); ++id) {
    const Node& node = model.graph.node(id);
    if (const auto layer = layers.find(id); layer != layers.end()) {
      Node whole = node;
      whole.op = "MatMul";
      whole.inputs = model.graph.node(layer->second.product).inputs;
      whole.inputs.push_back(layer->second.bias);
      copy.copy(whole);
    } else if (!products.contains(id)) {
      copy.copy(node);
    }
  }
  return copy.finish();
}

}  // namespace halfscope::onnx_files
