// SPDX-License-Identifier: MIT
// Rules of Keras policies for one network. All of them follow from its structure and values:
//   - normalizations written as primitives compute in fp32 inside, as in the layer
//   - the attention of Keras 3 has a softmax in fp32 (keras.ops.dot_product_attention)
//   - normalizations of tf.keras round in between
//   - indexing is not an embedding
//   - operations outside layers read weights in the compute dtype
//   - masks use a number that the compute dtype can represent
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/graph/op_def.h"
#include "core/plan/own_path.h"
#include "core/policy/keras.h"
#include "core/policy/keras_rules.h"

namespace halfscope {
namespace keras {
namespace {

/// From this epsilon on, tf.keras normalizes layers with its fused kernel
/// (tf_keras/layers/normalization/layer_normalization.py, _fused_can_be_used).
constexpr double kLeastFusedEpsilon = 1.001e-5;

/// Nodes and their readers, with the lookups that the searches below need.
class Wiring {
 public:
  explicit Wiring(const Model& model) : model_(model), readers_(model.graph.values().size()) {
    const Graph& graph = model.graph;
    for (NodeId id = 0; id < count(); ++id) {
      for (const ValueId input : graph.node(id).inputs) {
        if (input != kNone) readers_[static_cast<size_t>(input)].push_back(id);
      }
    }
    for (const NamedValue& output : model.outputs) leaving_.insert(output.value);
    for (const ValueId value : {model.logits, model.loss}) leaving_.insert(value);
    for (const Constant& constant : graph.constants())
      constants_.emplace(constant.value, &constant);
  }

  const Graph& graph() const { return model_.graph; }
  NodeId count() const { return static_cast<NodeId>(model_.graph.nodes().size()); }
  const Node& node(NodeId id) const { return model_.graph.node(id); }
  const std::vector<NodeId>& readers(ValueId value) const {
    return readers_.at(static_cast<size_t>(value));
  }
  NodeId producer(ValueId value) const {
    return value == kNone ? kNone : graph().value(value).producer;
  }
  const Shape& shape(ValueId value) const { return graph().value(value).shape; }
  bool is_real(ValueId value) const {
    return value != kNone && graph().value(value).type == ElementType::real;
  }
  bool leaves(ValueId value) const { return leaving_.contains(value); }
  bool is_loss(NodeId id) const {
    return model_.first_loss_node != kNone && id >= model_.first_loss_node;
  }
  const Constant* constant(ValueId value) const {
    const auto found = constants_.find(value);
    return found == constants_.end() ? nullptr : found->second;
  }
  bool is_number(ValueId value) const {
    return constant(value) != nullptr && element_count(shape(value)) == 1;
  }
  /// Returns the constant of one element; NaN if it is none.
  double number(ValueId value) const {
    return is_number(value) && !constant(value)->tensor.data.empty()
               ? static_cast<double>(constant(value)->tensor.data[0])
               : std::nan("");
  }
  bool is_input(ValueId value) const {
    return is_real(value) && producer(value) == kNone && constant(value) == nullptr &&
           !is_variable(value);
  }
  bool is_variable(ValueId value) const {
    return value != kNone && graph().variable_of(value) != nullptr;
  }

