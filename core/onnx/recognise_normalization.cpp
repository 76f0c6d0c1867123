// SPDX-License-Identifier: MIT
// Normalizations that exporters write as primitives: over the last axes, with or without a mean,
// and over groups of channels (an InstanceNormalization of [n, groups, rest] between Reshapes).
#include <algorithm>

#include "core/onnx/matches.h"
#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

constexpr int kDeepestTwin = 3;

/// Returns whether both values are computed the same way from the same values. Some files compute x
/// - mean twice.
bool is_same(const Surroundings& in, ValueId a, ValueId b, int depth = 0) {
  if (a == b) return true;
  if (a == kNone || b == kNone || depth == kDeepestTwin) return false;
  const NodeId made_a = in.producer(a), made_b = in.producer(b);
  if (made_a == kNone || made_b == kNone) {
    const auto number = in.scalar(a);
    return number && number == in.scalar(b) && in.shape(a) == in.shape(b);
  }
  const Node &x = in.graph().node(made_a), &y = in.graph().node(made_b);
  if (x.op != y.op || x.attributes != y.attributes || x.inputs.size() != y.inputs.size() ||
      x.outputs.size() != 1) {
    return false;
  }
  for (size_t i = 0; i < x.inputs.size(); ++i) {
    if (!is_same(in, x.inputs[i], y.inputs[i], depth + 1)) return false;
  }
  return true;
}

/// The mean of a value over its last axes, which are kept with size 1.
struct TrailingMean {
  ValueId of = kNone;
  int64_t axis = 0;  ///< first of the averaged axes
  std::set<NodeId> nodes;
};
std::optional<TrailingMean> trailing_mean(const Surroundings& in, ValueId value) {
  std::set<NodeId> nodes;
  const Shape kept = value == kNone ? Shape{} : in.shape(value);
  // Without keepdims, a Reshape restores the axes of size 1.
  if (const Node* reshape = in.made_by(value, "Reshape")) {
    nodes.insert(in.producer(value));
    value = reshape->inputs[0];
  }
  const Node* mean = in.made_by(value, "ReduceMean");
  if (mean == nullptr) return std::nullopt;
  nodes.insert(in.producer(value));
  const Shape& x = in.shape(mean->inputs[0]);
  const std::vector<int64_t> axes = reduction_axes(*mean, x.size());
  const auto rank = static_cast<int64_t>(x.size());
  if (axes.empty() || axes.back() != rank - 1 ||
      axes.front() + static_cast<int64_t>(axes.size()) != rank) {
    return std::nullopt;
  }
  Shape ones = x;
  std::fill(ones.begin() + axes.front(), ones.end(), 1);
  if (kept != ones) return std::nullopt;
  return TrailingMean{mean->inputs[0], axes.front(), std::move(nodes)};
}

/// Returns x for x^2, written as Pow(x, 2) or Mul(x, x).
std::optional<ValueId> squared(const Surroundings& in, ValueId value) {
  if (const Node* pow = in.made_by(value, "Pow")) {
    if (in.scalar(pow->inputs[1]) == 2.0) return pow->inputs[0];
  }
  if (const Node* mul = in.made_by(value, "Mul")) {
    if (mul->inputs[0] == mul->inputs[1]) return mul->inputs[0];
  }
  return std::nullopt;
}

/// Matches x - mean(x) over the last axes; returns the mean and adds the difference to the nodes.
std::optional<TrailingMean> centred(const Surroundings& in, ValueId value) {
  const Node* difference = in.made_by(value, "Sub");
  if (difference == nullptr) return std::nullopt;
  auto mean = trailing_mean(in, difference->inputs[1]);
  if (!mean || mean->of != difference->inputs[0]) return std::nullopt;
  mean->nodes.insert(in.producer(value));
  return mean;
}

/// sqrt(mean(x^2) + epsilon) over the last axes.
struct RootMeanSquare {
  ValueId x = kNone;
  int64_t axis = 0;
  double epsilon = 0.0;
  std::set<NodeId> nodes;
  bool is_product = false;  ///< the square is Mul(x, x)
};
std::optional<RootMeanSquare> mean_square(const Surroundings& in, ValueId value) {
  const Node* sum = in.made_by(value, "Add");
  if (sum == nullptr) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const auto epsilon = in.scalar(sum->inputs[i]);
    auto mean = trailing_mean(in, sum->inputs[1 - i]);
    const auto x = epsilon && mean ? squared(in, mean->of) : std::nullopt;
    if (!x) continue;
    mean->nodes.insert({in.producer(value), in.producer(mean->of)});
    const bool is_product = in.made_by(mean->of, "Mul") != nullptr;
    return RootMeanSquare{*x, mean->axis, *epsilon, std::move(mean->nodes), is_product};
  }
  return std::nullopt;
}

std::optional<RootMeanSquare> root_mean_square(const Surroundings& in, ValueId value) {
  ValueId inner = kNone;
  if (const Node* root = in.made_by(value, "Sqrt")) inner = root->inputs[0];
  if (const Node* power = in.made_by(value, "Pow")) {
    if (in.scalar(power->inputs[1]) == 0.5) inner = power->inputs[0];
  }
  auto result = mean_square(in, inner);
  if (result) result->nodes.insert(in.producer(value));
  return result;
}

/// Matches 1 / root in the same way.
std::optional<RootMeanSquare> inverse_root(const Surroundings& in, ValueId value) {
  std::optional<RootMeanSquare> result;
  if (const Node* inverse = in.made_by(value, "Reciprocal")) {
    result = root_mean_square(in, inverse->inputs[0]);
  } else if (const Node* quotient = in.made_by(value, "Div")) {
    if (in.scalar(quotient->inputs[0]) == 1.0) result = root_mean_square(in, quotient->inputs[1]);
  } else if (const Node* power = in.made_by(value, "Pow")) {
    if (in.scalar(power->inputs[1]) == -0.5) result = mean_square(in, power->inputs[0]);
  }
  if (result) result->nodes.insert(in.producer(value));
  return result;
}

