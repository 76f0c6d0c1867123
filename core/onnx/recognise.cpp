// SPDX-License-Identifier: MIT
#include "core/onnx/recognise.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

/// One composite found: the nodes it replaces, of which the last makes the result.
struct Match {
  std::string op;
  std::vector<ValueId> inputs;
  Attributes attributes;
  std::set<NodeId> nodes;
  NodeId root = kNone;
  /// A missing scale: ones of this shape are added as the second input.
  std::optional<Shape> ones{};
};

/// A product taken apart: what is multiplied, and the product of its constants.
struct Product {
  std::vector<ValueId> factors;
  double constant = 1.0;
  std::set<NodeId> nodes;
};

constexpr int kMostMasks = 2;  ///< such as a bias by position, and what hides the future

bool close(double a, double b) { return std::fabs(a - b) <= 2e-3 * std::fabs(b); }

class Finder {
 public:
  explicit Finder(const Model& model) : graph_(model.graph) {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      for (ValueId input : graph_.node(id).inputs) {
        if (input != kNone) readers_[input].push_back(id);
      }
    }
    for (const NamedValue& output : model.outputs) kept_.insert(output.value);
    for (const Constant& constant : graph_.constants()) {
      if (constant.tensor.data.size() == 1) scalars_[constant.value] = constant.tensor.data[0];
    }
    for (const Input& input : graph_.inputs()) computed_.insert(input.value);
    for (const Node& node : graph_.nodes()) {
      if (std::any_of(node.inputs.begin(), node.inputs.end(),
                      [&](ValueId input) { return computed_.contains(input); })) {
        computed_.insert(node.outputs.begin(), node.outputs.end());
      }
    }
  }

  std::optional<Match> at(NodeId id) const {
    const std::string& op = graph_.node(id).op;
    std::optional<Match> match;
    if (op == "Div") match = layer_normalization(id);
    if (!match && (op == "Mul" || op == "Div")) match = rms_normalization(id);
    if (!match && op == "Mul") match = gelu(id);
    if (!match && op == "Mul") match = silu(id);
    if (op == "MatMul") match = attention(id);
    if (match && !is_closed(*match)) return std::nullopt;
    return match;
  }

 private:
  const Node* made_by(ValueId value, const char* op) const {
    const NodeId producer = value == kNone ? kNone : graph_.value(value).producer;
    if (producer == kNone || graph_.node(producer).op != op) return nullptr;
    return &graph_.node(producer);
  }
  NodeId producer(ValueId value) const { return graph_.value(value).producer; }

  std::optional<double> scalar(ValueId value) const {
    const auto found = scalars_.find(value);
    if (found == scalars_.end()) return std::nullopt;
    return static_cast<double>(found->second);
  }

  /// The other operand of a node of two of which one is that scalar.
  std::optional<ValueId> beside(const Node& node, double constant) const {
    for (size_t i = 0; i < 2; ++i) {
      const auto number = scalar(node.inputs[i]);
      if (number && close(*number, constant)) return node.inputs[1 - i];
    }
    return std::nullopt;
  }

  /// Nobody outside reads what the nodes compute, the root's result aside.
  bool is_closed(const Match& match) const {
    for (NodeId id : match.nodes) {
      if (id == match.root) continue;
      for (ValueId output : graph_.node(id).outputs) {
        if (kept_.contains(output)) return false;
        const auto found = readers_.find(output);
        if (found == readers_.end()) continue;
        for (NodeId reader : found->second) {
          if (!match.nodes.contains(reader)) return false;
        }
      }
    }
    return true;
  }

  /// x^2 as Pow(x, 2) or Mul(x, x): x.
  std::optional<ValueId> squared(ValueId value) const {
    if (const Node* pow = made_by(value, "Pow")) {
      if (scalar(pow->inputs[1]) == 2.0) return pow->inputs[0];
    }
    if (const Node* mul = made_by(value, "Mul")) {
      if (mul->inputs[0] == mul->inputs[1]) return mul->inputs[0];
    }
    return std::nullopt;
  }

  /// sqrt(mean(x^2) + epsilon) over the last axes.
  struct RootMeanSquare {
    ValueId x = kNone;
    int64_t axis = 0;
    double epsilon = 0.0;
    std::set<NodeId> nodes;
  };
  std::optional<RootMeanSquare> root_mean_square(ValueId value) const {
    const Node* root = made_by(value, "Sqrt");
    const Node* sum = root != nullptr ? made_by(root->inputs[0], "Add") : nullptr;
    if (sum == nullptr) return std::nullopt;
    for (size_t i = 0; i < 2; ++i) {
      const auto epsilon = scalar(sum->inputs[i]);
      const Node* mean = made_by(sum->inputs[1 - i], "ReduceMean");
      if (!epsilon || mean == nullptr) continue;
      const auto x = squared(mean->inputs[0]);
      const auto axis = trailing_axis(*mean);
      if (!x || !axis) continue;
      return RootMeanSquare{*x,
                            *axis,
                            *epsilon,
                            {producer(value), producer(root->inputs[0]),
                             producer(sum->inputs[1 - i]), producer(mean->inputs[0])}};
    }
    return std::nullopt;
  }

  /// The first of the reduced axes, if they are the last ones and kept.
  std::optional<int64_t> trailing_axis(const Node& mean) const {
    const auto rank = static_cast<int64_t>(graph_.value(mean.inputs[0]).shape.size());
    const std::vector<int64_t> axes = reduction_axes(mean, static_cast<size_t>(rank));
    if (axes.empty() || int_attribute(mean, "keepdims", 1) == 0) return std::nullopt;
    if (axes.back() != rank - 1 || axes.front() + static_cast<int64_t>(axes.size()) != rank)
      return std::nullopt;
    return axes.front();
  }

  Shape normalized_shape(ValueId x, int64_t axis) const {
    const Shape& shape = graph_.value(x).shape;
    return {shape.begin() + axis, shape.end()};
  }

  /// Takes in the one reader of the match's result if it is that operator with a variable or a
  /// constant of that shape, which it returns.
  std::optional<ValueId> take_parameter(Match& match, const char* op, const Shape& shape) const {
    const ValueId value = graph_.node(match.root).outputs[0];
    const auto found = readers_.find(value);
    if (kept_.contains(value) || found == readers_.end() || found->second.size() != 1)
      return std::nullopt;
    const Node& reader = graph_.node(found->second[0]);
    if (reader.op != op) return std::nullopt;
    const ValueId other = reader.inputs[reader.inputs[0] == value ? 1 : 0];
    if (other == value || graph_.value(other).shape != shape ||
        graph_.value(other).producer != kNone) {
      return std::nullopt;
    }
    match.root = found->second[0];
    match.nodes.insert(match.root);
    return other;
  }

  // Div(d, rms(d)) with d = x - mean(x)
  std::optional<Match> layer_normalization(NodeId id) const {
    const Node& div = graph_.node(id);
    auto spread = root_mean_square(div.inputs[1]);
    if (!spread || spread->x != div.inputs[0]) return std::nullopt;
    const Node* centred = made_by(spread->x, "Sub");
    const Node* mean = centred != nullptr ? made_by(centred->inputs[1], "ReduceMean") : nullptr;
    if (mean == nullptr || mean->inputs[0] != centred->inputs[0] ||
        trailing_axis(*mean) != spread->axis) {
      return std::nullopt;
    }
    const ValueId x = centred->inputs[0];
    Match match{"LayerNormalization", {x}, {}, std::move(spread->nodes), id};
    match.nodes.insert({id, producer(spread->x), producer(centred->inputs[1])});
    finish_normalization(match, x, spread->axis, spread->epsilon, true);
    return match;
  }

  // x / rms(x), or x * (1 / rms(x))
  std::optional<Match> rms_normalization(NodeId id) const {
    const Node& node = graph_.node(id);
    for (size_t i = 0; i < 2; ++i) {
      ValueId spread_value = node.inputs[i];
      std::set<NodeId> nodes{id};
      if (node.op == "Div") {
        if (i == 0) continue;
      } else if (const Node* inverse = made_by(spread_value, "Reciprocal")) {
        nodes.insert(producer(spread_value));
        spread_value = inverse->inputs[0];
      } else if (const Node* quotient = made_by(spread_value, "Div");
                 quotient != nullptr && scalar(quotient->inputs[0]) == 1.0) {
        nodes.insert(producer(spread_value));
        spread_value = quotient->inputs[1];
      } else {
        continue;
      }
      auto spread = root_mean_square(spread_value);
      if (!spread || spread->x != node.inputs[1 - i]) continue;
      nodes.merge(spread->nodes);
      Match match{"RMSNormalization", {spread->x}, {}, std::move(nodes), id};
      finish_normalization(match, spread->x, spread->axis, spread->epsilon, false);
      return match;
    }
    return std::nullopt;
  }

  void finish_normalization(Match& match, ValueId x, int64_t axis, double epsilon,
                            bool with_bias) const {
    const Shape shape = normalized_shape(x, axis);
    match.attributes = {{"axis", axis}, {"epsilon", epsilon}};
    if (const auto scale = take_parameter(match, "Mul", shape)) {
      match.inputs.push_back(*scale);
      if (!with_bias) return;
      if (const auto bias = take_parameter(match, "Add", shape)) match.inputs.push_back(*bias);
    } else {
      match.ones = shape;
    }
  }

  Product product_of(ValueId value) const {
    Product product;
    take_apart(value, product, 0);
    return product;
  }
  void take_apart(ValueId value, Product& product, int depth) const {
    if (const auto number = scalar(value)) {
      product.constant *= *number;
      return;
    }
    const bool inner = depth == 0 || (readers_.at(value).size() == 1 && !kept_.contains(value));
    if (const Node* mul = made_by(value, "Mul"); mul != nullptr && inner && depth < 8) {
      product.nodes.insert(producer(value));
      for (ValueId input : mul->inputs) take_apart(input, product, depth + 1);
      return;
    }
    if (const Node* div = made_by(value, "Div"); div != nullptr && inner) {
      if (const auto divisor = scalar(div->inputs[1])) {
        product.nodes.insert(producer(value));
        product.constant /= *divisor;
        take_apart(div->inputs[0], product, depth + 1);
        return;
      }
    }
    product.factors.push_back(value);
  }

  // 0.5 x (1 + erf(x / sqrt 2)), or with tanh(sqrt(2 / pi) (x + 0.044715 x^3)) in place of erf
  std::optional<Match> gelu(NodeId id) const {
    Product whole = product_of(graph_.node(id).outputs[0]);
    if (whole.factors.size() != 2 || !close(whole.constant, 0.5)) return std::nullopt;
    for (size_t i = 0; i < 2; ++i) {
      const ValueId x = whole.factors[i], gate = whole.factors[1 - i];
      const Node* sum = made_by(gate, "Add");
      const auto curve = sum != nullptr ? beside(*sum, 1.0) : std::nullopt;
      if (!curve) continue;
      const Node* erf = made_by(*curve, "Erf");
      const Node* tanh = made_by(*curve, "Tanh");
      if (erf == nullptr && tanh == nullptr) continue;
      const Node& function = erf != nullptr ? *erf : *tanh;
      Match match{"Gelu", {x}, {{"tanh", int64_t{erf == nullptr}}}, whole.nodes, id};
      match.nodes.insert({producer(gate), producer(*curve)});
      Product inner = product_of(function.inputs[0]);
      match.nodes.merge(inner.nodes);
      if (erf != nullptr) {
        if (inner.factors == std::vector<ValueId>{x} && close(inner.constant, std::sqrt(0.5)))
          return match;
        continue;
      }
      if (inner.factors.size() != 1 || !close(inner.constant, std::sqrt(2.0 / M_PI))) continue;
      if (cubic(inner.factors[0], x, match)) return match;
    }
    return std::nullopt;
  }

  /// x + 0.044715 x^3
  bool cubic(ValueId value, ValueId x, Match& match) const {
    const Node* sum = made_by(value, "Add");
    if (sum == nullptr) return false;
    for (size_t i = 0; i < 2; ++i) {
      if (sum->inputs[i] != x) continue;
      Product product = product_of(sum->inputs[1 - i]);
      if (!close(product.constant, 0.044715)) continue;
      std::vector<ValueId> factors;
      for (ValueId factor : product.factors) {
        const Node* pow = made_by(factor, "Pow");
        if (pow != nullptr && scalar(pow->inputs[1]) == 3.0) {
          match.nodes.insert(producer(factor));
          factors.insert(factors.end(), 3, pow->inputs[0]);
        } else {
          factors.push_back(factor);
        }
      }
      if (factors != std::vector<ValueId>(3, x)) continue;
      match.nodes.merge(product.nodes);
      match.nodes.insert(producer(value));
      return true;
    }
    return false;
  }

  std::optional<Match> silu(NodeId id) const {
    const Node& mul = graph_.node(id);
    for (size_t i = 0; i < 2; ++i) {
      const Node* gate = made_by(mul.inputs[i], "Sigmoid");
      if (gate == nullptr || gate->inputs[0] != mul.inputs[1 - i]) continue;
      return Match{"Swish", {mul.inputs[1 - i]}, {}, {id, producer(mul.inputs[i])}, id};
    }
    return std::nullopt;
  }

  // softmax(mask(q k * scale)) v: a mask is an Add, or a Where on either side
  std::optional<Match> attention(NodeId id) const {
    const ValueId probabilities = graph_.node(id).inputs[0];
    const Node* softmax = made_by(probabilities, "Softmax");
    if (softmax == nullptr || !is_product(id) || !computed_.contains(graph_.node(id).inputs[1]))
      return std::nullopt;
    const ValueId masked = softmax->inputs[0];
    const auto rank = static_cast<int64_t>(graph_.value(masked).shape.size());
    const int64_t axis = int_attribute(*softmax, "axis", -1);
    if (axis != -1 && axis != rank - 1) return std::nullopt;
    const Match softmax_and_mix{"Attention", {}, {}, {id, producer(probabilities)}, id};
    for (int masks = 0; masks <= kMostMasks; ++masks) {
      if (auto match = attention_below(masked, masks, {}, 0, softmax_and_mix)) return match;
    }
    return std::nullopt;
  }

  /// The attention below so many masks, the last of which makes `value`. `inputs` are those of the
  /// masks that come after it, and bit i of `fills` belongs to the i-th of them from the front.
  std::optional<Match> attention_below(ValueId value, int masks, const std::vector<ValueId>& inputs,
                                       int64_t fills, Match match) const {
    if (masks == 0) {
      if (fills != 0) match.attributes["fill_where_true"] = fills;
      return attention_on(value, inputs, std::move(match));
    }
    for (const char* op : {"Add", "Where"}) {
      const Node* mask = made_by(value, op);
      if (mask == nullptr) continue;
      const size_t first = mask->inputs.size() - 2;  // of those that may be the scores
      for (size_t i = first; i < first + 2; ++i) {
        std::vector<ValueId> others = mask->inputs;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
        others.insert(others.end(), inputs.begin(), inputs.end());
        const int64_t own = first == 1 && i == 2 ? 1 : 0;
        Match below = match;
        below.nodes.insert(producer(value));
        if (auto found = attention_below(mask->inputs[i], masks - 1, others, fills << 1 | own,
                                         std::move(below))) {
          return found;
        }
      }
    }
    return std::nullopt;
  }

  /// The whole attention with these scores before the mask, given what comes after them; nothing if
  /// they are none or the nodes do not stand alone.
  std::optional<Match> attention_on(ValueId scores, const std::vector<ValueId>& mask,
                                    Match match) const {
    for (const char* op : {"Mul", "Div"}) {
      const Node* scaled = made_by(scores, op);
      if (scaled == nullptr) continue;
      const bool divides = scaled->op == "Div";
      for (size_t i = divides ? 1 : 0; i < 2; ++i) {
        const auto scale = scalar(scaled->inputs[i]);
        const ValueId inner = scaled->inputs[1 - i];
        if (!scale || graph_.value(inner).shape != graph_.value(scores).shape) continue;
        match.attributes["scale"] = *scale;
        if (divides) match.attributes["divide"] = int64_t{1};
        match.nodes.insert(producer(scores));
        scores = inner;
        break;
      }
      break;
    }
    const NodeId product = producer(scores);
    if (product == kNone || !is_product(product)) return std::nullopt;
    // With keys that are weights it is a layer with a softmax behind it.
    const std::vector<ValueId>& operands = graph_.node(product).inputs;
    if (!computed_.contains(operands[1])) return std::nullopt;
    match.nodes.insert(product);
    match.inputs = {operands[0], operands[1], graph_.node(match.root).inputs[1]};
    match.inputs.insert(match.inputs.end(), mask.begin(), mask.end());
    const bool unfit = std::any_of(match.inputs.begin(), match.inputs.end(), [&](ValueId input) {
      return input == kNone || match.nodes.contains(producer(input));
    });
    if (unfit || !is_closed(match)) return std::nullopt;
    return match;
  }

  /// A MatMul of operands as they are, both with rows and columns.
  bool is_product(NodeId id) const {
    const Node& node = graph_.node(id);
    return node.op == "MatMul" && node.attributes.empty() &&
           std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId input) { return graph_.value(input).shape.size() >= 2; });
  }

  const Graph& graph_;
  std::map<ValueId, std::vector<NodeId>> readers_;
  std::set<ValueId> kept_;
  std::set<ValueId> computed_;  ///< inputs, and what depends on one
  std::map<ValueId, float> scalars_;
};

