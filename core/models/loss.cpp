// SPDX-License-Identifier: MIT
#include "core/models/loss.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/models/detection_loss.h"
#include "core/near_miss.h"
#include "core/ops/softmax.h"

namespace halfscope {
namespace {

constexpr std::pair<std::string_view, LossSpec::Kind> kKinds[] = {
    {"cross-entropy", LossSpec::Kind::cross_entropy},
    {"mse", LossSpec::Kind::mse},
    {"bce", LossSpec::Kind::bce},
    {"detection", LossSpec::Kind::detection}};
constexpr std::string_view kSmoothing = ",smoothing=";

/// Reads the smoothing of the loss `text`: a number from 0 to below 1.
double smoothing_in(std::string_view text, std::string_view number) {
  double smoothing = -1.0;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), smoothing);
  const bool whole = error == std::errc() && end == number.data() + number.size();
  if (whole && smoothing >= 0.0 && smoothing < 1.0) return smoothing;
  throw usage_error("loss '" + std::string(text) + "': '" + std::string(number) +
                        "' is not a smoothing from 0 to below 1",
                    "write, for example, cross-entropy,smoothing=0.1");
}

const NamedValue& output_named(const Model& model, const std::string& name) {
  if (model.outputs.empty()) throw Error("network '" + model.name + "' has no outputs");
  if (name.empty()) return model.outputs.front();
  std::vector<std::string> names;
  for (const auto& [kind_name, unused] : kKinds) names.emplace_back(kind_name);
  for (const NamedValue& output : model.outputs) {
    if (output.name == name) return output;
    names.push_back(output.name);
  }
  throw usage_error(
      "network '" + model.name + "' has no output '" + name + "' to use as the loss",
      did_you_mean(name, names,
                   "losses: cross-entropy, mse, bce, detection, or one of its outputs: " +
                       comma_list(std::span(names).subspan(std::size(kKinds)))));
}

void check_name_free(const Model& model, const std::string& name) {
  for (const Input& input : model.graph.inputs()) {
    if (input.name != name) continue;
    throw usage_error("network '" + model.name + "' already has an input '" + name +
                          "', a name that the loss needs",
                      "rename that input, or let the network compute the loss and name its output");
  }
}

/// Adds s times the mean over labelled rows and all classes of -log softmax to (1 - s) times the
/// loss.
void smooth_labels(Model& model, double smoothing) {
  Graph& graph = model.graph;
  const int64_t rows = graph.value(model.logits).shape[0];
  const auto add = [&](const char* op, const char* name, std::vector<ValueId> inputs,
                       Attributes attributes = {}) {
    return graph.add1(op, std::string("loss/") + name, std::move(inputs), std::move(attributes));
  };
  const auto mean = [&](const char* name, ValueId x, std::vector<int64_t> axes, bool keeps) {
    return add("ReduceMean", name, {x},
               {{"axes", std::move(axes)}, {"keepdims", int64_t{keeps ? 1 : 0}}});
  };
  const ValueId logarithms = add("LogSoftmax", "log_softmax", {model.logits});
  const ValueId each = mean("classes", logarithms, {1}, true);
  const ValueId labelled =
      add("GreaterOrEqual", "labelled", {model.labels, graph.add_index_constant({}, {0})});
  const ValueId column = add("Reshape", "column", {labelled}, {{"shape", Shape{rows, 1}}});
  const ValueId counted = add("Where", "counted", {column, each, kNone});
  const ValueId ones = add("Where", "ones", {column, graph.add_constant(1.0f), kNone});
  const ValueId uniform = add(
      "Div", "uniform", {mean("rows", counted, {0, 1}, false), mean("share", ones, {0, 1}, false)});
  const auto factor = [&](double value) { return graph.add_constant(static_cast<float>(value)); };
  model.loss = add("Add", "smoothed",
                   {add("Mul", "sharp", {model.loss, factor(1.0 - smoothing)}),
                    add("Mul", "even", {uniform, factor(-smoothing)})});
}

