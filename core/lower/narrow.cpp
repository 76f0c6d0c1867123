// SPDX-License-Identifier: MIT
#include "core/lower/narrow.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/graph/unrounded.h"
#include "core/lower/result_range.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

/// Axes of an operand along which all elements enter the same sums.
struct SummedAxes {
  int64_t first = 0;
  bool all_after = false;  ///< and all axes after it
};

/// Returns nothing if other axes lie between them, or before a channel's.
std::optional<SummedAxes> summed_axes(const Node& node, size_t i) {
  const OpDef& def = find_op(node.op);
  const bool reads_samples = def.product == ProductKind::conv_grad_input && i == 0;
  if (def.product == ProductKind::conv || reads_samples) return SummedAxes{1, true};
  if (def.product != ProductKind::matrix) return std::nullopt;
  return SummedAxes{def.summed_axis(node, i), false};
}

bool carries_gradient(const Graph& graph, ValueId value) {
  const NodeId producer = graph.value(before_narrowing(graph, value)).producer;
  return producer != kNone && graph.node(producer).phase == Phase::backward;
}

class Narrower {
 public:
  explicit Narrower(Graph& graph) : graph_(graph) {
    for (size_t i = 0; i < graph.constants().size(); ++i) {
      const Constant& constant = graph.constants()[i];
      if (element_count(constant.tensor.shape) == 1) numbers_.insert(constant.value);
      constants_.emplace(constant.value, i);
    }
  }

  Narrowed run() {
    const NodeId count = static_cast<NodeId>(graph_.nodes().size());
    for (NodeId id = 0; id < count; ++id) {
      if (graph_.node(id).phase != Phase::update) narrow(id);
      result_.order.push_back(id);
    }
    return std::move(result_);
  }

 private:
  void narrow(NodeId id) {
    const size_t count = graph_.node(id).inputs.size();
    const size_t readable = std::min(count, find_op(graph_.node(id).op).stored_inputs_from);
    for (size_t i = 0; i < count; ++i) {
      ValueId input = graph_.node(id).inputs[i];
      if (i >= readable && !rounds_weight(graph_.node(id), input)) continue;
      if (input == kNone || graph_.value(input).type != ElementType::real) continue;
      const FloatFormat read = read_format(graph_, graph_.node(id), i);
      if (read.contains(graph_.value(input).format)) continue;
      if (undoes_prescale(id, input, read)) continue;
      if (reads_number(graph_.node(id), input) || is_unrounded(graph_, input)) continue;
      if (graph_.node(id).plan.constants_in_range && constants_.contains(input)) {
        input = in_range(input, read);
      }
      RoundingChoice rounding = graph_.node(id).plan.rounding;
      if (graph_.node(id).plan.grad_rounding && find_op(graph_.node(id).op).sums_products() &&
          carries_gradient(graph_, input)) {
        rounding = *graph_.node(id).plan.grad_rounding;
      }
      const bool product = find_op(graph_.node(id).op).sums_products();
      if (i < 2 && product && operand_scale(graph_.node(id).plan, i).any()) {
        scale(id, i, read, rounding);
      } else {
        graph_.node(id).inputs[i] = cast(id, input, read, rounding);
      }
    }
  }

  /// Returns whether the input is a weight that the plan has narrowed where it would be read as it
  /// is stored.
  bool rounds_weight(const Node& node, ValueId input) const {
    if (!node.plan.rounds_weights || input == kNone) return false;
    const Variable* variable = graph_.variable_of(input);
    return variable != nullptr && !variable->buffer;
  }

  /// Returns whether the value is stored scaled and fits `read` once that is undone: its readers do
  /// this in registers. Products cannot; they read operands as stored.
  bool undoes_prescale(NodeId reader, ValueId input, const FloatFormat& read) const {
    const int by = prescale_of(graph_, input);
    if (by == 0 || find_op(graph_.node(reader).op).sums_products()) return false;
    const std::optional<FloatFormat> moved = moved_range(read, by);
    return moved && moved->contains(graph_.value(input).format);
  }

  bool reads_number(const Node& node, ValueId input) const {
    return find_op(node.op).reads_numbers && !node.plan.stagewise && numbers_.contains(input);
  }

