// SPDX-License-Identifier: MIT
// Attention, softmax(mask(q k * scale)) v, and the guard that PyTorch's exporters add after its
// softmax: 0 where a row of the softmax is NaN because all of it is masked.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/onnx/matches.h"
#include "core/ops/ops.h"
#include "core/policy/torch_lists.h"

namespace halfscope::onnx_files {
namespace {

constexpr int kMostMasks = 3;  ///< for example a position bias, a window and a causal mask

/// A softmax over the last axis, with or without a guard.
struct Probabilities {
  ValueId scores = kNone;
  bool guarded = false;
  std::optional<double> dropout{};
  std::set<NodeId> nodes{};
};

/// Returns p of Where(IsNaN(p), 0, p), also with the branches swapped. IsNaN(p) is Not(Equal(p, p))
/// here.
std::optional<ValueId> guarded(const Surroundings& in, ValueId value, std::set<NodeId>& nodes) {
  const Node* where = in.made_by(value, "Where");
  if (where == nullptr) return std::nullopt;
  std::set<NodeId> found{in.producer(value)};
  ValueId relation = where->inputs[0];
  bool differs = false;
  while (const Node* opposite = in.made_by(relation, "Not")) {
    found.insert(in.producer(relation));
    relation = opposite->inputs[0];
    differs = !differs;
  }
  const Node* equal = in.made_by(relation, "Equal");
  if (equal == nullptr || equal->inputs[0] != equal->inputs[1]) return std::nullopt;
  const ValueId inner = where->inputs[differs ? 2 : 1], fill = where->inputs[differs ? 1 : 2];
  if (inner != equal->inputs[0] || in.scalar(fill) != 0.0 || in.shape(value) != in.shape(inner))
    return std::nullopt;
  found.insert(in.producer(relation));
  nodes.merge(found);
  return inner;
}

std::optional<Probabilities> probabilities(const Surroundings& in, ValueId value) {
  Probabilities result;
  value = in.through_identities(value, result.nodes);
  const Node* const dropout = in.made_by(value, "Dropout");
  if (dropout != nullptr) {
    result.nodes.insert(in.producer(value));
    result.dropout = real_attribute(*dropout, "ratio", 0.5);
    value = in.through_identities(dropout->inputs[0], result.nodes);
  }
  if (const auto inner = guarded(in, value, result.nodes)) {
    value = *inner;
    result.guarded = true;
  }
  const Node* softmax = in.made_by(value, "Softmax");
  if (softmax == nullptr) return std::nullopt;
  result.guarded = result.guarded || int_attribute(*softmax, "zero_masked", 0) != 0;
  const auto rank = static_cast<int64_t>(in.shape(value).size());
  const int64_t axis = int_attribute(*softmax, "axis", -1);
  if (axis != -1 && axis != rank - 1) return std::nullopt;
  result.nodes.insert(in.producer(value));
  result.scores = in.through_identities(softmax->inputs[0], result.nodes);
  return result;
}

/// Returns whether the file says that the node is a part of PyTorch's function for attention.
bool is_part_of_function(const Node& node) {
  return int_attribute(node, kTorchFunction, kUnknownFunction) ==
         torch_function_number("scaled_dot_product_attention");
}

/// Returns whether the node is a plain MatMul of operands with rows and columns.
bool is_product(const Surroundings& in, NodeId id) {
  const Node& node = in.graph().node(id);
  return node.op == "MatMul" && (node.attributes.empty() || is_part_of_function(node)) &&
         std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId input) { return in.shape(input).size() >= 2; });
}

/// Returns 1 / sqrt(d), PyTorch's usual scale, for a number near it, as a float.
double scale_near(double scale, int64_t d) {
  const float usual = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  const float given = static_cast<float>(scale);
  return static_cast<double>(std::fabs(given - usual) < 1e-6f * usual ? usual : given);
}

/// Exporters of scaled_dot_product_attention multiply both operands by the root of the scale, so
/// that half-precision files have smaller scores. Puts the operands before that into the match.
void take_scaled_operands(const Surroundings& in, Match& match) {
  std::array<ValueId, 2> plain{};
  std::array<double, 2> factor{};
  for (size_t i = 0; i < 2; ++i) {
    const Node* scaled = in.made_by(match.inputs[i], "Mul");
    const auto number = scaled == nullptr ? std::nullopt : in.scalar(scaled->inputs[1]);
    if (!number || in.shape(scaled->inputs[0]) != in.shape(match.inputs[i])) return;
    plain[i] = scaled->inputs[0];
    factor[i] = *number;
  }
  if (factor[0] != factor[1] || match.attributes.contains("scale")) return;
  for (size_t i = 0; i < 2; ++i) {
    match.nodes.insert(in.producer(match.inputs[i]));
    match.inputs[i] = plain[i];
  }
  match.attributes["scale"] = scale_near(factor[0] * factor[0], in.shape(plain[0]).back());
  match.attributes["one_kernel"] = int64_t{1};
}

