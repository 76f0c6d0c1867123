// SPDX-License-Identifier: MIT
#include "core/onnx/batch_axis.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

bool is_one_of(const std::string& op, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), op) != names.end();
}

/// Follows the samples through the graph of several.
class SampleAxis {
 public:
  explicit SampleAxis(const Model& one, const Model& many)
      : one_(one.graph), graph_(many.graph), outputs_(many.outputs) {}

  bool run() {
    if (one_.nodes().size() != graph_.nodes().size() ||
        one_.constants().size() != graph_.constants().size()) {
      return false;
    }
    for (size_t i = 0; i < graph_.constants().size(); ++i) {  // no shape may be used as a number
      const Constant &a = one_.constants()[i], &b = graph_.constants()[i];
      if (a.tensor.shape != b.tensor.shape || a.tensor.data != b.tensor.data ||
          a.indices != b.indices) {
        return false;
      }
    }
    for (const Input& input : graph_.inputs()) {
      if (one_.value(input.value).shape != graph_.value(input.value).shape)
        batched_.insert(input.value);
    }
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (!visit(graph_.node(id), one_.node(id))) return false;
    }
    return std::all_of(outputs_.begin(), outputs_.end(),
                       [&](const NamedValue& output) { return batched_.contains(output.value); });
  }

 private:
  bool batched(ValueId value) const { return value != kNone && batched_.contains(value); }
  const Shape& shape(ValueId value) const { return graph_.value(value).shape; }

  bool visit(const Node& node, const Node& single) {
    if (node.op != single.op || node.inputs != single.inputs || node.outputs != single.outputs)
      return false;
    if (std::none_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId input) { return batched(input); })) {
      return std::all_of(node.outputs.begin(), node.outputs.end(),
                         [&](ValueId output) { return shape(output) == one_.value(output).shape; });
    }
    if (!keeps_apart(node)) return false;
    // Others have statistics behind their result.
    const size_t results = node.op == "Split" ? node.outputs.size() : 1;
    return std::all_of(node.outputs.begin(), node.outputs.begin() + static_cast<int64_t>(results),
                       [&](ValueId output) { return gets_samples(output); });
  }

  /// Whether the result differs in the number of samples and in nothing else.
  bool gets_samples(ValueId output) {
    Shape wanted = one_.value(output).shape;
    const Shape& result = shape(output);
    if (wanted.empty() || wanted[0] != 1 || result.size() != wanted.size()) return false;
    wanted[0] = result[0];
    if (result != wanted) return false;
    batched_.insert(output);
    return true;
  }

  bool keeps_apart(const Node& node) const {
    const std::string& op = node.op;
    const ValueId x = node.inputs[0];
    const auto rank = static_cast<int64_t>(shape(x).size());
    const auto axis_is_inner = [&](int64_t fallback) {
      const int64_t axis = int_attribute(node, "axis", fallback);
      return batched(x) && (axis < 0 ? axis + rank : axis) > 0;
    };
    const auto only_first = [&] {
      return batched(x) && std::none_of(node.inputs.begin() + 1, node.inputs.end(),
                                        [&](ValueId input) { return batched(input); });
    };
    if (is_one_of(op, {"Identity",  "StopGradient", "Neg",  "Exp",         "Log",        "Sqrt",
                       "Abs",       "Reciprocal",   "Erf",  "Tanh",        "Sigmoid",    "Softplus",
                       "HardSwish", "HardSigmoid",  "Sin",  "Cos",         "Sign",       "Floor",
                       "Ceil",      "Round",        "Relu", "LeakyRelu",   "Elu",        "Clip",
                       "Gelu",      "Swish",        "Not",  "IndexToReal", "RealToIndex"})) {
      return true;
    }
    if (is_one_of(op, {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "PRelu", "Where", "Equal",
                       "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Mod"})) {
      return operands_fit(node, shape(node.outputs[0]).size());
    }
    if (is_one_of(op, {"Conv", "ConvGradInput", "BatchNormalization", "InstanceNormalization",
                       "GroupNormalization"})) {
      return only_first();
    }
    if (is_one_of(op, {"MaxPool", "AveragePool", "GlobalAveragePool", "Reshape"})) return true;
    if (op == "Flatten") return int_attribute(node, "axis", 1) == 1;
    if (op == "Gemm") {
      const bool bias = node.inputs.size() < 3 || !batched(node.inputs[2]);
      const bool row = node.inputs.size() < 3 || shape(node.inputs[2]).size() < 2 ||
                       shape(node.inputs[2])[0] == 1;
      return batched(x) && !batched(node.inputs[1]) && bias && row &&
             int_attribute(node, "transA", 0) == 0;
    }
    if (op == "MatMul") return products_fit(node);
    if (op == "Attention") return attention_fits(node);
    if (is_one_of(op, {"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization"}))
      return axis_is_inner(-1);
    if (is_one_of(op, {"CumSum", "ArgMax", "Split"})) return axis_is_inner(0);
    if (op == "Concat") {
      return axis_is_inner(0) && std::all_of(node.inputs.begin(), node.inputs.end(),
                                             [&](ValueId input) { return batched(input); });
    }
    if (op.starts_with("Reduce")) {
      const std::vector<int64_t> axes = reduction_axes(node, static_cast<size_t>(rank));
      return std::find(axes.begin(), axes.end(), 0) == axes.end();
    }
    if (op == "Transpose") {
      const std::vector<int64_t> order = ints_attribute(node, "perm");
      return !order.empty() && order[0] == 0;
    }
    if (op == "Slice") {
      const std::vector<int64_t> axes = ints_attribute(node, "axes");
      return !axes.empty() && std::find(axes.begin(), axes.end(), 0) == axes.end() &&
             std::find(axes.begin(), axes.end(), -rank) == axes.end();
    }
    if (op == "Pad") {
      const std::vector<int64_t> pads = ints_attribute(node, "pads");
      return pads[0] == 0 && pads[static_cast<size_t>(rank)] == 0;
    }
    if (op == "Gather") {  // rows of a table, or along another axis of every sample
      if (batched(x)) return axis_is_inner(0) && !batched(node.inputs[1]);
      return int_attribute(node, "axis", 0) == 0;
    }
    if (op == "GatherElements") return axis_is_inner(0) && batched(node.inputs[1]);
    if (op == "Expand") return shape(x).size() == shape(node.outputs[0]).size();
    return false;
  }

  /// Broadcasting: samples stand first in all operands that have them, the others have none there.
  bool operands_fit(const Node& node, size_t rank) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      if (input == kNone) return true;
      const Shape& of = shape(input);
      if (batched(input)) return of.size() == rank;
      return of.size() < rank || of[0] == 1;
    });
  }

  bool products_fit(const Node& node) const {
    const ValueId a = node.inputs[0], b = node.inputs[1];
    const size_t rank_a = shape(a).size(), rank_b = shape(b).size();
    if (int_attribute(node, "transA", 0) != 0) return false;
    if (batched(a) && batched(b)) return rank_a == rank_b && rank_a >= 3;
    if (batched(a)) return rank_a >= 2 && (rank_b <= 2 || (rank_b < rank_a || shape(b)[0] == 1));
    return rank_b >= 3 && (rank_a < rank_b || shape(a)[0] == 1);
  }

  bool attention_fits(const Node& node) const {
    const size_t rank = shape(node.outputs[0]).size();
    return rank >= 3 && operands_fit(node, rank);
  }

  const Graph &one_, &graph_;
  const std::vector<NamedValue>& outputs_;
  std::set<ValueId> batched_;
};

}  // namespace

bool samples_stay_apart(const Model& one, const Model& many) { return SampleAxis(one, many).run(); }

}  // namespace halfscope::onnx_files
