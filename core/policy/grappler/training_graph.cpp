// SPDX-License-Identifier: MIT
// The translation of our operators to those of TensorFlow. Only operators, types and edges matter,
// so operands without a colour (shapes, axes, indices) all come from the same constants.
#include "core/policy/grappler/training_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "core/graph/autodiff.h"
#include "core/graph/op_def.h"
#include "core/policy/grappler/tf_builder.h"

namespace halfscope::grappler {
namespace {

using Names = std::vector<std::string>;

/// Operators that are a chain: the first reads the node's operands, the others the one before and
/// the node's last operand.
struct Chain {
  std::string_view ours;
  std::array<std::string_view, 5> theirs;
};
constexpr auto kChains = std::to_array<Chain>({{"SoftmaxGrad", {"Mul", "Sum", "Sub", "Mul"}},
                                               {"LogSoftmaxGrad", {"Sum", "Exp", "Mul", "Sub"}},
                                               {"ReduceMeanGrad", {"BroadcastTo", "RealDiv"}},
                                               {"ReduceMaxGrad", {"Sum", "RealDiv", "Mul"}},
                                               {"ErfGrad", {"Square", "Neg", "Exp", "Mul", "Mul"}},
                                               {"ClipGrad", {"SelectV2"}},
                                               {"MeanSquaredError", {"SquaredDifference", "Mean"}},
                                               {"MeanSquaredErrorGrad", {"Sub", "Mul"}}});

/// Composites of ours that are several operators in TensorFlow.
constexpr auto kExpanded = std::to_array<std::string_view>(
    {"Gelu", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "LogSigmoid",
     "RMSNormalization", "Swish"});

class Translation {
 public:
  explicit Translation(const Model& model) : model_(model) { expand(); }

  TfTraining run() {
    const size_t forward_nodes = graph_.nodes().size();
    GradientMap gradients;
    if (loss_ != kNone) gradients = differentiate(graph_, loss_, graph_.add_constant(1.0F));
    of_value_.assign(graph_.values().size(), "");
    for (const Input& input : graph_.inputs()) {
      of_value_[index(input.value)] = add_source("input/" + input.name, "Placeholder", input.value);
      out_.fetched.push_back(of_value_[index(input.value)]);
    }
    for (const Variable& variable : graph_.variables()) {
      const std::string handle =
          build_.append(variable.path + "/handle", "VarHandleOp", {}, {{"dtype", kTfFloat}});
      handles_[variable.path] = handle;
      of_value_[index(variable.value)] =
          build_.append(variable.path, "ReadVariableOp", {handle}, {{"dtype", kTfFloat}});
    }
    for (const Constant& constant : graph_.constants()) {
      of_value_[index(constant.value)] =
          add_source("constant/" + std::to_string(constant.value), "Const", constant.value);
    }
    std::vector<size_t> layer_of(graph_.nodes().size(), SIZE_MAX);
    for (size_t id = 0; id < graph_.nodes().size(); ++id) {
      const Node& node = graph_.nodes()[id];
      const bool forward = id < forward_nodes;
      if (forward) {
        layer_of[id] = out_.layers.size();
        out_.layers.push_back({node.path, node.op, {}, {}});
      }
      const size_t first = build_.graph().nodes.size();
      translate(node, forward);
      const size_t owner = forward                 ? layer_of[id]
                           : node.forward != kNone ? layer_of[index(node.forward)]
                                                   : SIZE_MAX;
      if (owner == SIZE_MAX) continue;
      for (size_t i = first; i < build_.graph().nodes.size(); ++i)
        (forward ? out_.layers[owner].forward : out_.layers[owner].backward).push_back(i);
    }
    fetch_results(gradients);
    out_.graph = build_.take();
    return std::move(out_);
  }

 private:
  static size_t index(int32_t id) { return static_cast<size_t>(id); }

  static bool expands(const std::string& op) {
    return find_op(op).always_expands ||
           std::find(kExpanded.begin(), kExpanded.end(), op) != kExpanded.end();
  }

