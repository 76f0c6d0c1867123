// SPDX-License-Identifier: MIT
// Relu: max(x, 0), NaN stays NaN. ReluGrad(dy, y): 0 where y <= 0, else dy, so the derivative at 0
// is 0 and a NaN activation passes the gradient on, as in PyTorch.
#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer_relu(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  return {{graph.value(node.inputs[0]).shape}};
}

std::vector<OutputType> infer_relu_grad(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  return {{graph.value(node.inputs[1]).shape}};
}

std::vector<ValueId> gradient(GradientContext& c) {
  return {c.add("ReluGrad", {c.output_gradient(0), c.output(0)})};
}

}  // namespace

const std::vector<OpDef>& relu() {
  static const std::vector<OpDef> defs{
      {.name = "Relu",
       .domain = "",
       .infer = infer_relu,
       .gradient = gradient,
       .autocast = Autocast::follow,
       .onnx = {.written = true, .read = 1},
       .keeps_samples = samples::alone,
       .selects = true},
      {.name = "ReluGrad",
       .domain = "halfscope",
       .infer = infer_relu_grad,
       .autocast = Autocast::internal,
       .selects = true},
  };
  return defs;
}

}  // namespace halfscope::ops