void add_cross_entropy(Model& model, const NamedValue& output, double smoothing) {
  Graph& graph = model.graph;
  ValueId scores = output.value;
  // The loss has its own, more accurate softmax.
  if (const NodeId made_by = graph.value(scores).producer;
      made_by != kNone && graph.node(made_by).op == "Softmax" &&
      !zeroes_masked_lines(graph.node(made_by))) {
    scores = graph.node(made_by).inputs[0];
  }
  const Shape shape = graph.value(scores).shape;
  if (shape.size() < 2 || shape.size() > 3 || graph.value(scores).type != ElementType::real) {
    throw usage_error(
        "cross-entropy cannot use output '" + output.name + "' of shape " + to_string(shape),
        "name an output of shape [samples, classes] or [samples, positions, classes]");
  }
  check_name_free(model, "labels");
  const int64_t classes = shape.back(), rows = element_count(shape) / std::max<int64_t>(classes, 1);
  model.labels = graph.add_input("labels", {rows}, ElementType::index);
  model.first_loss_node = static_cast<NodeId>(graph.nodes().size());
  if (shape.size() == 3) {
    scores = graph.add1("Reshape", "loss/rows", {scores}, {{"shape", Shape{rows, classes}}});
  }
  model.logits = scores;
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", smoothing > 0.0 ? "loss/labels" : "loss",
                          {scores, model.labels});
  if (smoothing > 0.0) smooth_labels(model, smoothing);
}

/// Adds an input for targets of the output's shape, and begins the loss.
ValueId add_targets(Model& model, const NamedValue& output, const std::string& loss) {
  Graph& graph = model.graph;
  const Shape shape = graph.value(output.value).shape;
  if (graph.value(output.value).type != ElementType::real) {
    throw usage_error(loss + " cannot use output '" + output.name + "', which contains integers",
                      "name an output of real numbers");
  }
  check_name_free(model, "targets");
  const ValueId targets = graph.add_input("targets", shape);
  model.first_loss_node = static_cast<NodeId>(graph.nodes().size());
  return targets;
}

void add_mean_squares(Model& model, const NamedValue& output) {
  const ValueId targets = add_targets(model, output, "mse");
  model.loss = model.graph.add1("MeanSquaredError", "loss", {output.value, targets});
}

void add_binary_cross_entropy(Model& model, const NamedValue& output) {
  Graph& graph = model.graph;
  const ValueId t = add_targets(model, output, "bce");
  ValueId x = output.value;
  if (const NodeId made_by = graph.value(x).producer;
      made_by != kNone && graph.node(made_by).op == "Sigmoid") {
    x = graph.node(made_by).inputs[0];
  }
  const auto add = [&](const char* op, const char* name, std::vector<ValueId> inputs) {
    return graph.add1(op, std::string("loss/") + name, std::move(inputs));
  };
  const ValueId rest = add("Sub", "rest", {graph.add_constant(1.0f), t});
  // -log(sigmoid(x)) = log(1 + exp(-x))
  const ValueId logarithm = add("Softplus", "softplus", {add("Neg", "neg", {x})});
  const ValueId each = add("Add", "each", {add("Mul", "mul", {rest, x}), logarithm});
  model.loss = graph.add1("ReduceMean", "loss", {each}, {{"keepdims", int64_t{0}}});
}

void add_detection(Model& model, const NamedValue& classes) {
  const auto shape_of = [&](const NamedValue& output) {
    const Value& value = model.graph.value(output.value);
    return value.type == ElementType::real ? value.shape : Shape{};
  };
  const Shape scores = shape_of(classes);
  ValueId codes = kNone;
  for (const NamedValue& output : model.outputs) {
    const bool fits = scores.size() == 3 && shape_of(output) == Shape{scores[0], scores[1], 4};
    if (fits && output.value != classes.value && codes == kNone) codes = output.value;
  }
  if (codes == kNone) {
    throw usage_error("detection cannot use output '" + classes.name + "' of shape " +
                          to_string(model.graph.value(classes.value).shape),
                      "name an output of scores [samples, anchors, classes], beside one of boxes "
                      "[samples, anchors, 4]");
  }
  check_name_free(model, "class_targets");
  check_name_free(model, "box_targets");
  add_detection_loss(model, classes.value, codes);
}

