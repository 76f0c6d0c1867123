// SPDX-License-Identifier: MIT
// BatchNormalization(x, scale, bias, mean, var) of x [n, c, ...] as in ONNX (opset 15).
//   training_mode 0: y = (x - mean) / sqrt(var + epsilon) * scale + bias
//   training_mode 1: uses mean and var of the batch instead, and
//     running' = momentum * running + (1 - momentum) * batch
// Outputs in training: y, running mean', running var', and, for the gradient, the batch's mean and
// 1 / sqrt(var + epsilon). The variance is the population's, as ONNX says. With `unbiased` = 1 the
// running variance is the sample's, n / (n - 1) times larger, as in PyTorch.
// BatchNormalizationGrad(dy, x, scale, mean, inverse_deviation) -> dx, dscale, dbias:
//   h = (x - mean) * inverse_deviation;  dbias = sum dy;  dscale = sum dy * h
//   dx = scale * inverse_deviation * (dy - dbias / n - h * dscale / n)   (Ioffe and Szegedy 2015)
// With training_mode 0, the gradient consists of primitives: dx = dy * scale / sqrt(var + epsilon),
// dscale = sum dy * (x - mean) / sqrt(var + epsilon), dbias = sum dy.
// Fused, the statistics and sums are computed in double and the rest in fp32, as cuDNN's kernels
// use fp32 parameters and statistics with fp16 activations.
#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 5, "needs five inputs");
  const Shape& x = graph.value(node.inputs[0]).shape;
  check_node(node, x.size() >= 2, "needs a batch and channels");
  const Shape channels{x[1]};
  for (size_t i = 1; i < 5; ++i) {
    check_node(node, graph.value(node.inputs[i]).shape == channels,
               "scale, bias, mean and variance must have shape " + to_string(channels));
  }
  if (int_attribute(node, "training_mode", 0) == 0) return {{x}};
  check_node(node, element_count(x) > x[1], "a batch of one value per channel has no variance");
  return {{x}, {channels}, {channels}, {channels}, {channels}};
}

std::vector<OutputType> infer_grad(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 5, "needs five inputs");
  const Shape& channels = graph.value(node.inputs[2]).shape;
  return {{graph.value(node.inputs[1]).shape}, {channels}, {channels}};
}

/// Gradients for fixed statistics: the output is linear in x.
std::vector<ValueId> inference_gradient(GradientContext& c) {
  const Shape x = c.input_shape(0);
  Shape channels(x.size(), 1);
  channels[1] = x[1];
  const ValueId dy = c.output_gradient(0);
  const double epsilon = real_attribute(c.node(), "epsilon", 1e-5);
  const ValueId shifted =
      c.add("Add", {c.input(4), c.graph().add_constant(static_cast<float>(epsilon))});
  const ValueId deviation = c.add("Sqrt", {shifted});
  std::vector<ValueId> result(5, kNone);  // no gradients for the statistics
  if (c.needed(0)) {
    const ValueId slope = c.add("Div", {c.input(1), deviation});
    result[0] = c.add("Mul", {dy, c.reshape(slope, channels)});
  }
  if (c.needed(1)) {
    const ValueId centred = c.add("Sub", {c.input(0), c.reshape(c.input(3), channels)});
    const ValueId normal = c.add("Div", {centred, c.reshape(deviation, channels)});
    result[1] = c.reshape(c.unbroadcast(c.add("Mul", {dy, normal}), channels), {x[1]});
  }
  if (c.needed(2)) result[2] = c.reshape(c.unbroadcast(dy, channels), {x[1]});
  return result;
}

std::vector<ValueId> gradient(GradientContext& c) {
  if (c.node().outputs.size() == 1) return inference_gradient(c);
  std::vector<ValueId> result =
      c.add_all("BatchNormalizationGrad",
                {c.output_gradient(0), c.input(0), c.input(1), c.output(3), c.output(4)});
  result.resize(5, kNone);  // no gradients for the running statistics
  return result;
}

/// Adds primitives under the composite's path.
class Expansion {
 public:
  Expansion(Graph& graph, const Node& node)
      : graph_(graph), path_(node.path), per_channel_(graph.value(node.inputs[0]).shape.size(), 1) {
    per_channel_[1] = graph.value(node.inputs[1]).shape[0];
  }

