// SPDX-License-Identifier: MIT
#include "core/onnx/batch_axis.h"

#include <algorithm>
#include <set>

#include "core/ops/ops.h"
#include "core/ops/samples.h"

namespace halfscope::onnx_files {
namespace {

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
    const OpDef& def = find_op(node.op);
    if (def.keeps_samples == nullptr || !def.keeps_samples(SampleNode(graph_, node, batched_)))
      return false;
    const size_t results = std::min(node.outputs.size(), def.statistics_from);
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

  const Graph &one_, &graph_;
  const std::vector<NamedValue>& outputs_;
  std::set<ValueId> batched_;
};

}  // namespace

bool samples_stay_apart(const Model& one, const Model& many) { return SampleAxis(one, many).run(); }

}  // namespace halfscope::onnx_files