/// What a composite calls its input i, if that is a variable; "" where the name stays.
std::string parameter_name(const Graph& graph, const Match& match, const std::string& path,
                           size_t i) {
  if (match.op != "Attention") return i == 0 ? "" : path + (i == 1 ? ".weight" : ".bias");
  // By the primitive that reads it, as only those are ever run.
  if (i == 0) return path + "/scores.weight";
  const Node node{.op = match.op,
                  .path = path,
                  .inputs = match.inputs,
                  .outputs = {},
                  .attributes = match.attributes,
                  .plan = {}};
  const std::vector<AttentionMask> masks = attention_masks(graph, node);
  for (size_t mask = 0; mask < masks.size(); ++mask) {
    if (masks[mask].value != i || masks[mask].condition != kNone) continue;
    return path + (mask == 0 ? "/mask" : "/mask_" + std::to_string(mask + 1)) + ".bias";
  }
  return "";
}

/// Parameters are called by the node that now reads them, unless another is called so, or they are
/// called by a node that stays.
std::map<ValueId, std::string> parameter_paths(const Graph& graph,
                                               const std::map<NodeId, Match>& by_root) {
  std::set<std::string> paths, gone;
  for (const Variable& variable : graph.variables()) paths.insert(variable.path);
  for (const auto& [root, match] : by_root) {
    for (NodeId id : match.nodes) gone.insert(graph.node(id).path);
  }
  std::map<ValueId, std::string> result;
  for (const auto& [root, match] : by_root) {
    for (size_t i = 0; i < match.inputs.size(); ++i) {
      const Variable* variable = graph.variable_of(match.inputs[i]);
      const std::string path = parameter_name(graph, match, graph.node(root).path, i);
      if (variable == nullptr || path.empty() || result.contains(match.inputs[i]) ||
          !gone.contains(variable->path.substr(0, variable->path.rfind('.')))) {
        continue;
      }
      if (paths.insert(path).second) result[match.inputs[i]] = path;
    }
  }
  return result;
}

