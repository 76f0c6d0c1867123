// SPDX-License-Identifier: MIT
// Conv: 2-D convolution (cross-correlation) of x [n, in, h, w] with w [out, in / group, kh, kw] and
// an optional bias [out]; attributes strides, dilations, pads (top, left, bottom, right), group as
// in ONNX. Its two gradients are operators of ours with the same attributes.
#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope {

ConvWindow conv_window(const Node& node) {
  const std::vector<int64_t> strides = ints_attribute(node, "strides", {1, 1});
  const std::vector<int64_t> dilations = ints_attribute(node, "dilations", {1, 1});
  const std::vector<int64_t> pads = ints_attribute(node, "pads", {0, 0, 0, 0});
  check_node(node, strides.size() == 2 && dilations.size() == 2 && pads.size() == 4,
             "strides and dilations need two values, pads four");
  for (size_t i = 0; i < 2; ++i) {
    check_node(node, strides[i] >= 1 && dilations[i] >= 1 && pads[i] >= 0 && pads[i + 2] >= 0,
               "strides and dilations must be positive, pads not negative");
  }
  const int64_t group = int_attribute(node, "group", 1);
  check_node(node, group >= 1, "group must be positive");
  return {.group = group,
          .stride_h = strides[0],
          .stride_w = strides[1],
          .dilation_h = dilations[0],
          .dilation_w = dilations[1],
          .pad_top = pads[0],
          .pad_left = pads[1],
          .pad_bottom = pads[2],
          .pad_right = pads[3]};
}

namespace ops {
namespace {

struct Sizes {
  int64_t height, width;
};

Sizes output_sizes(const Node& node, const Shape& x, const Shape& w) {
  const ConvWindow window = conv_window(node);
  check_node(node, x.size() == 4 && w.size() == 4, "operands must have four dimensions");
  check_node(node, x[1] == w[1] * window.group && w[0] % window.group == 0,
             "the weight " + to_string(w) + " does not fit the input " + to_string(x) +
                 (window.group == 1 ? "" : " in " + std::to_string(window.group) + " groups"));
  const int64_t free_h =
      x[2] + window.pad_top + window.pad_bottom - window.dilation_h * (w[2] - 1) - 1;
  const int64_t free_w =
      x[3] + window.pad_left + window.pad_right - window.dilation_w * (w[3] - 1) - 1;
  check_node(node, free_h >= 0 && free_w >= 0, "the kernel is larger than the padded input");
  return {free_h / window.stride_h + 1, free_w / window.stride_w + 1};
}

std::vector<OutputType> infer_conv(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2 || node.inputs.size() == 3, "needs two or three inputs");
  const Shape& x = graph.value(node.inputs[0]).shape;
  const Shape& w = graph.value(node.inputs[1]).shape;
  const Sizes out = output_sizes(node, x, w);
  const std::vector<int64_t> kernel{w[2], w[3]};
  check_node(node, ints_attribute(node, "kernel_shape", kernel) == kernel,
             "kernel_shape differs from the weight's");
  if (node.inputs.size() == 3 && node.inputs[2] != kNone) {
    check_node(node, graph.value(node.inputs[2]).shape == Shape{w[0]},
               "the bias must have shape [out]");
  }
  return {{Shape{x[0], w[0], out.height, out.width}}};
}

// ConvGradInput(dy, w), attribute shape = x's; ConvGradWeight(dy, x), attribute shape = w's.
std::vector<OutputType> infer_gradient(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  const Shape shape = ints_attribute(node, "shape");
  const bool of_input = node.op == "ConvGradInput";
  const Shape& dy = graph.value(node.inputs[0]).shape;
  const Shape& other = graph.value(node.inputs[1]).shape;
  const Shape &x = of_input ? shape : other, &w = of_input ? other : shape;
  const Sizes out = output_sizes(node, x, w);
  const Shape result{x[0], w[0], out.height, out.width};
  check_node(node, dy == result,
             "the convolution of " + to_string(x) + " with " + to_string(w) + " gives " +
                 to_string(result) + ", not " + to_string(dy));
  return {{shape}};
}

std::vector<ValueId> gradient(GradientContext& c) {
  const ValueId dy = c.output_gradient(0);
  const bool has_bias = c.node().inputs.size() == 3 && c.input(2) != kNone;
  const Attributes attributes = c.node().attributes;
  std::vector<ValueId> result(c.node().inputs.size(), kNone);
  if (has_bias && c.needed(2)) {
    result[2] = c.add("ReduceSum", {dy},
                      {{"axes", std::vector<int64_t>{0, 2, 3}}, {"keepdims", int64_t{0}}});
  }
  if (c.needed(1)) {
    Attributes with_shape = attributes;
    with_shape["shape"] = c.input_shape(1);
    result[1] = c.add("ConvGradWeight", {dy, c.input(0)}, with_shape);
  }
  if (c.needed(0)) {
    Attributes with_shape = attributes;
    with_shape["shape"] = c.input_shape(0);
    result[0] = c.add("ConvGradInput", {dy, c.input(1)}, with_shape);
  }
  return result;
}

// A ConvGradInput(x, w) used as a layer is a transposed convolution: its gradient with respect to x
// is the convolution that it transposes, and w enters both in the same way.
std::vector<ValueId> transposed_gradient(GradientContext& c) {
  const ValueId dy = c.output_gradient(0);
  std::vector<ValueId> result(2, kNone);
  Attributes attributes = c.node().attributes;
  if (c.needed(1)) {
    attributes["shape"] = c.input_shape(1);
    result[1] = c.add("ConvGradWeight", {c.input(0), dy}, attributes);
  }
  if (c.needed(0)) {
    attributes.erase("shape");
    result[0] = c.add("Conv", {dy, c.input(1)}, attributes);
  }
  return result;
}

}  // namespace

const std::vector<OpDef>& conv() {
  static const std::vector<OpDef> defs{
      {.name = "Conv",
       .domain = "",
       .infer = infer_conv,
       .gradient = gradient,
       .autocast = Autocast::low,
       .onnx = {.written = true, .attributes = {{"strides"}, {"dilations"}, {"pads"}, {"group"}}},
       .keeps_samples = samples::only_first,
       .product = ProductKind::conv,
       .summed_axis = [](const Node&, size_t) -> int64_t { return 1; }},
      {.name = "ConvGradInput",
       .domain = "halfscope",
       .infer = infer_gradient,
       .gradient = transposed_gradient,
       .autocast = Autocast::low,
       .keeps_samples = samples::only_first,
       .product = ProductKind::conv_grad_input,
       .summed_axis = [](const Node&, size_t operand) -> int64_t { return operand == 0 ? 1 : 0; }},
      {.name = "ConvGradWeight",
       .domain = "halfscope",
       .infer = infer_gradient,
       .autocast = Autocast::internal,
       .product = ProductKind::conv_grad_weight,
       .summed_axis = [](const Node&, size_t) -> int64_t { return 0; }},
  };
  return defs;
}

}  // namespace ops
}  // namespace halfscope