  ValueId add(const char* op, const char* name, std::vector<ValueId> inputs,
              Attributes attributes = {}) {
    return graph_.add1(op, path_ + "/" + name, std::move(inputs), std::move(attributes));
  }
  ValueId constant(double value) { return graph_.add_constant(static_cast<float>(value)); }
  ValueId broadcast(const char* name, ValueId channels) {
    return add("Reshape", name, {channels}, {{"shape", per_channel_}});
  }
  ValueId mean(const char* name, ValueId x) {
    std::vector<int64_t> axes;
    for (size_t i = 0; i < per_channel_.size(); ++i) {
      if (i != 1) axes.push_back(static_cast<int64_t>(i));
    }
    return add("ReduceMean", name, {x}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  }
  ValueId running(const std::string& name, ValueId old, ValueId batch, double momentum,
                  double factor) {
    const ValueId flat =
        add("Reshape", (name + "_flat").c_str(), {batch}, {{"shape", Shape{per_channel_[1]}}});
    const ValueId kept = add("Mul", (name + "_kept").c_str(), {old, constant(momentum)});
    const ValueId fresh =
        add("Mul", (name + "_new").c_str(), {flat, constant((1.0 - momentum) * factor)});
    return add("Add", name.c_str(), {kept, fresh});
  }

 private:
  Graph& graph_;
  std::string path_;
  Shape per_channel_;
};

std::vector<ValueId> expand(Graph& graph, const Node& node) {
  Expansion e(graph, node);
  const ValueId x = node.inputs[0];
  const bool training = int_attribute(node, "training_mode", 0) != 0;
  const double epsilon = real_attribute(node, "epsilon", 1e-5);
  const double momentum = real_attribute(node, "momentum", 0.9);
  const ValueId mean = training ? e.mean("mean", x) : e.broadcast("mean", node.inputs[3]);
  const ValueId centred = e.add("Sub", "centre", {x, mean});
  const ValueId var = training ? e.mean("var", e.add("Mul", "square", {centred, centred}))
                               : e.broadcast("var", node.inputs[4]);
  const ValueId deviation =
      e.add("Sqrt", "sqrt", {e.add("Add", "eps", {var, e.constant(epsilon)})});
  const ValueId normal = e.add("Div", "normalize", {centred, deviation});
  const ValueId scaled = e.add("Mul", "scale", {normal, e.broadcast("weight", node.inputs[1])});
  const ValueId y = e.add("Add", "shift", {scaled, e.broadcast("bias", node.inputs[2])});
  if (!training) return {y};
  const Shape& shape = graph.value(x).shape;
  const double n = static_cast<double>(element_count(shape)) / static_cast<double>(shape[1]);
  const double unbiased = int_attribute(node, "unbiased", 0) != 0 ? n / (n - 1.0) : 1.0;
  const ValueId next_mean = e.running("running_mean", node.inputs[3], mean, momentum, 1.0);
  const ValueId next_var = e.running("running_var", node.inputs[4], var, momentum, unbiased);
  // The last two outputs serve the fused gradient; the primitives have their own gradients.
  return {y, next_mean, next_var, next_mean, next_var};
}

/// A channel's statistics cover all samples of the batch, as intended.
SampleResult keeps_samples(const SampleNode& n) {
  if (n.others_hold_samples()) return samples::unfit("its statistics differ between samples");
  if (n.place(0)->axis == 1) return samples::unfit("its channels are the samples");
  return samples::at(n.place(0));
}

}  // namespace

const std::vector<OpDef>& normalization() {
  static const std::vector<OpDef> defs{
      {.name = "BatchNormalization",
       .domain = "",
       .infer = infer,
       .gradient = gradient,
       .expand = expand,
       .autocast = Autocast::follow,
       .keeps_samples = keeps_samples,
       .stored_inputs_from = 1,
       .statistics_from = 1},
      {.name = "BatchNormalizationGrad",
       .domain = "halfscope",
       .infer = infer_grad,
       .autocast = Autocast::internal,
       .stored_inputs_from = 2},
  };
  return defs;
}

}  // namespace halfscope::ops