/// Returns the whole attention with these scores before the mask, given the nodes after them, or
/// nullopt if they are not scores or other nodes use the intermediate values.
std::optional<Match> attention_on(const Surroundings& in, ValueId scores,
                                  const std::vector<ValueId>& mask, Match match) {
  scores = in.through_identities(scores, match.nodes);
  for (const char* op : {"Mul", "Div"}) {
    const Node* scaled = in.made_by(scores, op);
    if (scaled == nullptr) continue;
    const bool divides = scaled->op == "Div";
    for (size_t i = divides ? 1 : 0; i < 2; ++i) {
      const auto scale = in.scalar(scaled->inputs[i]);
      const ValueId inner = scaled->inputs[1 - i];
      if (!scale || in.shape(inner) != in.shape(scores)) continue;
      match.attributes["scale"] = *scale;
      if (divides) match.attributes["divide"] = int64_t{1};
      match.nodes.insert(in.producer(scores));
      scores = inner;
      break;
    }
    break;
  }
  const NodeId product = in.producer(scores);
  if (product == kNone || !is_product(in, product)) return std::nullopt;
  // If the keys are weights, this is a layer followed by a softmax, unless the file says otherwise.
  const std::vector<ValueId>& operands = in.graph().node(product).inputs;
  if (!in.is_computed(operands[1]) && !is_part_of_function(in.graph().node(product)))
    return std::nullopt;
  match.nodes.insert(product);
  match.inputs = {operands[0], operands[1], in.graph().node(match.root).inputs[1]};
  const Node& scoring = in.graph().node(product);
  if (in.type_of(scoring) == kFp32) {
    take_scaled_operands(in, match);
    if (is_part_of_function(scoring)) match.attributes["one_kernel"] = int64_t{1};
  }
  match.inputs.insert(match.inputs.end(), mask.begin(), mask.end());
  const bool unfit = std::any_of(match.inputs.begin(), match.inputs.end(), [&](ValueId input) {
    return input == kNone || match.nodes.contains(in.producer(input));
  });
  if (unfit || !in.is_closed(match)) return std::nullopt;
  return match;
}

/// Returns the attention below this many masks, the last of which makes `value`. `inputs` are those
/// of the later masks, and bit i of `fills` is for the i-th of them from the front.
std::optional<Match> attention_below(const Surroundings& in, ValueId value, int masks,
                                     const std::vector<ValueId>& inputs, int64_t fills,
                                     Match match) {
  if (masks == 0) {
    if (fills != 0) match.attributes["fill_where_true"] = fills;
    return attention_on(in, value, inputs, std::move(match));
  }
  for (const char* op : {"Add", "Where"}) {
    const Node* mask = in.made_by(value, op);
    if (mask == nullptr) continue;
    const size_t first = mask->inputs.size() - 2;  // the first input that may be the scores
    for (size_t i = first; i < first + 2; ++i) {
      std::vector<ValueId> others = mask->inputs;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      others.insert(others.end(), inputs.begin(), inputs.end());
      const int64_t own = first == 1 && i == 2 ? 1 : 0;
      Match below = match;
      below.nodes.insert(in.producer(value));
      if (auto found = attention_below(in, mask->inputs[i], masks - 1, others, fills << 1 | own,
                                       std::move(below))) {
        return found;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Match> match_attention(const Surroundings& in, NodeId id) {
  const Node& mix = in.graph().node(id);
  if (mix.op != "MatMul" || !is_product(in, id) ||
      (!in.is_computed(mix.inputs[1]) && !is_part_of_function(mix))) {
    return std::nullopt;
  }
  auto weights = probabilities(in, mix.inputs[0]);
  if (!weights) return std::nullopt;
  Match behind{"Attention", {}, {}, std::move(weights->nodes), id};
  behind.nodes.insert(id);
  if (weights->guarded) behind.attributes["zero_masked"] = int64_t{1};
  if (weights->dropout) {
    behind.attributes["dropout"] = *weights->dropout;
    behind.attributes["training_mode"] = int64_t{1};
  }
  for (int masks = 0; masks <= kMostMasks; ++masks) {
    if (auto match = attention_below(in, weights->scores, masks, {}, 0, behind)) return match;
  }
  return std::nullopt;
}

std::optional<Match> match_softmax(const Surroundings& in, NodeId id) {
  const Node& where = in.graph().node(id);
  if (where.op != "Where") return std::nullopt;
  Match match{"Softmax", {}, {}, {id}, id};
  const auto inner = guarded(in, where.outputs[0], match.nodes);
  const Node* softmax = inner ? in.made_by(*inner, "Softmax") : nullptr;
  if (softmax == nullptr) return std::nullopt;
  match.nodes.insert(in.producer(*inner));
  match.inputs = softmax->inputs;
  match.attributes = softmax->attributes;
  match.attributes["zero_masked"] = int64_t{1};
  return match;
}

}  // namespace halfscope::onnx_files
