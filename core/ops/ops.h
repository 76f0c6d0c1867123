// SPDX-License-Identifier: MIT
// The operators. Each is one file of core/ops with its shape rule, its gradient rule and, for
// composites, its expansion into primitives; a line in table.cpp makes it known. What the rules
// share is declared here, for kernels and ONNX files to read nodes by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/axis_lines.h"
#include "core/bodies/pooling.h"
#include "core/bodies/scaling.h"
#include "core/graph/op_def.h"

namespace halfscope {

/// Numpy-style broadcast of two shapes; throws Error naming `node` if they do not fit.
Shape broadcast_shapes(const Node& node, const Shape& a, const Shape& b);

/// Throws Error "fc1 (Gemm): TEXT" unless `ok`.
void check_node(const Node& node, bool ok, const std::string& text);

/// Throws Error unless input i holds real numbers, or indices.
void check_real(const Graph& graph, const Node& node, size_t i);
void check_index(const Graph& graph, const Node& node, size_t i);

/// The one type of all inputs from this one on; throws Error if they differ.
ElementType common_type(const Graph& graph, const Node& node, size_t first = 0);

/// Attribute axis, made non-negative; without a fallback it must be there.
int64_t axis_attribute(const Node& node, size_t rank,
                       std::optional<int64_t> fallback = std::nullopt);

/// A tensor as [outer, length, inner], where `length` is that of one axis.
struct AxisSplit {
  int64_t outer = 1, length = 1, inner = 1;
};
AxisSplit split_at(const Shape& shape, int64_t axis);

/// Attribute perm of Transpose; throws Error unless it names every axis once.
std::vector<int64_t> transpose_axes(const Node& node, size_t rank);

/// GatherElements and its gradient: indices are labels of rows, negative ones are ignored.
bool takes_labels(const Node& node);

/// Axes attribute of a reduction made non-negative and sorted; without any it is all axes, or none
/// with noop_with_empty_axes.
std::vector<int64_t> reduction_axes(const Node& node, size_t rank);

/// Lines of a tensor of this shape along attribute `axis`.
AxisLines axis_lines(const Node& node, const Shape& shape, int64_t default_axis = -1);

/// Groups of LayerNormalization and its like; throws Error if the attributes do not fit x.
NormGroups norm_groups(const Node& node, const Shape& x);
/// Of NormalizationGrad.
NormGroups norm_groups_of_gradient(const Node& node, const Shape& x, const Shape& scale);

/// Quantize and Dequantize: how a tensor of this shape is cut into blocks, and what they hold.
BlockShape block_shape(const Node& node, const Shape& shape);
BlockFormat block_format(const Node& node);

/// What a product does with its sums and a bias: element (i, j) of a Gemm becomes
/// alpha * sum + beta * C[i * row + j * column]; others have no factors.
struct GemmBias {
  float alpha = 1.0f, beta = 1.0f;
  int64_t row = 0, column = 0;
  bool part_of_sums = true;  ///< plain biases [n], or none
};
GemmBias gemm_bias(const Graph& graph, const Node& node);

/// MatMul as products of matrices with strides.
struct MatMulShape {
  Shape a, b;           ///< of the operands, with at least two dimensions
  Shape batch, result;  ///< what is broadcast; the result's shape
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0;
  /// Products side by side: sizes, and the distances of their operands. Empty if one product of m
  /// rows does all.
  Shape products;
  std::vector<int64_t> a_batch, b_batch;
};

/// Throws Error if the operands do not fit.
MatMulShape matmul_shape(const Node& node, const Shape& a, const Shape& b);

/// One mask of an Attention: what is added to the scores, or what stands in their place where a
/// condition is false (`fills`: true).
struct AttentionMask {
  ValueId condition = kNone;  ///< kNone where it is added
  size_t value = 0;           ///< input of the node
  bool fills = false;
};
/// In the order in which they come; throws Error if the inputs after v are no masks.
std::vector<AttentionMask> attention_masks(const Graph& graph, const Node& node);

/// How the kernel of a 2-D convolution lies on its input.
struct ConvWindow {
  int64_t group = 1;
  int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
};

/// Of Conv and its gradients; throws Error if the attributes do not fit.
ConvWindow conv_window(const Node& node);

/// Of MaxPool, AveragePool and their gradients; throws Error if the attributes do not fit.
PoolWindow pool_window(const Node& node);
/// Given the shapes of the pool's input and output.
template <class Size = int64_t>
PoolGeometry<Size> pool_geometry(const Node& node, const Shape& x, const Shape& y) {
  return {pool_window(node), x[2], x[3], y[2], y[3]};
}

/// What Slice takes of one dimension; steps may be negative.
struct SliceAxis {
  int64_t start, step, count;
};

/// Of every dimension of the input's shape; throws Error if the attributes do not fit.
std::vector<SliceAxis> slice_axes(const Node& node, const Shape& shape);

/// What Pad does with one dimension: `count` elements from `source` on go to `target` and after;
/// negative pads leave elements out.
struct PadAxis {
  int64_t source, target, count, result;  ///< `result` is the length of the output
};
std::vector<PadAxis> pad_axes(const Node& node, const Shape& shape);

}  // namespace halfscope