 private:
  const Model& model_;
  std::vector<std::vector<NodeId>> readers_;
  std::set<ValueId> leaving_;
  std::map<ValueId, const Constant*> constants_;
};

bool is_one_of(const std::string& op, std::initializer_list<const char*> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](const char* each) { return op == each; });
}

bool moves_elements(const Node& node) {
  return is_one_of(node.op, {"Reshape", "Transpose", "Flatten", "Expand", "Identity", "Slice"});
}

/// A normalization that a file writes as primitives.
struct WrittenNormalization {
  std::set<NodeId> inside{};   ///< without the root
  std::set<NodeId> moments{};  ///< those of `inside` up to the variance
  NodeId variance = kNone;
  NodeId root = kNone;    ///< its last node
  bool weighted = false;  ///< its moments are weighted sums (tf.nn.weighted_moments)
};

/// Returns the value whose variance (or mean square) `value` is; kNone for other values. Follows
/// additions of epsilon, divisions by a count, and movements up to the average of the squares.
ValueId normalized_value(const Wiring& in, ValueId value) {
  for (int steps = 0; steps < 8; ++steps) {
    const NodeId id = in.producer(value);
    if (id == kNone) return kNone;
    const Node& node = in.node(id);
    if (is_one_of(node.op, {"ReduceMean", "ReduceSum", "GlobalAveragePool"})) {
      value = node.inputs[0];
      break;
    }
    if (!is_one_of(node.op, {"Add", "Div", "Mul", "Where"}) && !moves_elements(node)) return kNone;
    // The operand that is computed by a node, or the last real one of a Where.
    ValueId next = kNone;
    for (const ValueId input : node.inputs) {
      if (in.is_real(input) && in.constant(input) == nullptr && in.producer(input) != kNone &&
          (next == kNone || in.shape(input).size() >= in.shape(next).size())) {
        next = input;
      }
    }
    value = next;
    if (value == kNone) return kNone;
  }
  NodeId id = in.producer(value);
  if (id == kNone) return kNone;
  // Weights of the squares.
  for (int steps = 0; steps < 2; ++steps) {
    const Node& node = in.node(id);
    if (node.op != "Mul" || node.inputs[0] == node.inputs[1]) break;
    const ValueId other = in.constant(node.inputs[0]) != nullptr ? node.inputs[1] : node.inputs[0];
    id = in.producer(other);
    if (id == kNone) return kNone;
  }
  const Node& square = in.node(id);
  const bool squares = (square.op == "Mul" && square.inputs[0] == square.inputs[1]) ||
                       (square.op == "Pow" && in.number(square.inputs[1]) == 2.0);
  if (!squares) return kNone;
  const NodeId difference = in.producer(square.inputs[0]);
  if (difference != kNone && in.node(difference).op == "Sub") return in.node(difference).inputs[0];
  return square.inputs[0];
}

/// Returns the nodes between `source` and `last`: those that depend on the one and that the other
/// depends on.
std::set<NodeId> between(const Wiring& in, ValueId source, NodeId last) {
  std::set<ValueId> reached{source};
  std::set<NodeId> forward;
  for (NodeId id = in.producer(source) + 1; id <= last; ++id) {
    const Node& node = in.node(id);
    if (std::none_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId input) { return reached.contains(input); })) {
      continue;
    }
    forward.insert(id);
    reached.insert(node.outputs.begin(), node.outputs.end());
  }
  std::set<NodeId> nodes;
  if (!forward.contains(last)) return nodes;
  std::vector<NodeId> open{last};
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (!nodes.insert(id).second) continue;
    for (const ValueId input : in.node(id).inputs) {
      const NodeId from = in.producer(input);
      if (from != kNone && forward.contains(from)) open.push_back(from);
    }
  }
  return nodes;
}

/// Returns whether only nodes of the set read what its nodes compute, except `last`.
bool is_closed(const Wiring& in, const std::set<NodeId>& nodes, NodeId last) {
  for (const NodeId id : nodes) {
    if (id == last) continue;
    for (const ValueId output : in.node(id).outputs) {
      const std::vector<NodeId>& readers = in.readers(output);
      if (in.leaves(output) || std::any_of(readers.begin(), readers.end(),
                                           [&](NodeId each) { return !nodes.contains(each); })) {
        return false;
      }
    }
  }
  return true;
}

/// Takes in the scale or shift that alone reads the result.
void take_parameter(const Wiring& in, WrittenNormalization& found, const char* op) {
  const ValueId result = in.node(found.root).outputs[0];
  if (in.leaves(result) || in.readers(result).size() != 1) return;
  const NodeId next = in.readers(result).front();
  const Node& node = in.node(next);
  if (node.op != op) return;
  const ValueId other = node.inputs[node.inputs[0] == result ? 1 : 0];
  if (!in.is_variable(other) || in.shape(node.outputs[0]) != in.shape(result)) return;
  found.inside.insert(found.root);
  found.root = next;
}

/// Returns the node that computes the variance of which `root` takes the root: without epsilon.
NodeId variance_of(const Wiring& in, NodeId root) {
  const NodeId sum = in.producer(in.node(root).inputs[0]);
  const Node& node = in.node(sum);
  if (node.op != "Add") return sum;
  for (size_t i = 0; i < 2; ++i) {
    if (in.is_number(node.inputs[i])) return in.producer(node.inputs[1 - i]);
  }
  return sum;
}

