// SPDX-License-Identifier: MIT
// Intermediate results that stay in fp32 when one operator of a file becomes several of ours, for
// example the squares and the sum of a norm. PyTorch's kernel computes them in fp32 and rounds only
// the result, and so do fused plans. Stagewise plans round after each part.
#pragma once

#include "core/graph/graph.h"

namespace halfscope {

/// Attribute of a node with an intermediate result.
inline constexpr const char* kUnrounded = "unrounded";
/// Its values: the file has one operator, or it has several for what is one in PyTorch.
inline constexpr int64_t kStepOfOne = 1, kStepOfSeveral = 2;

/// Attribute of the parts of an attention that PyTorch computes in one kernel, which keeps them in
/// fp32 under every plan that does not compute them stagewise.
inline constexpr const char* kInKernel = "in_kernel";
/// Its values: the product at the start, which reads as planned and has a result in fp32; parts
/// that read and write fp32, whose results have gradients in fp32, too.
inline constexpr int64_t kKernelStart = 1, kKernelInside = 2;

/// Returns the value of kInKernel, or 0 for other nodes and under plans that round every step.
int64_t place_in_kernel(const Node& node);
/// Returns whether a part of a kernel makes the value, and not the product at the start.
bool is_inside_kernel(const Graph& graph, ValueId value);

/// Returns whether `value` is an intermediate result that its node's plan keeps in fp32. Not so for
/// sums that round every term to the write format: their result is in that format.
bool is_unrounded(const Graph& graph, ValueId value);

/// Returns whether the node writes or reads such a value.
bool works_unrounded(const Graph& graph, const Node& node);

}  // namespace halfscope
