// SPDX-License-Identifier: MIT
// SoftmaxCrossEntropyLoss(logits [n, c], labels [n]): mean over rows of
//   log sum_j exp(x_j - max) - (x_label - max),
// ignoring rows with a negative label or the label of attribute ignore_index. Fused it is computed
// in double and rounded once. Stagewise it becomes ReduceMax, Sub, Exp, ReduceSum, Log,
// GatherElements, Sub, ReduceMean of all rows, with zeros for ignored rows, and a Div by the share
// of labelled rows (1 if no row is ignored).
// Accuracy(logits, labels): share of labelled rows whose first largest logit is the label's; a row
// with a NaN counts as wrong.
// MeanSquaredError(prediction, target): mean of (prediction - target)^2 over all elements, also in
// double and rounded once; stagewise Sub, Mul, ReduceMean. MeanSquaredErrorGrad(prediction, target,
// dloss) = (prediction - target) (2 dloss / n).
#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope::ops {
namespace {

void check_inputs(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() >= 2, "needs logits and labels");
  const Shape& logits = graph.value(node.inputs[0]).shape;
  const Value& labels = graph.value(node.inputs[1]);
  check_node(
      node,
      logits.size() == 2 && labels.type == ElementType::index && labels.shape == Shape{logits[0]},
      "needs logits [n, c] and labels [n]");
}

std::vector<OutputType> infer_scalar(const Graph& graph, const Node& node) {
  check_inputs(graph, node);
  check_node(node, node.inputs.size() == 2, "class weights are not supported yet");
  return {{Shape{}}};
}

// SoftmaxCrossEntropyLossGrad(logits, labels, dloss): (softmax - onehot) * (dloss / rows)
std::vector<OutputType> infer_grad(const Graph& graph, const Node& node) {
  check_inputs(graph, node);
  check_node(node, node.inputs.size() == 3, "needs three inputs");
  return {{graph.value(node.inputs[0]).shape}};
}

std::vector<ValueId> gradient(GradientContext& c) {
  const Attributes attributes = c.node().attributes;
  return {c.add("SoftmaxCrossEntropyLossGrad", {c.input(0), c.input(1), c.output_gradient(0)},
                attributes),
          kNone};
}

std::vector<ValueId> expand(Graph& graph, const Node& node) {
  const ValueId x = node.inputs[0];
  ValueId labels = node.inputs[1];
  const int64_t count = graph.value(x).shape[0], ignored = int_attribute(node, "ignore_index", -1);
  const std::string base = node.path + "/";
  const auto number = [&](int64_t value) {
    return graph.add_index_constant({}, {static_cast<int32_t>(value)});
  };
  ValueId labelled = graph.add1("GreaterOrEqual", base + "Labelled", {labels, number(0)});
  if (ignored >= 0 && ignored <= INT32_MAX) {
    const ValueId other = graph.add1(
        "Not", base + "Other", {graph.add1("Equal", base + "Ignored", {labels, number(ignored)})});
    labelled = graph.add1("And", base + "And", {labelled, other});
    labels = graph.add1("Where", base + "Labels", {labelled, labels, number(-1)});
  }
  const Attributes rows{{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{1}}};
  // The maximum cancels out of the loss, so its gradient is zero in exact arithmetic.
  const ValueId largest = graph.add1("StopGradient", base + "StopGradient",
                                     {graph.add1("ReduceMax", base + "ReduceMax", {x}, rows)});
  const ValueId shifted = graph.add1("Sub", base + "Shift", {x, largest});
  const ValueId powers = graph.add1("Exp", base + "Exp", {shifted});
  const ValueId sum = graph.add1("ReduceSum", base + "ReduceSum", {powers}, rows);
  const ValueId log_sum = graph.add1("Log", base + "Log", {sum});
  const ValueId picked = graph.add1("GatherElements", base + "GatherElements", {shifted, labels},
                                    {{"labels", int64_t{1}}});
  const ValueId losses = graph.add1("Sub", base + "Sub", {log_sum, picked});
  const ValueId column =
      graph.add1("Reshape", base + "Reshape", {labelled}, {{"shape", Shape{count, 1}}});
  const ValueId counted = graph.add1("Where", base + "Where", {column, losses, kNone});
  const ValueId mean = graph.add1("ReduceMean", base + "ReduceMean", {counted},
                                  {{"axes", std::vector<int64_t>{0, 1}}, {"keepdims", int64_t{0}}});
  // The share of labelled rows is at most 1, in any format.
  const ValueId ones =
      graph.add1("Where", base + "Ones", {column, graph.add_constant(1.0f), kNone});
  const ValueId share =
      graph.add1("ReduceMean", base + "Share", {ones},
                 {{"axes", std::vector<int64_t>{0, 1}}, {"keepdims", int64_t{0}}});
  return {graph.add1("Div", base + "Div", {mean, share})};
}

std::vector<OutputType> infer_squares(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs a prediction and a target");
  const Shape &prediction = graph.value(node.inputs[0]).shape,
              &target = graph.value(node.inputs[1]).shape;
  check_node(node, prediction == target,
             "prediction " + to_string(prediction) + " and target " + to_string(target) +
                 " have different shapes");
  return {{Shape{}}};
}

std::vector<OutputType> infer_squares_grad(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 3, "needs three inputs");
  return {{graph.value(node.inputs[0]).shape}};
}

std::vector<ValueId> squares_gradient(GradientContext& c) {
  const ValueId slope =
      c.add("MeanSquaredErrorGrad", {c.input(0), c.input(1), c.output_gradient(0)});
  return {slope, c.needed(1) ? c.add("Neg", {slope}) : kNone};
}

std::vector<ValueId> expand_squares(Graph& graph, const Node& node) {
  const std::string base = node.path + "/";
  const ValueId error = graph.add1("Sub", base + "Sub", {node.inputs[0], node.inputs[1]});
  const ValueId square = graph.add1("Mul", base + "Mul", {error, error});
  return {graph.add1("ReduceMean", base + "ReduceMean", {square}, {{"keepdims", int64_t{0}}})};
}

/// The mean of the rows of all samples.
SampleResult mean_of_samples(const SampleNode& n) {
  const auto scores = n.place(0);
  if (!scores || scores != n.place(1) || scores->axis != 0)
    return samples::unfit("its scores and labels have the samples in different places");
  return samples::at(std::nullopt);
}

}  // namespace

const std::vector<OpDef>& loss() {
  static const std::vector<OpDef> defs{
      {.name = "SoftmaxCrossEntropyLoss",
       .domain = "",
       .infer = infer_scalar,
       .gradient = gradient,
       .expand = expand,
       .autocast = Autocast::fp32,
       .onnx = {.written = true, .attributes = {{"ignore_index"}}},
       .keeps_samples = mean_of_samples,
       .picks = Picks::classes},
      {.name = "SoftmaxCrossEntropyLossGrad",
       .domain = "halfscope",
       .infer = infer_grad,
       .autocast = Autocast::internal,
       .picks = Picks::classes},
      {.name = "Accuracy",
       .domain = "halfscope",
       .infer = infer_scalar,
       .autocast = Autocast::internal,
       .stored_inputs_from = 0,
       .picks = Picks::classes},
      {.name = "MeanSquaredError",
       .domain = "halfscope",
       .infer = infer_squares,
       .gradient = squares_gradient,
       .expand = expand_squares,
       .autocast = Autocast::fp32},
      {.name = "MeanSquaredErrorGrad",
       .domain = "halfscope",
       .infer = infer_squares_grad,
       .autocast = Autocast::internal},
  };
  return defs;
}

}  // namespace halfscope::ops