std::optional<WrittenNormalization> normalization_around(const Wiring& in, NodeId root) {
  const ValueId source = normalized_value(in, in.node(root).inputs[0]);
  if (source == kNone) return std::nullopt;
  constexpr NodeId kLongest = 40;  // nodes of other layers may be in between in the order
  for (NodeId id = root + 1; id < std::min(in.count(), root + kLongest); ++id) {
    const Node& node = in.node(id);
    if (!is_one_of(node.op, {"Add", "Sub", "Mul", "Div"}) ||
        in.shape(node.outputs[0]) != in.shape(source)) {
      continue;
    }
    std::set<NodeId> nodes = between(in, source, id);
    if (!nodes.contains(root) || !is_closed(in, nodes, id)) continue;
    WrittenNormalization found{.root = id};
    found.variance = variance_of(in, root);
    found.moments = between(in, source, found.variance);
    for (const NodeId each : found.moments) found.weighted |= in.node(each).op == "ReduceSum";
    nodes.erase(id);
    found.inside = std::move(nodes);
    take_parameter(in, found, "Mul");
    take_parameter(in, found, "Add");
    return found;
  }
  return std::nullopt;
}

/// Returns whether a softmax is the only use of what the node computes, after masks and scales.
bool feeds_softmax(const Wiring& in, NodeId id) {
  for (int steps = 0; steps < 8; ++steps) {
    const ValueId result = in.node(id).outputs[0];
    if (in.leaves(result) || in.readers(result).empty()) return false;
    id = in.readers(result).front();
    const Node& node = in.node(id);
    if (is_one_of(node.op, {"Softmax", "LogSoftmax"})) return true;
    if (!is_one_of(node.op, {"Add", "Sub", "Mul", "Where", "Attention"}) && !moves_elements(node))
      return false;
    if (node.op == "Attention") return true;
  }
  return false;
}

/// The nodes from a product to its softmax in dot_product_attention: scale and masks.
struct ScaledSoftmax {
  std::vector<NodeId> between;
  bool scaled = false;  ///< multiplied by a number after the product
};
std::optional<ScaledSoftmax> scaled_softmax(const Wiring& in, NodeId softmax) {
  ScaledSoftmax found;
  ValueId value = in.node(softmax).inputs[0];
  for (int steps = 0; steps < 12; ++steps) {
    const NodeId id = in.producer(value);
    if (id == kNone) return std::nullopt;
    const Node& node = in.node(id);
    if (is_one_of(node.op, {"MatMul", "Gemm"})) return found;
    ValueId next = kNone;
    if (moves_elements(node)) {
      next = node.inputs[0];
    } else if (is_one_of(node.op, {"Add", "Sub", "Mul", "Div", "Where"})) {
      found.between.push_back(id);
      for (const ValueId input : node.inputs) {
        found.scaled |= is_one_of(node.op, {"Mul", "Div"}) && in.is_number(input);
        if (in.is_real(input) && in.constant(input) == nullptr && in.producer(input) != kNone &&
            in.shape(input) == in.shape(value)) {
          next = input;
        }
      }
    }
    if (next == kNone) return std::nullopt;
    value = next;
  }
  return std::nullopt;
}

/// Collects the rules.
class Rules {
 public:
  Rules(const KerasPolicy& policy, const Wiring& in, Plan& plan)
      : policy_(policy), in_(in), plan_(plan), dtype_(dtype_name(policy.compute)) {}

  void add_all() {
    for (NodeId id = 0; id < in_.count(); ++id) {
      if (!in_.is_loss(id)) add_simple(id);
    }
    for (NodeId id = 0; id < in_.count(); ++id) {
      const Node& node = in_.node(id);
      if (in_.is_loss(id)) continue;
      if (node.op == "Sqrt" || (node.op == "Pow" && std::fabs(in_.number(node.inputs[1])) == 0.5)) {
        add_written_normalization(id);
      }
      if (policy_.keras3 && node.op == "Softmax") add_scaled_softmax(id);
      if (policy_.keras3 && node.op == "Attention") add_attention(node);
      if (!policy_.keras3 && is_one_of(node.op, {"LayerNormalization", "GroupNormalization",
                                                 "InstanceNormalization"})) {
        add_tf_normalization(node);
      }
    }
  }

