// SPDX-License-Identifier: MIT
// MaxPool and AveragePool over windows of planes (attributes kernel_shape, strides, pads,
// dilations, ceil_mode), as in ONNX. A window that would begin after the last element, in the
// trailing padding, is dropped, as in PyTorch.
//   MaxPool      the first maximum in row-major order wins, NaN counts as larger than everything.
//                Second output: the winner's position h * width + w within its plane (-1: a window
//                without elements), to which MaxPoolGrad(dy, indices) scatters.
//   AveragePool  the sum over the window's elements, divided by their number; with
//                count_include_pad the padding counts, too, but nothing beyond it.
//                AveragePoolGrad(dy), with the same attributes and `shape`: every element gets the
//                sum of its windows' shares.
#include <algorithm>

#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope {

PoolWindow pool_window(const Node& node) {
  const std::vector<int64_t> kernel = ints_attribute(node, "kernel_shape");
  const std::vector<int64_t> strides = ints_attribute(node, "strides", {1, 1});
  const std::vector<int64_t> dilations = ints_attribute(node, "dilations", {1, 1});
  const std::vector<int64_t> pads = ints_attribute(node, "pads", {0, 0, 0, 0});
  check_node(node, kernel.size() == 2 && kernel[0] >= 1 && kernel[1] >= 1,
             "needs a two-dimensional kernel");
  check_node(node, strides.size() == 2 && dilations.size() == 2 && pads.size() == 4,
             "strides and dilations need two values, pads four");
  for (size_t i = 0; i < 2; ++i) {
    check_node(node, strides[i] >= 1 && dilations[i] >= 1,
               "strides and dilations must be positive");
    const int64_t span = dilations[i] * (kernel[i] - 1) + 1;
    // More padding would give windows without any element.
    check_node(node, pads[i] >= 0 && pads[i] < span && pads[i + 2] >= 0 && pads[i + 2] < span,
               "pads must be smaller than the kernel");
  }
  return {.kernel_h = kernel[0],
          .kernel_w = kernel[1],
          .stride_h = strides[0],
          .stride_w = strides[1],
          .dilation_h = dilations[0],
          .dilation_w = dilations[1],
          .pad_top = pads[0],
          .pad_left = pads[1],
          .pad_bottom = pads[2],
          .pad_right = pads[3],
          .counts_padding = int_attribute(node, "count_include_pad", 0) != 0};
}

namespace ops {
namespace {

int64_t output_size(const Node& node, int64_t size, int64_t span, int64_t stride, int64_t before,
                    int64_t after) {
  const int64_t free = size + before + after - span;
  check_node(node, free >= 0, "the kernel is larger than the padded input");
  if (int_attribute(node, "ceil_mode", 0) == 0) return free / stride + 1;
  const int64_t count = (free + stride - 1) / stride + 1;
  return (count - 1) * stride >= size + before ? count - 1 : count;
}

Shape pooled_shape(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  check_real(graph, node, 0);
  const Shape& x = graph.value(node.inputs[0]).shape;
  check_node(node, x.size() == 4, "needs a four-dimensional input");
  const PoolWindow w = pool_window(node);
  return {x[0], x[1],
          output_size(node, x[2], w.dilation_h * (w.kernel_h - 1) + 1, w.stride_h, w.pad_top,
                      w.pad_bottom),
          output_size(node, x[3], w.dilation_w * (w.kernel_w - 1) + 1, w.stride_w, w.pad_left,
                      w.pad_right)};
}

std::vector<OutputType> infer_max(const Graph& graph, const Node& node) {
  const Shape out = pooled_shape(graph, node);
  return {{out}, {out, ElementType::index}};
}

std::vector<OutputType> infer_average(const Graph& graph, const Node& node) {
  return {{pooled_shape(graph, node)}};
}

std::vector<OutputType> infer_max_grad(const Graph&, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  return {{ints_attribute(node, "shape")}};
}

std::vector<OutputType> infer_average_grad(const Graph&, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  return {{ints_attribute(node, "shape")}};
}

Attributes with_shape(GradientContext& c) {
  Attributes attributes = c.node().attributes;
  attributes["shape"] = c.input_shape(0);
  return attributes;
}

std::vector<ValueId> max_gradient(GradientContext& c) {
  return {c.add("MaxPoolGrad", {c.output_gradient(0), c.output(1)}, with_shape(c))};
}

std::vector<ValueId> average_gradient(GradientContext& c) {
  return {c.add("AveragePoolGrad", {c.output_gradient(0)}, with_shape(c))};
}

}  // namespace

const std::vector<OpDef>& pooling() {
  static const std::vector<OpDef> defs{
      {.name = "MaxPool",
       .domain = "",
       .infer = infer_max,
       .gradient = max_gradient,
       .autocast = Autocast::follow,
       .onnx =
           {.written = true,
            .attributes = {{"kernel_shape"}, {"strides"}, {"pads"}, {"dilations"}, {"ceil_mode"}}},
       .keeps_samples = samples::planes,
       .selects = true},
      // Overlapping windows add up, so a gradient is not always an element of dy.
      {.name = "MaxPoolGrad",
       .domain = "halfscope",
       .infer = infer_max_grad,
       .autocast = Autocast::internal},
      {.name = "AveragePool",
       .domain = "",
       .infer = infer_average,
       .gradient = average_gradient,
       .autocast = Autocast::follow,
       .onnx = {.written = true,
                .attributes = {{"kernel_shape"},
                               {"strides"},
                               {"pads"},
                               {"dilations"},
                               {"ceil_mode"},
                               {"count_include_pad"}}},
       .keeps_samples = samples::planes},
      {.name = "AveragePoolGrad",
       .domain = "halfscope",
       .infer = infer_average_grad,
       .autocast = Autocast::internal},
  };
  return defs;
}

}  // namespace ops
}  // namespace halfscope