/// Copies the graph with every match as one node, at the place of its last.
Model rewritten(const Model& model, const std::map<NodeId, Match>& by_root) {
  std::set<NodeId> gone;
  for (const auto& [root, match] : by_root) gone.insert(match.nodes.begin(), match.nodes.end());
  const Graph& from = model.graph;
  Model result;
  std::vector<ValueId> new_of(from.values().size(), kNone);
  const auto moved = [&](ValueId value) {
    return value == kNone ? kNone : new_of.at(static_cast<size_t>(value));
  };
  const auto set = [&](ValueId value, ValueId to) { new_of.at(static_cast<size_t>(value)) = to; };
  Graph& graph = result.graph;
  for (const Input& input : from.inputs()) {
    const Value& value = from.value(input.value);
    set(input.value, graph.add_input(input.name, value.shape, value.type));
  }
  result.initial = model.initial;
  const std::map<ValueId, std::string> renamed = parameter_paths(from, by_root);
  for (const Variable& variable : from.variables()) {
    const Shape& shape = from.value(variable.value).shape;
    const auto found = renamed.find(variable.value);
    const std::string path = found != renamed.end() ? found->second : variable.path;
    if (path != variable.path) {
      auto start = result.initial.extract(variable.path);
      start.key() = path;
      result.initial.insert(std::move(start));
    }
    set(variable.value, variable.buffer ? graph.add_buffer(path, shape, variable.initializer)
                                        : graph.add_variable(path, shape, variable.initializer));
    graph.variables().back().alias = variable.alias;
  }
  for (const Constant& constant : from.constants()) {
    set(constant.value, from.value(constant.value).type == ElementType::index
                            ? graph.add_index_constant(constant.tensor.shape, constant.indices)
                            : graph.add_constant(constant.tensor));
  }
  for (NodeId id = 0; id < static_cast<NodeId>(from.nodes().size()); ++id) {
    const Node& node = from.node(id);
    if (const auto found = by_root.find(id); found != by_root.end()) {
      const Match& match = found->second;
      std::vector<ValueId> inputs;
      for (ValueId input : match.inputs) inputs.push_back(moved(input));
      if (match.ones) {
        const auto count = static_cast<size_t>(element_count(*match.ones));
        inputs.push_back(graph.add_constant(Tensor{*match.ones, std::vector<float>(count, 1.0f)}));
      }
      set(node.outputs[0], graph.add1(match.op, node.path, std::move(inputs), match.attributes));
    } else if (!gone.contains(id)) {
      std::vector<ValueId> inputs;
      for (ValueId input : node.inputs) inputs.push_back(moved(input));
      const std::vector<ValueId> outputs =
          graph.add(node.op, node.path, std::move(inputs), node.attributes);
      for (size_t i = 0; i < node.outputs.size(); ++i) set(node.outputs[i], outputs.at(i));
    }
  }
  for (size_t i = 0; i < from.variables().size(); ++i)
    graph.variables()[i].next = moved(from.variables()[i].next);
  result.name = model.name;
  result.input = moved(model.input);
  result.labels = moved(model.labels);
  result.logits = moved(model.logits);
  result.loss = moved(model.loss);
  for (const NamedValue& output : model.outputs)
    result.outputs.push_back({output.name, moved(output.value)});
  return result;
}

}  // namespace

Model recognise_composites(Model model) {
  const Finder finder(model);
  std::map<NodeId, Match> by_root;
  std::set<NodeId> taken;
  // Later nodes first: a normalization's own Mul must not be taken for something smaller.
  for (NodeId id = static_cast<NodeId>(model.graph.nodes().size()) - 1; id >= 0; --id) {
    if (taken.contains(id)) continue;
    std::optional<Match> match = finder.at(id);
    if (!match || std::any_of(match->nodes.begin(), match->nodes.end(),
                              [&](NodeId node) { return taken.contains(node); })) {
      continue;
    }
    taken.insert(match->nodes.begin(), match->nodes.end());
    by_root.emplace(match->root, std::move(*match));
  }
  return by_root.empty() ? std::move(model) : rewritten(model, by_root);
}

}  // namespace halfscope::onnx_files