 private:
  PlanRule& add(std::string path, std::optional<FloatFormat> read, std::optional<FloatFormat> write,
                std::string why, std::string change) {
    plan_.rules.push_back({.path = std::move(path), .op = "", .read = read, .write = write});
    plan_.rules.back().why = std::move(why);
    plan_.rules.back().change = std::move(change);
    return plan_.rules.back();
  }
  PlanRule& at(const Node& node, std::optional<FloatFormat> read, std::optional<FloatFormat> write,
               const std::string& why, const std::string& change) {
    return add(own_path_glob(node.path), read, write, why, change);
  }

  /// Rules that one node decides.
  void add_simple(NodeId id) {
    const Node& node = in_.node(id);
    const Plan& by_op = ops();
    const auto any = [&](auto&& is) {
      return std::any_of(node.inputs.begin(), node.inputs.end(), is);
    };
    const bool first = any([&](ValueId input) { return in_.is_input(input); });
    if (node.op == "Gather" && !in_.is_variable(node.inputs[0])) {
      PlanRule& rule =
          at(node, std::nullopt, std::nullopt,
             "Indexing moves elements. It is not an Embedding layer.", "Cast its inputs.");
      rule.follow = true;
    } else if (first && (resolve(by_op, "", node.op).follows ||
                         resolve(by_op, "", node.op).read != policy_.compute)) {
      at(node, policy_.compute, policy_.compute,
         "The first layer casts the network's input to " + dtype_ + ".",
         "Use an input that is not real, or the policy float32.");
    } else if (node.op != "Gather" && resolve(by_op, "", node.op).follows &&
               any([&](ValueId input) { return in_.is_variable(input); })) {
      at(node, policy_.compute, policy_.compute,
         "A weight that a layer reads in call() is cast to the compute dtype, " + dtype_ + ".",
         "Pass autocast=False to add_weight(), or set dtype=\"float32\" on the layer.");
    }
    if (policy_.compute == kFp16 && any([&](ValueId input) { return is_mask(input); }) &&
        feeds_softmax(in_, id)) {
      PlanRule& rule =
          at(node, std::nullopt, std::nullopt,
             "Keras masks with a number that float16 can represent, not with the -1e9 of float32.",
             "Add the mask as a separate operation.");
      rule.constants_in_range = true;
    }
  }

  const Plan& ops() {
    if (ops_.rules.empty()) ops_ = keras_plan(policy_);
    return ops_;
  }

  /// Returns whether it is a constant with finite numbers beyond fp16.
  bool is_mask(ValueId value) const {
    const Constant* constant = value == kNone ? nullptr : in_.constant(value);
    return constant != nullptr &&
           std::any_of(constant->tensor.data.begin(), constant->tensor.data.end(), [](float x) {
             return std::isfinite(x) && std::fabs(x) > kFp16.max_finite();
           });
  }

  void add_written_normalization(NodeId id) {
    const auto found = normalization_around(in_, id);
    if (!found || done_.contains(found->root)) return;
    done_.insert(found->root);
    const bool rounds = found->weighted && !policy_.keras3;
    const std::string inside =
        "It is part of a normalization layer, which computes in float32 inside.";
    const std::string change = "Nothing: Keras decides this inside the layer.";
    for (const NodeId each : found->inside) {
      // tf.nn.weighted_moments computes in float32 if it gets float16, but not if bfloat16.
      const bool moment = found->moments.contains(each) && policy_.compute == kFp16;
      if (rounds && !moment) {
        at(in_.node(each), policy_.compute, policy_.compute,
           "tf.keras rounds mean and variance of a GroupNormalization to " + dtype_ +
               " and computes the rest in it.",
           "Set dtype=\"float32\" on the layer.");
      } else {
        const bool last = rounds && each == found->variance;
        at(in_.node(each), kFp32, last ? policy_.compute : kFp32, inside, change);
      }
    }
    const FloatFormat read = rounds ? policy_.compute : kFp32;
    at(in_.node(found->root), read, policy_.compute,
       rounds ? "It is the last operation of a GroupNormalization of tf.keras, which computes in " +
                    dtype_ + "."
              : "It is the last operation of a normalization layer, whose result is cast to " +
                    dtype_ + ".",
       "Set dtype=\"float32\" on the layer.");
  }