/// The other operand of the node that alone reads the match's result, if it is of that operator and
/// takes something of that shape that no input of the network decides. The match then ends there.
std::optional<ValueId> take_parameter(const Surroundings& in, Match& match, const char* op,
                                      const std::vector<Shape>& shapes) {
  const ValueId value = in.graph().node(match.root).outputs[0];
  const Node* reader = in.only_reader(value);
  if (reader == nullptr || reader->op != op) return std::nullopt;
  const ValueId other = reader->inputs[reader->inputs[0] == value ? 1 : 0];
  if (other == value || in.is_computed(other) ||
      in.graph().value(other).type != ElementType::real ||
      std::find(shapes.begin(), shapes.end(), in.shape(other)) == shapes.end()) {
    return std::nullopt;
  }
  match.root = in.producer(reader->outputs[0]);
  match.nodes.insert(match.root);
  return other;
}

/// A factor or summand per channel, as a parameter [channels] of the match.
struct ChannelParameters {
  const Surroundings& in;
  Match& match;
  const Shape& x;

  std::optional<ValueId> take(const char* op) const {
    Shape column(x.size() - 1, 1);
    column[0] = x[1];
    Shape whole = column;
    whole.insert(whole.begin(), 1);
    return take_parameter(in, match, op, {column, whole});
  }
  void add(std::optional<ValueId> value, float otherwise) const {
    if (!value) {
      match.parameters.push_back({{x[1]}, kNone, otherwise});
      return;
    }
    const Node* reshape = in.made_by(*value, "Reshape");
    if (reshape != nullptr && in.shape(reshape->inputs[0]) == Shape{x[1]}) {
      if (in.only_reader(*value) != nullptr) match.nodes.insert(in.producer(*value));
      value = reshape->inputs[0];
    }
    match.parameters.push_back({{x[1]}, *value});
  }
};

}  // namespace

// x / rms(x) or x * (1 / rms(x)), where x may be y - mean(y)
std::optional<Match> match_normalization(const Surroundings& in, NodeId id) {
  const Node& node = in.graph().node(id);
  if (node.op != "Mul" && node.op != "Div") return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    if (node.op == "Div" && i == 0) continue;
    const ValueId x = node.inputs[1 - i];
    auto spread =
        node.op == "Div" ? root_mean_square(in, node.inputs[1]) : inverse_root(in, node.inputs[i]);
    if (!spread || !is_same(in, spread->x, x)) continue;
    // A variance of PyTorch's subtracts the mean once more.
    if (spread->is_product && spread->x == x && in.has_own_squares()) continue;
    Match match{"RMSNormalization", {x}, {}, std::move(spread->nodes), id};
    match.nodes.insert(id);
    auto own = centred(in, x), squares = centred(in, spread->x);
    const bool has_mean = own && squares && own->axis == spread->axis;
    if (has_mean) {
      match.op = "LayerNormalization";
      match.inputs = {own->of};
      match.nodes.merge(own->nodes);
      match.nodes.merge(squares->nodes);
    } else if (spread->x != x) {
      continue;
    }
    const Shape& full = in.shape(x);
    const Shape shape(full.begin() + spread->axis, full.end());
    match.attributes = {{"axis", spread->axis}, {"epsilon", spread->epsilon}};
    if (const auto scale = take_parameter(in, match, "Mul", {shape})) {
      match.inputs.push_back(*scale);
      if (!has_mean) return match;
      if (const auto bias = take_parameter(in, match, "Add", {shape}))
        match.inputs.push_back(*bias);
    } else {
      match.parameters.push_back({shape});
    }
    return match;
  }
  return std::nullopt;
}

// Matches Reshape(InstanceNormalization(Reshape(x, [n, groups, ...]), ones, zeros), shape of x). If
// every channel is its own group in one line, the file lacks the Reshapes. It is then a match only
// if a scale follows.
std::optional<Match> match_group_normalization(const Surroundings& in, NodeId id) {
  const Node& last = in.graph().node(id);
  const bool bare = last.op == "InstanceNormalization";
  const ValueId normalized = bare ? last.outputs[0] : last.op == "Reshape" ? last.inputs[0] : kNone;
  const Node* inner = in.made_by(normalized, "InstanceNormalization");
  const Node* split = inner == nullptr || bare ? inner : in.made_by(inner->inputs[0], "Reshape");
  if (split == nullptr) return std::nullopt;
  const Shape &x = in.shape(split->inputs[0]), &groups = in.shape(inner->inputs[0]);
  if (in.shape(last.outputs[0]) != x || x.size() < 2 || groups.size() < 3 || x[0] != groups[0] ||
      x[1] % std::max<int64_t>(1, groups[1]) != 0 || !in.repeats(inner->inputs[1], 1.0f) ||
      !in.repeats(inner->inputs[2], 0.0f)) {
    return std::nullopt;
  }
  Match match{"GroupNormalization",
              {split->inputs[0]},
              {{"num_groups", groups[1]}, {"epsilon", real_attribute(*inner, "epsilon", 1e-5)}},
              {id, in.producer(normalized)},
              id};
  if (!bare) match.nodes.insert(in.producer(inner->inputs[0]));
  if (!in.is_closed(match)) return std::nullopt;
  const ChannelParameters channels{in, match, x};
  const auto scale = channels.take("Mul"), bias = channels.take("Add");
  if (bare && !scale) return std::nullopt;
  channels.add(scale, 1.0f);
  channels.add(bias, 0.0f);
  return match;
}

}  // namespace halfscope::onnx_files
