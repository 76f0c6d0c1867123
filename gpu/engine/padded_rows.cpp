// SPDX-License-Identifier: MIT
#include "gpu/engine/padded_rows.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "gpu/libraries/product_plan.h"

namespace halfscope::gpu {
namespace {

/// Smaller tensors are copied in no time.
constexpr int64_t kLeastElements = 1 << 16, kLeastColumns = 64;

bool is_matrix_product(const Graph& graph, const Node& node) {
  const auto is_matrix = [&](size_t i) { return graph.value(node.inputs[i]).shape.size() == 2; };
  return (node.op == "Gemm" || node.op == "MatMul") && is_matrix(0) && is_matrix(1);
}

class Finder {
 public:
  Finder(const Executable& executable, Entry entry, const Layout& layout)
      : executable_(executable),
        graph_(executable.graph),
        nodes_(executable.entry(entry)),
        evaluates_(entry == Entry::eval),
        layout_(layout) {}

  RowPitches find() const {
    RowPitches found;
    for (NodeId id : nodes_) {
      const Node& node = graph_.node(id);
      if (node.op != "SoftmaxCrossEntropyLoss") continue;
      const ValueId logits = node.inputs[0];
      if (!may_be_padded(logits) || !made_by_product(logits)) continue;
      std::vector<ValueId> all{logits};
      const bool fit = std::all_of(nodes_.begin(), nodes_.end(),
                                   [&](NodeId reader) { return reads_well(reader, logits, all); });
      if (!fit || read_elsewhere(logits)) continue;
      for (ValueId value : all) found[value] = pitch_of(value);
    }
    return found;
  }

 private:
  static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
  int64_t pitch_of(ValueId value) const {
    const int64_t line = kLineBytes / bytes_of(layout_.storage(value));
    return round_up(graph_.value(value).shape[1], line);
  }
  bool in_entry(NodeId id) const {
    return std::find(nodes_.begin(), nodes_.end(), id) != nodes_.end();
  }
  bool may_be_padded(ValueId id) const {
    const Value& value = graph_.value(id);
    const bool stored = value.type == ElementType::real && value.shape.size() == 2 &&
                        layout_.place(id) >= 0 && bytes_of(layout_.storage(id)) == 2;
    return stored && value.rounding.mode == RoundingMode::nearest_even &&
           value.shape[1] >= kLeastColumns && element_count(value.shape) >= kLeastElements &&
           pitch_of(id) != value.shape[1];
  }
  bool made_by_product(ValueId value) const {
    const NodeId producer = graph_.value(value).producer;
    return producer != kNone && in_entry(producer) &&
           is_matrix_product(graph_, graph_.node(producer));
  }
  /// Returns whether a node does not read the logits, or does so in padded form. Adds the gradient
  /// that it makes in the same form to `all`.
  bool reads_well(NodeId id, ValueId logits, std::vector<ValueId>& all) const {
    const Node& node = graph_.node(id);
    const auto reads = std::count(node.inputs.begin(), node.inputs.end(), logits);
    if (reads == 0) return true;
    const std::string_view op = node.op;
    if (reads > 1 || node.inputs[0] != logits) return false;
    if (op == "SoftmaxCrossEntropyLoss" || op == "Accuracy") return true;
    if (op != "SoftmaxCrossEntropyLossGrad") return false;
    const ValueId gradient = node.outputs[0];
    all.push_back(gradient);
    return may_be_padded(gradient) && pitch_of(gradient) == pitch_of(logits) &&
           layout_.storage(gradient) == layout_.storage(logits) && read_by_products(gradient);
  }
  bool read_by_products(ValueId value) const {
    if (read_elsewhere(value)) return false;
    return std::all_of(nodes_.begin(), nodes_.end(), [&](NodeId id) {
      const Node& node = graph_.node(id);
      const auto reads = std::count(node.inputs.begin(), node.inputs.end(), value);
      const bool as_operand = reads == 1 && is_matrix_product(graph_, node) &&
                              (node.inputs[0] == value || node.inputs[1] == value);
      return reads == 0 || as_operand;
    });
  }
  /// Returns whether the value leaves the entry.
  bool read_elsewhere(ValueId value) const {
    if (evaluates_ && value == executable_.eval_logits) return true;
    for (const NamedValue& output : executable_.outputs) {
      if (output.value == value) return true;
    }
    for (const std::vector<NodeId>& entry : executable_.entries) {
      if (std::find(entry.begin(), entry.end(), graph_.value(value).producer) != entry.end()) {
        continue;  // it makes its own
      }
      for (NodeId id : entry) {
        const Node& node = graph_.node(id);
        if (std::count(node.inputs.begin(), node.inputs.end(), value) > 0) return true;
      }
    }
    return false;
  }

  const Executable& executable_;
  const Graph& graph_;
  const std::vector<NodeId>& nodes_;
  bool evaluates_;
  const Layout& layout_;
};

}  // namespace

RowPitches find_padded_rows(const Executable& executable, Entry entry, const Layout& layout) {
  return Finder(executable, entry, layout).find();
}

}  // namespace halfscope::gpu
