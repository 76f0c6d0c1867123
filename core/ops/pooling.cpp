// SPDX-License-Identifier: MIT
// MaxPool: maximum over windows (attributes kernel_shape, strides, pads); the first maximum in
// row-major order wins, NaN counts as larger than everything. Second output: the winner's
// position h * width + w within its plane, which MaxPoolGrad(dy, indices) scatters to.
#include "core/ops/definitions.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer_pool(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Shape& x = graph.value(node.inputs[0]).shape;
  const std::vector<int64_t> kernel = ints_attribute(node, "kernel_shape");
  check_node(node, x.size() == 4 && kernel.size() == 2 && kernel[0] >= 1 && kernel[1] >= 1,
             "needs a four-dimensional input and a two-dimensional kernel");
  check_node(node, ints_attribute(node, "dilations", {1, 1}) == std::vector<int64_t>{1, 1},
             "dilations other than 1 are not supported yet");
  check_node(node, int_attribute(node, "ceil_mode", 0) == 0, "ceil_mode is not supported yet");
  const std::vector<int64_t> strides = ints_attribute(node, "strides", {1, 1});
  const std::vector<int64_t> pads = ints_attribute(node, "pads", {0, 0, 0, 0});
  check_node(node, strides.size() == 2 && pads.size() == 4, "strides need two values, pads four");
  for (size_t i = 0; i < 2; ++i) {
    check_node(node, strides[i] >= 1, "strides must be positive");
    // A wider padding would give windows without any element.
    check_node(node,
               pads[i] >= 0 && pads[i] < kernel[i] && pads[i + 2] >= 0 && pads[i + 2] < kernel[i],
               "pads must be smaller than the kernel");
  }
  const int64_t free_h = x[2] + pads[0] + pads[2] - kernel[0];
  const int64_t free_w = x[3] + pads[1] + pads[3] - kernel[1];
  check_node(node, free_h >= 0 && free_w >= 0, "the kernel is larger than the padded input");
  const Shape out{x[0], x[1], free_h / strides[0] + 1, free_w / strides[1] + 1};
  return {{out}, {out, ElementType::index}};
}

std::vector<OutputType> infer_grad(const Graph&, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  return {{ints_attribute(node, "shape")}};
}

std::vector<ValueId> gradient(GradientContext& c) {
  return {c.add("MaxPoolGrad", {c.output_gradient(0), c.output(1)}, {{"shape", c.input_shape(0)}})};
}

}  // namespace

const std::vector<OpDef>& pooling() {
  static const std::vector<OpDef> defs{
      {.name = "MaxPool", .domain = "", .infer = infer_pool, .gradient = gradient, .selects = true},
      // Overlapping windows add up, so a gradient is not always an element of dy.
      {"MaxPoolGrad", "halfscope", infer_grad},
  };
  return defs;
}

}  // namespace halfscope::ops
