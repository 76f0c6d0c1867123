// SPDX-License-Identifier: MIT
// The operators. Each is one file of core/ops with its shape rule, its gradient rule and, for
// composites, its expansion into primitives; a line in table.cpp registers it. Functions that the
// rules share, and that kernels and ONNX files need to interpret nodes, are declared here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/axis_lines.h"
#include "core/bodies/pooling.h"
#include "core/bodies/scaling.h"
#include "core/graph/op_def.h"

namespace halfscope {

/// Returns the Numpy-style broadcast of two shapes. Throws Error naming `node` if they do not fit.
Shape broadcast_shapes(const Node& node, const Shape& a, const Shape& b);

/// Throws Error "fc1 (Gemm): TEXT" unless `ok`.
void check_node(const Node& node, bool ok, const std::string& text);

/// Throw Error unless input i contains real numbers, or indices.
void check_real(const Graph& graph, const Node& node, size_t i);
void check_index(const Graph& graph, const Node& node, size_t i);

/// Returns the common type of all inputs from `first` on. Throws Error if they differ.
ElementType common_type(const Graph& graph, const Node& node, size_t first = 0);

/// Returns the attribute `axis`, made non-negative. Without a fallback the attribute is required.
int64_t axis_attribute(const Node& node, size_t rank,
                       std::optional<int64_t> fallback = std::nullopt);

/// A tensor as [outer, length, inner], where `length` is the size of one axis.
struct AxisSplit {
  int64_t outer = 1, length = 1, inner = 1;
};
AxisSplit split_at(const Shape& shape, int64_t axis);

/// Returns the attribute `perm` of Transpose. Throws Error unless it names every axis once.
std::vector<int64_t> transpose_axes(const Node& node, size_t rank);

/// Returns whether a GatherElements or its gradient reads indices as labels of rows, of which
/// negative ones are ignored.
bool takes_labels(const Node& node);

/// Returns the axes of a reduction, non-negative and sorted. Without the attribute: all axes, or
/// none with noop_with_empty_axes.
std::vector<int64_t> reduction_axes(const Node& node, size_t rank);

/// Returns the lines of a tensor of this shape along the attribute `axis`.
AxisLines axis_lines(const Node& node, const Shape& shape, int64_t default_axis = -1);

/// Returns the groups of LayerNormalization and similar operators. Throws Error if the attributes
/// do not fit x.
NormGroups norm_groups(const Node& node, const Shape& x);
/// Returns the groups of NormalizationGrad.
NormGroups norm_groups_of_gradient(const Node& node, const Shape& x, const Shape& scale);

/// Quantize and Dequantize: return how a tensor of this shape is cut into blocks, and the blocks'
/// format.
BlockShape block_shape(const Node& node, const Shape& shape);
BlockFormat block_format(const Node& node);

/// The way a product combines its sums and a bias: element (i, j) of a Gemm becomes alpha * sum +
/// beta * C[i * row + j * column]; other products have no factors. A MatMul with a bias has
/// the rows of all its matrices, one after another.
struct GemmBias {
  float alpha = 1.0f, beta = 1.0f;
  int64_t row = 0, column = 0;
  bool part_of_sums = true;  ///< a plain bias [n], or none
};
GemmBias gemm_bias(const Graph& graph, const Node& node);

/// A MatMul as products of matrices with strides.
struct MatMulShape {
  Shape a, b;           ///< of the operands, padded to at least two dimensions
  Shape batch, result;  ///< the broadcast dimensions; the result's shape
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0;
  /// Sizes of the array of separate products, and the distances of their operands. Empty if a
  /// single product of m rows is enough.
  Shape products;
  std::vector<int64_t> a_batch, b_batch;
};

/// Returns the shape of the products. Throws Error if the operands do not fit.
MatMulShape matmul_shape(const Node& node, const Shape& a, const Shape& b);

/// One mask of an Attention: a term that is added to the scores, or (`fills`) a value that replaces
/// them where a condition is false.
struct AttentionMask {
  ValueId condition = kNone;  ///< kNone for an added mask
  size_t value = 0;           ///< input of the node
  bool fills = false;
};
/// Returns the masks in their order. Throws Error if the inputs after v are not masks.
std::vector<AttentionMask> attention_masks(const Graph& graph, const Node& node);

/// Position of the kernel of a 2-D convolution on its input.
struct ConvWindow {
  int64_t group = 1;
  int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
};

/// Returns the window of Conv and its gradients. Throws Error if the attributes do not fit.
ConvWindow conv_window(const Node& node);

/// Returns the window of MaxPool, AveragePool and their gradients. Throws Error if the attributes
/// do not fit.
PoolWindow pool_window(const Node& node);
/// Returns the geometry for these shapes of the pool's input and output.
template <class Size = int64_t>
PoolGeometry<Size> pool_geometry(const Node& node, const Shape& x, const Shape& y) {
  return {pool_window(node), x[2], x[3], y[2], y[3]};
}

/// The elements that Slice reads along one dimension; steps may be negative.
struct SliceAxis {
  int64_t start, step, count;
};

/// Returns one SliceAxis for every dimension of the input. Throws Error if the attributes do not
/// fit.
std::vector<SliceAxis> slice_axes(const Node& node, const Shape& shape);

/// Effect of Pad along one dimension: `count` elements starting at `source` move to `target`
/// onwards; negative pads drop elements.
struct PadAxis {
  int64_t source, target, count, result;  ///< `result` is the length of the output
};
std::vector<PadAxis> pad_axes(const Node& node, const Shape& shape);

}  // namespace halfscope