/// Switches batch normalizations from inference to training: they update their statistics.
void train_batch_normalizations(Model& model) {
  Graph& graph = model.graph;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    if (graph.node(id).op != "BatchNormalization" ||
        int_attribute(graph.node(id), "training_mode", 0) != 0) {
      continue;
    }
    const ValueId mean = graph.node(id).inputs[3], var = graph.node(id).inputs[4];
    const auto free = [&](ValueId value) {
      const Variable* variable = graph.variable_of(value);
      return variable != nullptr && variable->next == kNone;
    };
    if (!free(mean) || !free(var)) continue;
    graph.node(id).attributes["training_mode"] = int64_t{1};
    graph.node(id).attributes["unbiased"] = int64_t{1};
    const Shape channels = graph.value(mean).shape;
    // The new statistics, and the values that the gradient needs; see core/ops/normalization.cpp.
    for (int i = 0; i < 4; ++i) {
      const ValueId value = graph.add_value(channels, ElementType::real, id);
      graph.node(id).outputs.push_back(value);
    }
    for (Variable& variable : graph.variables()) {
      if (variable.value != mean && variable.value != var) continue;
      variable.buffer = true;
      variable.next = graph.node(id).outputs[variable.value == mean ? 1 : 2];
    }
  }
}

}  // namespace

LossSpec parse_loss(std::string_view text) {
  LossSpec spec;
  std::string_view name = text;
  if (const size_t option = name.find(kSmoothing); option != name.npos) {
    spec.smoothing = smoothing_in(text, name.substr(option + kSmoothing.size()));
    name = name.substr(0, option);
  }
  for (const auto& [kind_name, kind] : kKinds) {
    const bool with_output = name.starts_with(kind_name) && name.size() > kind_name.size() + 1 &&
                             name[kind_name.size()] == ':';
    if (name != kind_name && !with_output) continue;
    spec.kind = kind;
    if (with_output) spec.output = name.substr(kind_name.size() + 1);
    if (spec.smoothing > 0.0 && kind != LossSpec::Kind::cross_entropy) {
      throw usage_error("loss '" + std::string(text) + "': only cross-entropy has smoothing",
                        "leave it out");
    }
    return spec;
  }
  if (text.empty() || text.ends_with(':')) {
    throw usage_error(
        "loss '" + std::string(text) + "' has no name",
        "use cross-entropy, mse, bce, detection, or the name of an output of the network");
  }
  return {.kind = LossSpec::Kind::output, .output = std::string(text)};
}

void add_loss(Model& model, const LossSpec& spec) {
  train_batch_normalizations(model);
  const NamedValue output = output_named(model, spec.output);
  switch (spec.kind) {
    case LossSpec::Kind::cross_entropy:
      return add_cross_entropy(model, output, spec.smoothing);
    case LossSpec::Kind::mse:
      return add_mean_squares(model, output);
    case LossSpec::Kind::bce:
      return add_binary_cross_entropy(model, output);
    case LossSpec::Kind::detection:
      return add_detection(model, output);
    case LossSpec::Kind::output: {
      const Value value = model.graph.value(output.value);
      if (element_count(value.shape) != 1 || value.type != ElementType::real) {
        throw usage_error(
            "output '" + output.name + "' of shape " + to_string(value.shape) + " is not a loss",
            "name an output that is a single real number");
      }
      model.loss = value.shape.empty() ? output.value
                                       : model.graph.add1("Reshape", "loss", {output.value},
                                                          {{"shape", std::vector<int64_t>{}}});
    }
  }
}

void set_running_variance(Model& model, RunningVariance variance) {
  bool any = false;
  for (NodeId id = 0; id < static_cast<NodeId>(model.graph.nodes().size()); ++id) {
    Node& node = model.graph.node(id);
    if (node.op != "BatchNormalization" || int_attribute(node, "training_mode", 0) == 0) continue;
    node.attributes["unbiased"] = int64_t{variance == RunningVariance::sample ? 1 : 0};
    any = true;
  }
  if (!any) {
    throw usage_error("the network has no batch normalization that trains",
                      "leave out --running-variance");
  }
}

}  // namespace halfscope