  /// Adds the node or, as lower() does for the plan that results, its primitives.
  std::vector<ValueId> add(const Node& node) {
    if (!expands(node.op)) return graph_.add(node.op, node.path, node.inputs, node.attributes);
    if (find_op(node.op).always_expands || node.written == nullptr)
      return find_op(node.op).expand(graph_, node);
    // The primitives of an imported file.
    const Graph& form = node.written->graph;
    std::vector<ValueId> added(form.values().size(), kNone);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      added[index(form.inputs().at(i).value)] = node.inputs[i];
    for (const Constant& constant : form.constants()) {
      added[index(constant.value)] =
          form.value(constant.value).type == ElementType::index
              ? graph_.add_index_constant(constant.tensor.shape, constant.indices)
              : graph_.add_constant(constant.tensor);
    }
    for (const Node& part : form.nodes()) {
      std::vector<ValueId> inputs = part.inputs;
      for (ValueId& input : inputs) input = input == kNone ? kNone : added[index(input)];
      const std::vector<ValueId> made =
          graph_.add(part.op, node.path + "/" + part.path, inputs, part.attributes);
      for (size_t i = 0; i < std::min(made.size(), part.outputs.size()); ++i)
        added[index(part.outputs[i])] = made[i];
    }
    return {added[index(node.written->output)]};
  }

  /// Copies the network and expands composites.
  void expand() {
    const Graph& source = model_.graph;
    std::vector<ValueId> moved(source.values().size(), kNone);
    for (const Input& input : source.inputs()) {
      const Value& value = source.value(input.value);
      moved[index(input.value)] = graph_.add_input(input.name, value.shape, value.type);
    }
    for (const Variable& variable : source.variables()) {
      const Shape& shape = source.value(variable.value).shape;
      moved[index(variable.value)] =
          variable.buffer ? graph_.add_buffer(variable.path, shape, variable.initializer)
                          : graph_.add_variable(variable.path, shape, variable.initializer);
    }
    for (const Constant& constant : source.constants()) {
      moved[index(constant.value)] =
          source.value(constant.value).type == ElementType::index
              ? graph_.add_index_constant(constant.tensor.shape, constant.indices)
              : graph_.add_constant(constant.tensor);
    }
    for (const Node& node : source.nodes()) {
      Node copy = node;
      for (ValueId& input : copy.inputs) input = input == kNone ? kNone : moved[index(input)];
      const std::vector<ValueId> outputs = add(copy);
      for (size_t i = 0; i < std::min(node.outputs.size(), outputs.size()); ++i)
        moved[index(node.outputs[i])] = outputs[i];
      // Composites that always expand need no rule, and one would select their parts.
      if (expands(node.op) && !find_op(node.op).always_expands) out_.expanded.push_back(node.path);
    }
    const auto of = [&](ValueId value) { return value == kNone ? kNone : moved[index(value)]; };
    loss_ = of(model_.loss);
    if (model_.outputs.empty() && model_.logits != kNone) results_.push_back(of(model_.logits));
    for (const NamedValue& output : model_.outputs) results_.push_back(of(output.value));
  }

  std::string add_source(const std::string& name, const std::string& op, ValueId value) {
    const bool real = graph_.value(value).type == ElementType::real;
    return build_.append(name, op, {}, {{"dtype", real ? kTfFloat : kTfInt32}});
  }

  /// Returns the operands with a colour.
  Names operands(const Node& node) const {
    Names names;
    for (const ValueId input : node.inputs) {
      if (input == kNone || graph_.value(input).type != ElementType::real) continue;
      if (!of_value_[index(input)].empty()) names.push_back(of_value_[index(input)]);
    }
    return names;
  }

  void set_outputs(const Node& node, const std::string& made) {
    for (size_t i = 0; i < node.outputs.size(); ++i)
      of_value_[index(node.outputs[i])] = i == 0 ? made : made + ":" + std::to_string(i);
  }

  size_t rank(ValueId value) const { return graph_.value(value).shape.size(); }

  /// Returns "Conv2D", "Conv3D" or "DepthwiseConv2dNative" with the ending of its gradients.
  std::string conv_name(const Node& node, const std::string& what) const {
    const size_t dimensions = std::max(rank(node.inputs[0]), rank(node.inputs[1]));
    if (dimensions > 4) return "Conv3D" + (what.empty() ? what : what + "V2");
    const int64_t group = int_attribute(node, "group", 1);
    // Weights [out, in / group, ...]: each channel has filters of its own.
    const bool depthwise =
        group > 1 && node.op == "Conv" && graph_.value(node.inputs[1]).shape.at(1) == 1;
    const bool gradient = group > 1 && node.op != "Conv";
    return (depthwise || gradient ? "DepthwiseConv2dNative" : "Conv2D") + what;
  }

