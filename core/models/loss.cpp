// SPDX-License-Identifier: MIT
#include "core/models/loss.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/models/class_losses.h"
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

/// Reads the number of an option of the loss `text` as a whole.
template <class Number>
std::optional<Number> number_in(std::string_view number) {
  Number value{};
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  return value;
}

Error bad_option(std::string_view text, std::string_view number, const char* is_not,
                 const char* example) {
  return usage_error(
      "loss '" + std::string(text) + "': '" + std::string(number) + "' is not " + is_not,
      std::string("write, for example, ") + example);
}

void read_smoothing(LossSpec& spec, std::string_view text, std::string_view number) {
  const auto smoothing = number_in<double>(number);
  if (!smoothing || !(*smoothing >= 0.0 && *smoothing < 1.0)) {
    throw bad_option(text, number, "a smoothing from 0 to below 1", "cross-entropy,smoothing=0.1");
  }
  spec.smoothing = *smoothing;
}

void read_axis(LossSpec& spec, std::string_view text, std::string_view number) {
  const auto axis = number_in<int64_t>(number);
  if (!axis) throw bad_option(text, number, "the number of a dimension", "cross-entropy,axis=1");
  spec.axis = *axis;
}

void read_ignored(LossSpec& spec, std::string_view text, std::string_view number) {
  const auto label = number_in<int32_t>(number);
  if (!label) throw bad_option(text, number, "a label", "cross-entropy,ignore=255");
  spec.ignored = *label;
}

void read_weights(LossSpec& spec, std::string_view text, std::string_view numbers) {
  for (std::string_view rest = numbers;;) {
    const size_t slash = rest.find('/');
    const std::string_view number = rest.substr(0, slash);
    const auto weight = number_in<float>(number);
    if (!weight || !(*weight >= 0.0f && std::isfinite(*weight))) {
      throw bad_option(text, number, "a weight from 0", "cross-entropy,weights=0.5/1/2");
    }
    spec.class_weights.push_back(*weight);
    if (slash == rest.npos) return;
    rest = rest.substr(slash + 1);
  }
}

void read_scores(LossSpec& spec, std::string_view, std::string_view) { spec.scores = true; }

/// An option at the end of a loss: ",NAME" or ",NAME=NUMBER".
struct LossOption {
  std::string_view name;
  void (*read)(LossSpec& spec, std::string_view text, std::string_view number);
  bool takes_number = true, of_bce = false;
};
constexpr LossOption kOptions[] = {{"smoothing", read_smoothing},
                                   {"weights", read_weights},
                                   {"axis", read_axis},
                                   {"ignore", read_ignored},
                                   {"logits", read_scores, false, true}};

/// Reads the last option of `name` into `spec` and cuts it off; returns null without one.
const LossOption* take_option(LossSpec& spec, std::string_view text, std::string_view& name) {
  const size_t comma = name.rfind(',');
  if (comma == name.npos) return nullptr;
  const std::string_view written = name.substr(comma + 1);
  for (const LossOption& option : kOptions) {
    if (!written.starts_with(option.name)) continue;
    const std::string_view rest = written.substr(option.name.size());
    if (option.takes_number ? !rest.starts_with('=') : !rest.empty()) continue;
    option.read(spec, text, option.takes_number ? rest.substr(1) : rest);
    name = name.substr(0, comma);
    return &option;
  }
  return nullptr;
}

std::string_view name_of(LossSpec::Kind kind) {
  return std::find_if(std::begin(kKinds), std::end(kKinds),
                      [kind](const auto& each) { return each.second == kind; })
      ->first;
}