  void add_scaled_softmax(NodeId id) {
    const auto found = scaled_softmax(in_, id);
    if (!found || !found->scaled) return;
    const std::string why =
        "dot_product_attention of Keras 3 scales, masks and takes the softmax in float32.";
    const std::string change =
        "Use dropout > 0 in MultiHeadAttention, which then uses Softmax in " + dtype_ + ".";
    for (const NodeId each : found->between) at(in_.node(each), kFp32, kFp32, why, change);
    at(in_.node(id), kFp32, policy_.compute, why + " The result is cast to " + dtype_ + ".",
       change);
  }

  void add_attention(const Node& node) {
    if (!node.attributes.contains("scale")) return;
    const std::string why =
        "dot_product_attention of Keras 3 scales, masks and takes the softmax in float32.";
    const std::string change =
        "Use dropout > 0 in MultiHeadAttention, which then uses Softmax in " + dtype_ + ".";
    const std::string parts = own_path_glob(node.path);
    add(parts + "/scale", kFp32, kFp32, why, change);
    if (node.inputs.size() > 3) add(parts + "/mask*", kFp32, kFp32, why, change);
    add(parts + "/softmax", kFp32, policy_.compute, why + " The result is cast to " + dtype_ + ".",
        change);
  }

  /// The primitives of core/ops/group_normalization.cpp; nodes with a form of their own keep it in
  /// one piece.
  void add_tf_normalization(const Node& node) {
    const bool layer = node.op == "LayerNormalization";
    if (node.written != nullptr && !layer) return;
    if (layer && real_attribute(node, "epsilon", 1e-5) < kLeastFusedEpsilon) return;
    const std::string path = own_path_glob(node.path),
                      change = "Set dtype=\"float32\" on the layer.";
    const std::string moments = "tf.keras computes mean and variance in float32.";
    const std::string rest =
        layer
            ? "LayerNormalization of tf.keras multiplies by gamma and adds beta in " + dtype_ + "."
            : "tf.keras computes a GroupNormalization in " + dtype_ +
                  " once it has mean and variance.";
    plan_.rules.push_back({.path = path, .op = "", .stagewise = true});
    plan_.rules.back().why = rest;
    plan_.rules.back().change = change;
    if (node.written != nullptr) {
      add_written_parts(node, moments, change);
      return;
    }
    std::vector<const char*> inside{"mean", "centre", "square", "var"};
    if (layer) inside.insert(inside.end(), {"eps", "sqrt"});
    if (!layer && policy_.compute != kFp16) inside.clear();  // see add_written_normalization()
    for (const char* part : inside) add(path + "/" + part, kFp32, kFp32, moments, change);
    if (layer) {
      add(path + "/normalize", kFp32, policy_.compute,
          "The fused kernel of tf.keras returns " + dtype_ + ".", change);
    } else if (node.op == "GroupNormalization") {
      add(path + "/groups", std::nullopt, std::nullopt, moments, change).follow = true;
    }
  }

  /// A layer normalization in the primitives of its file: all but scale and shift are in float32.
  void add_written_parts(const Node& node, const std::string& why, const std::string& change) {
    const Graph& form = node.written->graph;
    const auto made_by = [&](ValueId value) {
      return value == kNone ? kNone : form.value(value).producer;
    };
    // The operands after the first are parameters.
    const auto is_parameter = [&](ValueId value) {
      for (size_t i = 1; i < form.inputs().size(); ++i) {
        if (form.inputs()[i].value == value) return true;
      }
      return false;
    };
    NodeId last = made_by(node.written->output);
    for (const char* op : {"Add", "Mul"}) {
      if (last == kNone || form.node(last).op != op) continue;
      const std::vector<ValueId>& inputs = form.node(last).inputs;
      if (is_parameter(inputs[0]) == is_parameter(inputs[1])) continue;
      last = made_by(is_parameter(inputs[0]) ? inputs[1] : inputs[0]);
    }
    for (NodeId id = 0; id <= last; ++id) {
      add(own_path_glob(node.path + "/" + form.node(id).path), kFp32,
          id == last ? policy_.compute : kFp32, why, change);
    }
  }

  const KerasPolicy& policy_;
  const Wiring& in_;
  Plan& plan_;
  std::string dtype_;
  Plan ops_;
  std::set<NodeId> done_;
};

}  // namespace
}  // namespace keras

Plan keras_plan(const KerasPolicy& policy, const Model& model) {
  Plan plan = keras_plan(policy);
  if (policy.compute == kFp32) return plan;
  const keras::Wiring in(model);
  keras::Rules(policy, in, plan).add_all();
  return plan;
}

}  // namespace halfscope
