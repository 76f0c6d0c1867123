// SPDX-License-Identifier: MIT
// Losses of PyTorch that its exporters write as primitives. Autocast decides about the function, so
// all of its nodes get the function's name (kTorchFunction). p is the sigmoid of x, t the target.
//   binary_cross_entropy              (t - 1) max(log(1 - p), -100) - t max(log p, -100)
//     source: PyTorch 2.15, torch/_decomp/decompositions.py
//   binary_cross_entropy_with_logits  (1 - t) x - w log p, where the weight w may be left out
//     source: PyTorch 2.15, aten/src/ATen/native/Loss.cpp
//   the same from TorchScript         -(t log p + (1 - t) log(1 - p))
//     source: PyTorch 2.15, torch/onnx/_internal/torchscript_exporter/symbolic_opset12.py. A
//     network may contain this formula itself. But it multiplies the first logarithm before it
//     takes the second, and nodes are in the order of the calls.
#include <algorithm>
#include <array>

#include "core/onnx/matches.h"
#include "core/policy/torch_lists.h"

namespace halfscope::onnx_files {
namespace {

using Parts = std::set<NodeId>;

/// Finds the nodes of a formula from its result to its operands.
class Formula {
 public:
  Formula(const Surroundings& in, Parts& parts) : in_(in), parts_(parts) {}

  /// Returns the node of this operator that makes the value, as a part of the formula; else null.
  const Node* part(ValueId value, const char* op) {
    const Node* node = in_.made_by(value, op);
    if (node != nullptr) parts_.insert(in_.producer(value));
    return node;
  }
  /// Returns x for 1 - x, which may be written as a difference or as 1 + -x; kNone otherwise.
  ValueId complement(ValueId value) {
    if (const Node* difference = in_.made_by(value, "Sub")) {
      if (in_.scalar(difference->inputs[0]) != 1.0) return kNone;
      part(value, "Sub");
      return difference->inputs[1];
    }
    const Node* sum = in_.made_by(value, "Add");
    const auto other = sum != nullptr ? in_.beside(*sum, 1.0) : std::nullopt;
    const Node* negative = other ? part(*other, "Neg") : nullptr;
    if (negative == nullptr) return kNone;
    part(value, "Add");
    return negative->inputs[0];
  }
  /// Returns x for max(log x, -100); kNone otherwise.
  ValueId clamped_logarithm(ValueId value) {
    const Node* clamp = part(value, "Max");
    if (clamp == nullptr || clamp->inputs.size() != 2) return kNone;
    const auto clamped = in_.beside(*clamp, -100.0);
    const Node* log = clamped ? part(*clamped, "Log") : nullptr;
    return log == nullptr ? kNone : log->inputs[0];
  }