  bool adds_bias(const Node& node) const {
    return node.inputs.size() > 2 && node.inputs[2] != kNone;
  }

  void translate(const Node& node, bool forward) {
    const std::string name = forward ? node.path : "gradients/" + node.path + "/" + node.op;
    const Names floats = operands(node);
    if (node.op == "Conv" || node.op == "Gemm" || node.op == "MatMul" ||
        node.op == "ConvGradInput" || node.op == "ConvGradWeight") {
      translate_product(node, name, floats);
    } else if (node.op == "BatchNormalization") {
      set_outputs(node, build_.emit(name, "FusedBatchNormV3", floats));
    } else if (node.op == "BatchNormalizationGrad") {
      translate_norm_gradient(node, name, floats);
    } else if (node.op == "MaxPool" || node.op == "AveragePool") {
      const bool max = node.op == "MaxPool";
      const bool three = rank(node.inputs[0]) > 4;
      set_outputs(node, build_.emit(name,
                                    max ? (three ? "MaxPool3D" : "MaxPool")
                                        : (three ? "AvgPool3D" : "AvgPool"),
                                    floats));
    } else if (node.op == "MaxPoolGrad" || node.op == "AveragePoolGrad") {
      translate_pool_gradient(node, name, floats);
    } else if (node.op == "SoftmaxCrossEntropyLoss") {
      each_loss_ = build_.emit(name + "/each", "SparseSoftmaxCrossEntropyWithLogits", floats);
      set_outputs(node, build_.emit(name, "Mean", {each_loss_}));
    } else if (node.op == "SoftmaxCrossEntropyLossGrad" && !each_loss_.empty()) {
      // The operator's second result is its gradient.
      set_outputs(node, build_.emit(name, "Mul", {each_loss_ + ":1", floats.back()}));
    } else if (!forward && node.op == "Add") {
      set_outputs(node, build_.emit(name, "AddN", floats));
    } else if (!forward && node.op == "ReduceSum" && is_bias_gradient(node)) {
      set_outputs(node, build_.emit(name, "BiasAddGrad", floats));
    } else {
      translate_others(node, name, floats);
    }
  }

  void translate_others(const Node& node, const std::string& name, const Names& floats) {
    if (const std::string_view same = same_op(node.op); !same.empty()) {
      set_outputs(node, build_.emit(name, std::string(same), floats, node.outputs.size()));
      return;
    }
    for (const Chain& chain : kChains) {
      if (chain.ours != node.op) continue;
      std::string last;
      for (const std::string_view link : chain.theirs) {
        if (link.empty()) break;
        Names inputs = floats;
        if (!last.empty()) inputs = {last, floats.back()};
        last = build_.emit(name + "/" + std::string(link), std::string(link), inputs);
      }
      set_outputs(node, last);
      return;
    }
    const bool real =
        !node.outputs.empty() && graph_.value(node.outputs[0]).type == ElementType::real;
    if (real) set_outputs(node, build_.emit_unknown(name, node.op, floats, node.outputs.size()));
  }

  void translate_product(const Node& node, const std::string& name, Names floats) {
    const bool bias = adds_bias(node) && floats.size() > 2;
    const std::string added = bias ? floats.back() : "";
    floats.resize(std::min<size_t>(floats.size(), 2));
    std::string op = "MatMul";
    if (node.op == "Conv") op = conv_name(node, "");
    if (node.op == "ConvGradInput") op = conv_name(node, "BackpropInput");
    if (node.op == "ConvGradWeight") op = conv_name(node, "BackpropFilter");
    if (node.op == "MatMul" && (rank(node.inputs[0]) > 2 || rank(node.inputs[1]) > 2))
      op = "BatchMatMulV2";
    const std::string product = build_.emit(bias ? name + "/product" : name, op, floats);
    set_outputs(node, bias ? build_.emit(name, "BiasAdd", {product, added}) : product);
  }

  void translate_norm_gradient(const Node& node, const std::string& name, const Names& floats) {
    // y_backprop, x, then what is always float32: scale and saved statistics.
    Names inputs(floats.begin(), floats.begin() + std::min<std::ptrdiff_t>(2, std::ssize(floats)));
    set_outputs(node, build_.emit(name, "FusedBatchNormGradV3", inputs));
  }