  /// Returns the constant with elements that are too large or too small for the format brought into
  /// its range.
  ValueId in_range(ValueId constant, const FloatFormat& format) {
    const std::string how = format_name(format);
    const auto [place, is_new] = in_range_.try_emplace({constant, how}, constant);
    if (!is_new) return place->second;
    Tensor tensor = graph_.constants()[constants_.at(constant)].tensor;
    const float most = static_cast<float>(format.max_finite());
    const float least = static_cast<float>(format.min_normal());
    for (float& x : tensor.data) {
      if (x == 0.0f || !std::isfinite(x)) continue;
      x = std::copysign(std::clamp(std::fabs(x), least, most), x);
    }
    return place->second = graph_.add_constant(std::move(tensor));
  }

  ValueId cast(NodeId reader, ValueId input, const FloatFormat& read,
               const RoundingChoice& rounding) {
    const std::string how = format_name(read) + " " + rounding_name(rounding);
    ValueId& cast = casts_.try_emplace({input, how}, kNone).first->second;
    if (cast == kNone) {
      cast = add("Cast", reader, {input}, {}).front();
      describe(cast, graph_.value(input).format, read, rounding);
    }
    return cast;
  }

  struct Scaled {
    ValueId operand = kNone;  ///< codes, or the values of block-scaled operands
    ValueId factor = kNone;   ///< factor of the product's sums; kNone for block scales
  };

  void scale(NodeId reader, size_t i, const FloatFormat& read, const RoundingChoice& rounding) {
    const Node node = graph_.node(reader);
    const ValueId input = node.inputs[i];
    TensorScale choice = operand_scale(node.plan, i);
    Attributes attributes;
    if (choice.kind == TensorScale::Kind::channel) {
      if (const std::optional<SummedAxes> axes = summed_axes(node, i)) {
        attributes = channel_attributes(*axes, graph_.value(input).shape);
      } else {
        choice = {.kind = TensorScale::Kind::current};
      }
    } else if (choice.by_block()) {
      const bool square = choice.square_weights && graph_.variable_of(input) != nullptr &&
                          graph_.value(input).shape.size() >= 2;
      attributes["block"] = int64_t{choice.block()};
      attributes["axis"] = square ? int64_t{1} : find_op(node.op).summed_axis(node, i);
      attributes["square"] = int64_t{square};
    }
    std::string layout;
    for (const auto& [name, value] : attributes) {
      layout += " " + name + std::to_string(std::get<int64_t>(value));
    }
    const std::string how =
        format_name(read) + " " + rounding_name(rounding) + " " + scale_name(choice) + layout;
    Scaled& scaled = scaled_.try_emplace({input, how}).first->second;
    if (scaled.operand == kNone) {
      scaled = add_quantize(reader, i, input, choice, attributes, read, rounding);
    }
    graph_.node(reader).inputs[i] = scaled.operand;
    if (scaled.factor == kNone) return;
    graph_.node(reader).inputs.resize(kFirstScaleInput + 2, kNone);
    graph_.node(reader).inputs[kFirstScaleInput + i] = scaled.factor;
  }

  /// One block for each channel.
  static Attributes channel_attributes(const SummedAxes& axes, const Shape& shape) {
    const auto rank = static_cast<int64_t>(shape.size());
    const int64_t first = std::max<int64_t>(axes.first < 0 ? axes.first + rank : axes.first, 0);
    int64_t block = 1;
    for (int64_t axis = first; axis < (axes.all_after ? rank : first + 1); ++axis) {
      block *= shape[static_cast<size_t>(axis)];
    }
    return {{"block", std::max<int64_t>(block, 1)},
            {"axis", first},
            {"through", int64_t{axes.all_after}}};
  }

  Scaled add_quantize(NodeId reader, size_t i, ValueId input, const TensorScale& choice,
                      const Attributes& attributes, const FloatFormat& read,
                      const RoundingChoice& rounding) {
    const FloatFormat stored = graph_.value(input).format;
    FloatFormat code = read;
    code.saturate = code.encoding != Encoding::finite;  // finite formats saturate anyway
    std::vector<ValueId> inputs{input};
    bool first = false;
    if (choice.kind == TensorScale::Kind::delayed) {
      const auto [state, is_new] = state_of(reader, i, input, choice);
      inputs.push_back(state);
      first = is_new;
    }
    const std::vector<ValueId> codes = add("Quantize", reader, inputs, attributes);
    describe(codes[0], stored, code, rounding);
    set_scale(codes[0], choice);
    if (first) {
      const ValueId next = add("ScaleUpdate", reader, inputs, {}).front();
      describe(next, stored, code, {});
      graph_.value(next).format = kFp32;
      set_scale(next, choice);
      for (Variable& variable : graph_.variables()) {
        if (variable.value == inputs[1]) variable.next = next;
      }
      result_.updates.push_back(next);
    }
    if (!choice.by_block()) return {codes[0], codes[1]};
    const ValueId values = add("Dequantize", reader, codes, attributes).front();
    describe(values, code, kFp32, {});
    set_scale(values, choice);
    return {values, kNone};
  }