 private:
  const Surroundings& in_;
  Parts& parts_;
};

/// Calls `matches` with the two operands of the node in both orders until it returns parts.
template <typename Matches>
Parts in_any_order(const Node& node, Matches&& matches) {
  for (size_t i = 0; i < 2; ++i) {
    if (Parts parts = matches(node.inputs[i], node.inputs[1 - i]); !parts.empty()) return parts;
  }
  return {};
}

/// (t - 1) max(log(1 - p), -100) - t max(log p, -100)
Parts cross_entropy_of_probabilities(const Surroundings& in, const Node& root) {
  const Node* rest = in.made_by(root.inputs[0], "Mul");
  const Node* hit = in.made_by(root.inputs[1], "Mul");
  if (rest == nullptr || hit == nullptr) return {};
  return in_any_order(*rest, [&](ValueId miss, ValueId log_miss) {
    return in_any_order(*hit, [&](ValueId target, ValueId log_hit) -> Parts {
      Parts parts{in.producer(root.inputs[0]), in.producer(root.inputs[1])};
      Formula formula(in, parts);
      const Node* difference = formula.part(miss, "Sub");
      if (difference == nullptr || difference->inputs[0] != target) return {};
      if (in.scalar(difference->inputs[1]) != 1.0) return {};
      const ValueId probability = formula.clamped_logarithm(log_hit);
      const ValueId other = formula.clamped_logarithm(log_miss);
      if (probability == kNone || formula.complement(other) != probability) return {};
      return parts;
    });
  });
}

/// (1 - t) x - w log(sigmoid(x))
Parts cross_entropy_of_logits(const Surroundings& in, const Node& root) {
  const Node* miss = in.made_by(root.inputs[0], "Mul");
  if (miss == nullptr) return {};
  const auto with_logarithm = [&](ValueId logarithm) {
    return in_any_order(*miss, [&](ValueId rest, ValueId x) -> Parts {
      Parts parts{in.producer(root.inputs[0])};
      Formula formula(in, parts);
      const Node* log = formula.part(logarithm, "LogSigmoid");
      if (log == nullptr || log->inputs[0] != x) return {};
      if (formula.complement(rest) == kNone) return {};
      return parts;
    });
  };
  const Node* weighted = in.made_by(root.inputs[1], "Mul");
  if (weighted == nullptr) return with_logarithm(root.inputs[1]);
  Parts parts = in_any_order(*weighted, [&](ValueId log, ValueId) { return with_logarithm(log); });
  if (!parts.empty()) parts.insert(in.producer(root.inputs[1]));
  return parts;
}

/// -(t log p + (1 - t) log(1 - p)) in TorchScript's order
Parts cross_entropy_of_torchscript(const Surroundings& in, const Node& root) {
  const Node* sum = in.made_by(root.inputs[0], "Add");
  if (sum == nullptr) return {};
  Parts parts{in.producer(root.inputs[0])};
  Formula formula(in, parts);
  const Node* hit = formula.part(sum->inputs[0], "Mul");
  const Node* miss = formula.part(sum->inputs[1], "Mul");
  if (hit == nullptr || miss == nullptr) return {};
  const NodeId products = std::min(in.producer(sum->inputs[0]), in.producer(sum->inputs[1]));
  // Positive examples may have a weight.
  const Node* weighted = formula.part(hit->inputs[0], "Mul");
  const Node& first = weighted != nullptr ? *weighted : *hit;
  const Node* log_hit = formula.part(first.inputs[1], "Log");
  const Node* log_miss = formula.part(miss->inputs[1], "Log");
  if (log_hit == nullptr || log_miss == nullptr) return {};
  const Node* sigmoid = formula.part(log_hit->inputs[0], "Sigmoid");
  const NodeId last_logarithm = in.producer(miss->inputs[1]);
  if (sigmoid == nullptr || formula.complement(log_miss->inputs[0]) != log_hit->inputs[0])
    return {};
  if (formula.complement(miss->inputs[0]) != first.inputs[0]) return {};
  if (last_logarithm > products || in.producer(miss->inputs[0]) > last_logarithm) return {};
  if (weighted != nullptr && in.producer(hit->inputs[0]) < last_logarithm) return {};
  return parts;
}

struct Loss {
  const char* function;
  const char* op;  ///< of its last node
  Parts (*match)(const Surroundings& in, const Node& root);
};
constexpr std::array kLosses{
    Loss{"binary_cross_entropy", "Sub", cross_entropy_of_probabilities},
    Loss{"binary_cross_entropy_with_logits", "Sub", cross_entropy_of_logits},
    Loss{"binary_cross_entropy_with_logits", "Neg", cross_entropy_of_torchscript},
};

}  // namespace

void mark_losses(const Surroundings& in, Graph& graph) {
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    for (const Loss& loss : kLosses) {
      const Node& root = graph.node(id);
      Parts parts = root.op == loss.op ? loss.match(in, root) : Parts{};
      if (parts.empty()) continue;
      parts.insert(id);
      for (const NodeId part : parts)
        graph.node(part).attributes[kTorchFunction] = torch_function_number(loss.function);
    }
  }
}

}  // namespace halfscope::onnx_files
