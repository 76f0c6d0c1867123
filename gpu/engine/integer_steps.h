// SPDX-License-Identifier: MIT
// Steps of nodes that read and make nothing but indices: the bodies of reals over int32_t, with
// arithmetic that wraps; and the ways between indices and reals.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/ops/index_functions.h"
#include "gpu/bodies/integers.h"
#include "gpu/engine/index_steps.h"
#include "gpu/engine/movement_steps.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

template <class X, class... F>
Step unary_integers(const NodeCall<X, int32_t>& c, FunctionList<F...>) {
  Step step;
  ((c.node->op == F::kName ? void(step = unary_step(c, F{})) : void()), ...);
  return step;
}

template <class X, class... F>
Step binary_integers(const NodeCall<X, int32_t>& c, FunctionList<F...>) {
  Step step;
  ((c.node->op == F::kName ? void(step = binary_step(c, F{})) : void()), ...);
  return step;
}

template <class Function, class X>
Step reduce_indices_step(const NodeCall<X, int32_t>& c, int32_t start) {
  const Shape& x = c.in_shape(0);
  const std::vector<int64_t> own = row_major_strides(x), axes = reduction_axes(*c.node, x.size());
  std::vector<int64_t> sizes[2], strides[2];  // of what stays, and of what is reduced
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t which = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    sizes[which].push_back(x[i]);
    strides[which].push_back(own[i]);
  }
  return items_step(*c.executor, c.out_count(0),
                    ReduceIndices<Function>{
                        c.in[0], c.out[0], strided(*c.node, sizes[0], strides[0]),
                        strided(*c.node, sizes[1], strides[1]), element_count(sizes[1]), start});
}

template <class X>
Step cumulate_indices_step(const NodeCall<X, int32_t>& c) {
  const Shape& x = c.in_shape(0);
  const AxisSplit s = split_at(x, axis_attribute(*c.node, x.size()));
  return items_step(*c.executor, s.outer * s.inner,
                    CumulateIndices{c.in[0], c.out[0], s.length, s.inner,
                                    int_attribute(*c.node, "exclusive", 0) != 0,
                                    int_attribute(*c.node, "reverse", 0) != 0});
}

template <class X>
Step of_indices_step(const NodeCall<X, int32_t>& c) {
  if (Step step = binary_integers(c, BinaryIndexFunctions{})) return step;
  if (Step step = unary_integers(c, UnaryIndexFunctions{})) return step;
  const std::string& op = c.node->op;
  if (op == "Expand" || is_view(*c.node)) {
    const Shape& to = c.out_shape(0);
    const Strided from = op == "Expand" ? broadcast(*c.node, c.in_shape(0), to)
                                        : strided(*c.node, {element_count(to)}, {1});
    return items_step(*c.executor, element_count(to), CopyFrom<int32_t>{c.in[0], c.out[0], from});
  }
  if (op == "Slice") return slice_step(c);
  if (op == "Pad") return pad_step(c);
  if (op == "Transpose") return transpose_step(c);
  if (op == "Concat") return concat_step(c);
  if (op == "Split") return split_step(c);
  if (op == "ReduceSum") return reduce_indices_step<integers::Add>(c, 0);
  if (op == "ReduceMax") return reduce_indices_step<integers::Max>(c, INT32_MIN);
  if (op == "ReduceMin") return reduce_indices_step<integers::Min>(c, INT32_MAX);
  if (op == "CumSum") return cumulate_indices_step(c);
  if (op == "Gather") return gather_step(c);
  if (op == "GatherElements") return gather_elements_step(c);
  if (op == "ArgMax") return arg_max_step(c);
  if (op == "Where") return where_step(c);
  return {};  // comparisons and logic, see index_step()
}

template <class X, class T>
Step integer_step(const NodeCall<X, T>& c) {
  const std::string& op = c.node->op;
  if (op == "IndexToReal") {
    return items_step(*c.executor, c.out_count(0),
                      IndexToReal<T>{c.index_in[0], c.out[0], c.out_format(0)});
  }
  if (op == "RealToIndex") {
    return items_step(*c.executor, c.out_count(0), RealToIndex<T>{c.in[0], c.index_out[0]});
  }
  if (!works_on_indices(*c.graph, *c.node)) return {};
  return of_indices_step(NodeCall<X, int32_t>{.executor = c.executor,
                                              .graph = c.graph,
                                              .node = c.node,
                                              .in = c.index_in,
                                              .index_in = c.index_in,
                                              .out = c.index_out,
                                              .index_out = c.index_out,
                                              .memory = c.memory});
}

}  // namespace halfscope::gpu