/// Returns the output that the loss names, or the first. Says so if there are others.
const NamedValue& output_of(const Model& model, const LossSpec& spec,
                            std::vector<std::string>& notes) {
  const std::string& name = spec.output;
  if (model.outputs.empty()) throw Error("network '" + model.name + "' has no outputs");
  if (name.empty()) {
    const NamedValue& first = model.outputs.front();
    // Detection looks for its outputs.
    if (model.outputs.size() > 1 && spec.kind != LossSpec::Kind::detection) {
      notes.push_back("the loss uses output '" + first.name + "', the first of " +
                      std::to_string(model.outputs.size()) + "; name another as in --loss " +
                      std::string(name_of(spec.kind)) + ":" + model.outputs[1].name);
    }
    return first;
  }
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

/// Returns the dimension of scores of this shape that counts classes.
int64_t class_axis(const NamedValue& output, const Shape& shape, const LossSpec& spec,
                   std::vector<std::string>& notes) {
  const auto rank = static_cast<int64_t>(shape.size());
  if (spec.axis) {
    const int64_t axis = *spec.axis < 0 ? *spec.axis + rank : *spec.axis;
    if (axis >= 1 && axis < rank) return axis;
    throw usage_error("cross-entropy cannot find classes in dimension " +
                          std::to_string(*spec.axis) + " of output '" + output.name +
                          "' of shape " + to_string(shape),
                      "use axis=1 to axis=" + std::to_string(rank - 1));
  }
  const int64_t usual = rank == 3 ? 2 : 1;
  if (!spec.label_shape) return usual;
  std::vector<int64_t> fitting;
  for (int64_t axis = 1; axis < rank; ++axis) {
    Shape rest(shape.begin() + 1, shape.end());
    rest.erase(rest.begin() + axis - 1);
    if (rest == *spec.label_shape) fitting.push_back(axis);
  }
  if (fitting.empty()) return usual;
  if (std::find(fitting.begin(), fitting.end(), usual) == fitting.end()) return fitting.front();
  if (fitting.size() > 1) {
    const int64_t other = fitting.front() == usual ? fitting.back() : fitting.front();
    notes.push_back("output '" + output.name + "' of shape " + to_string(shape) +
                    " counts classes in dimension " + std::to_string(usual) + " or " +
                    std::to_string(other) + "; the loss takes " + std::to_string(usual) +
                    "; --loss cross-entropy,axis=" + std::to_string(other) + " takes the other");
  }
  return usual;
}

/// Returns the operand of the output if that is a Softmax over this dimension, and says so; else
/// the output. The loss has its own, more accurate softmax.
ValueId scores_of(const Graph& graph, const NamedValue& output, int64_t axis,
                  std::vector<std::string>& notes) {
  const NodeId made_by = graph.value(output.value).producer;
  if (made_by == kNone) return output.value;
  const Node& node = graph.node(made_by);
  if (node.op != "Softmax" || zeroes_masked_lines(node)) return output.value;
  const auto rank = static_cast<int64_t>(graph.value(output.value).shape.size());
  const int64_t along = int_attribute(node, "axis", -1);
  if ((along < 0 ? along + rank : along) != axis) return output.value;
  notes.push_back("output '" + output.name +
                  "' is a Softmax, so the cross-entropy reads its operand; PyTorch's "
                  "CrossEntropyLoss takes another softmax of it, as --loss cross-entropy,logits "
                  "does");
  return node.inputs[0];
}

void add_cross_entropy(Model& model, const NamedValue& output, const LossSpec& spec,
                       std::vector<std::string>& notes) {
  Graph& graph = model.graph;
  const Shape shape = graph.value(output.value).shape;
  if (shape.size() < 2 || graph.value(output.value).type != ElementType::real) {
    throw usage_error(
        "cross-entropy cannot use output '" + output.name + "' of shape " + to_string(shape),
        "name an output of shape [samples, classes], [samples, positions, classes] or [samples, "
        "classes, height, width]");
  }
  const int64_t axis = class_axis(output, shape, spec, notes);
  ValueId scores = spec.scores ? output.value : scores_of(graph, output, axis, notes);
  check_name_free(model, "labels");
  const int64_t classes = shape[static_cast<size_t>(axis)];
  const int64_t rows = element_count(shape) / std::max<int64_t>(classes, 1);
  const auto weights = static_cast<int64_t>(spec.class_weights.size());
  if (weights != 0 && weights != classes) {
    throw usage_error("the loss has weights for " + std::to_string(weights) +
                          " classes, but output '" + output.name + "' has " +
                          std::to_string(classes),
                      "write a weight for each class");
  }
  model.labels = graph.add_input("labels", {rows}, ElementType::index);
  model.ignored_label = spec.ignored;
  model.first_loss_node = static_cast<NodeId>(graph.nodes().size());
  if (axis + 1 < static_cast<int64_t>(shape.size())) {
    std::vector<int64_t> order(shape.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::rotate(order.begin() + axis, order.begin() + axis + 1, order.end());
    scores = graph.add1("Transpose", "loss/classes_last", {scores}, {{"perm", order}});
  }
  if (shape.size() > 2) {
    scores = graph.add1("Reshape", "loss/rows", {scores}, {{"shape", Shape{rows, classes}}});
  }
  model.logits = scores;
  add_class_losses(model, spec.smoothing, spec.class_weights);
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

void add_binary_cross_entropy(Model& model, const NamedValue& output, bool scores,
                              std::vector<std::string>& notes) {
  Graph& graph = model.graph;
  const ValueId t = add_targets(model, output, "bce");
  ValueId x = output.value;
  if (const NodeId made_by = graph.value(x).producer;
      !scores && made_by != kNone && graph.node(made_by).op == "Sigmoid") {
    x = graph.node(made_by).inputs[0];
    notes.push_back("output '" + output.name +
                    "' is a Sigmoid, so bce reads its operand, like PyTorch's BCELoss; "
                    "BCEWithLogitsLoss takes another sigmoid of it, as --loss bce,logits does");
  }
  model.binary_scores = x;
  model.binary_targets = t;
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
  std::vector<const LossOption*> options;
  while (const LossOption* option = take_option(spec, text, name)) options.push_back(option);
  for (const auto& [kind_name, kind] : kKinds) {
    const bool with_output = name.starts_with(kind_name) && name.size() > kind_name.size() + 1 &&
                             name[kind_name.size()] == ':';
    if (name != kind_name && !with_output) continue;
    spec.kind = kind;
    if (with_output) spec.output = name.substr(kind_name.size() + 1);
    for (const LossOption* option : options) {
      const bool fits =
          kind == LossSpec::Kind::cross_entropy || (kind == LossSpec::Kind::bce && option->of_bce);
      if (fits) continue;
      throw usage_error("loss '" + std::string(text) + "': only cross-entropy " +
                            (option->of_bce ? "and bce have " : "has ") + std::string(option->name),
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

std::vector<std::string> add_loss(Model& model, const LossSpec& spec) {
  train_batch_normalizations(model);
  std::vector<std::string> notes;
  const NamedValue output = output_of(model, spec, notes);
  switch (spec.kind) {
    case LossSpec::Kind::cross_entropy:
      add_cross_entropy(model, output, spec, notes);
      break;
    case LossSpec::Kind::mse:
      add_mean_squares(model, output);
      break;
    case LossSpec::Kind::bce:
      add_binary_cross_entropy(model, output, spec.scores, notes);
      break;
    case LossSpec::Kind::detection:
      add_detection(model, output);
      break;
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
  return notes;
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