  /// Returns the state of delayed scaling for this operand, and whether it is advanced. An operand
  /// of the inference copy of the network shares the state of the training operand and does not
  /// advance it.
  std::pair<ValueId, bool> state_of(NodeId reader, size_t i, ValueId input,
                                    const TensorScale& choice) {
    const Variable* variable = graph_.variable_of(input);
    std::string path = graph_.node(reader).path + (i == 0 ? ".input" : ".input_2");
    if (variable != nullptr) path = variable->path;
    if (carries_gradient(graph_, input)) path = graph_.node(reader).path + ".grad_operand";
    ValueId& state = states_.try_emplace(path, kNone).first->second;
    if (state != kNone) return {state, false};
    state = graph_.add_buffer(path + "_scale", {kScaleStateHead + choice.history}, {});
    return {state, true};
  }

  /// Adds a node on behalf of `reader`.
  std::vector<ValueId> add(const char* op, NodeId reader, std::vector<ValueId> inputs,
                           Attributes attributes) {
    std::vector<ValueId> outputs =
        graph_.add(op, graph_.node(reader).path, std::move(inputs), std::move(attributes));
    const NodeId id = graph_.value(outputs.front()).producer;
    graph_.node(id).phase = graph_.node(reader).phase;
    graph_.node(id).forward = graph_.node(reader).forward;
    result_.order.push_back(id);
    return outputs;
  }

  void describe(ValueId value, const FloatFormat& read, const FloatFormat& write,
                const RoundingChoice& rounding) {
    graph_.value(value).format = write;
    graph_.value(value).rounding = rounding;
    NodePlan& plan = graph_.node(graph_.value(value).producer).plan;
    plan.read = read;
    plan.write = write;
  }

  void set_scale(ValueId value, const TensorScale& choice) {
    graph_.node(graph_.value(value).producer).plan.scale = choice;
  }

  Graph& graph_;
  std::set<ValueId> numbers_;            ///< constants of one element
  std::map<ValueId, size_t> constants_;  ///< their indices in Graph::constants()
  std::map<std::pair<ValueId, std::string>, ValueId> in_range_;
  Narrowed result_;
  std::map<std::pair<ValueId, std::string>, ValueId> casts_;
  std::map<std::pair<ValueId, std::string>, Scaled> scaled_;
  std::map<std::string, ValueId> states_;
};

}  // namespace

const TensorScale& operand_scale(const NodePlan& plan, size_t i) {
  return i == 1 && plan.second_scale ? *plan.second_scale : plan.scale;
}

bool scales_operands(const Node& node) {
  const bool scales = operand_scale(node.plan, 0).any() || operand_scale(node.plan, 1).any();
  return scales && find_op(node.op).sums_products();
}

FloatFormat read_format(const Graph& graph, const Node& node, size_t i) {
  // Only product operands are codes; terms added to the products are read in the output's format.
  if (i >= 2 && scales_operands(node)) return node.plan.write;
  if (i < 2 && node.plan.grad_read && find_op(node.op).sums_products() &&
      carries_gradient(graph, node.inputs[i])) {
    return *node.plan.grad_read;
  }
  return node.plan.read;
}

ValueId before_narrowing(const Graph& graph, ValueId value) {
  for (NodeId id = graph.value(value).producer; id != kNone; id = graph.value(value).producer) {
    const Node& node = graph.node(id);
    const bool narrows = node.op == "Cast" || node.op == "Quantize" || node.op == "Dequantize";
    if (!narrows || value != node.outputs[0]) break;
    value = node.inputs[0];
  }
  return value;
}

Narrowed narrow_operands(Graph& graph) { return Narrower(graph).run(); }

}  // namespace halfscope