  void translate_pool_gradient(const Node& node, const std::string& name, const Names& floats) {
    const bool max = node.op == "MaxPoolGrad";
    if (!max || node.forward == kNone) {
      set_outputs(node, build_.emit(name, max ? "MaxPoolGrad" : "AvgPoolGrad", floats));
      return;
    }
    const Node& pool = graph_.node(node.forward);
    const bool three = rank(pool.inputs[0]) > 4;
    Names inputs{of_value_[index(pool.inputs[0])], of_value_[index(pool.outputs[0])]};
    inputs.insert(inputs.end(), floats.begin(), floats.end());
    if (three) {
      set_outputs(node, build_.emit_unknown(name, node.op, inputs, node.outputs.size()));
    } else {
      set_outputs(node, build_.emit(name, "MaxPoolGrad", inputs));
    }
  }

  /// The sums of a product's gradients over samples and pixels.
  bool is_bias_gradient(const Node& node) const {
    if (node.forward == kNone) return false;
    const std::string& op = graph_.node(node.forward).op;
    return op == "Conv" || op == "Gemm" || op == "ConvGradInput";
  }

  void fetch_results(const GradientMap& gradients) {
    const auto fetch = [&](const std::string& name, const std::string& value) {
      if (value.empty()) return;
      out_.fetched.push_back(build_.append(name, "Identity", {value}, {{"T", kTfFloat}}));
    };
    if (loss_ != kNone) fetch("fetch/loss", of_value_[index(loss_)]);
    for (size_t i = 0; i < results_.size(); ++i) {
      if (graph_.value(results_[i]).type == ElementType::real)
        fetch("fetch/" + std::to_string(i), of_value_[index(results_[i])]);
    }
    for (const Variable& variable : graph_.variables()) {
      const auto found = gradients.find(variable.value);
      if (found == gradients.end() || variable.buffer) continue;
      const std::string& gradient = of_value_[index(found->second)];
      if (gradient.empty()) continue;
      const std::string rate = build_.filler(kTfFloat);
      build_.append("update/" + variable.path, "ResourceApplyGradientDescent",
                    {handles_[variable.path], rate, gradient}, {{"T", kTfFloat}});
    }
  }

  const Model& model_;
  Graph graph_;
  ValueId loss_ = kNone;
  std::vector<ValueId> results_;
  std::vector<std::string> of_value_;           // TensorFlow's tensor for each value of ours
  std::string each_loss_;                       // the losses of the samples
  std::map<std::string, std::string> handles_;  // by variable
  TfBuilder build_;
  TfTraining out_;
};

}  // namespace

TfTraining tf_training_graph(const Model& model) { return Translation(model).run(); }

TfTraining tf_forward_graph(std::span<const LayerInfo> layers) {
  TfTraining out;
  TfBuilder build;
  std::map<std::string, std::string, std::less<>> of_path;
  for (const LayerInfo& layer : layers) {
    Names floats;
    for (const std::string& input : layer.inputs) {
      auto found = of_path.find(input);
      if (found == of_path.end()) {
        const std::string source = build.append(input, "Placeholder", {}, {{"dtype", kTfFloat}});
        out.fetched.push_back(source);
        found = of_path.emplace(input, source).first;
      }
      floats.push_back(found->second);
    }
    TfLayer made{layer.path, layer.op, {}, {}};
    const size_t first = build.graph().nodes.size();
    const OpDef* def = lookup_op(layer.op);
    const std::string_view same = same_op(layer.op);
    std::string result;
    if (def != nullptr && def->sums_products()) {
      const bool conv = def->product != ProductKind::matrix;
      const char* op = !conv                         ? "MatMul"
                       : layer.op == "ConvGradInput" ? "Conv2DBackpropInput"
                                                     : "Conv2D";
      result = build.emit(layer.path, "BiasAdd", {build.emit(layer.path + "/product", op, floats)});
    } else if (layer.op == "BatchNormalization") {
      result = build.emit(layer.path, "FusedBatchNormV3", floats);
    } else if (layer.op == "MaxPool" || layer.op == "AveragePool") {
      result = build.emit(layer.path, layer.op == "MaxPool" ? "MaxPool" : "AvgPool", floats);
    } else if (!same.empty()) {
      result = build.emit(layer.path, std::string(same), floats);
    } else {
      result = build.emit_unknown(layer.path, layer.op, floats, 1);
    }
    of_path[layer.path] = result;
    for (size_t i = first; i < build.graph().nodes.size(); ++i) made.forward.push_back(i);
    out.layers.push_back(std::move(made));
  }
  out.graph = build.take();
  return out;
}

}  // namespace halfscope::grappler
