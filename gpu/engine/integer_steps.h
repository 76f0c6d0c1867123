// SPDX-License-Identifier: MIT
// Steps of nodes that only read and write indices (the bodies of reals over int32_t, with
// arithmetic that wraps), and conversions between indices and reals.
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

template <class Function, class X>
Step reduce_indices_step(const NodeCall<X, int32_t>& c, int32_t start) {
  const Shape& x = c.in_shape(0);
  const std::vector<int64_t> own = row_major(x), axes = reduction_axes(*c.node, x.size());
  std::vector<int64_t> sizes[2], strides[2];  // of the kept and of the reduced axes
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
  const AxisLines lines = axis_lines(*c.node, c.in_shape(0));
  return items_step(
      *c.executor, lines.count,
      CumulateIndices{c.in[0], c.out[0], lines, int_attribute(*c.node, "exclusive", 0) != 0,
                      int_attribute(*c.node, "reverse", 0) != 0});
}

template <class X>
Step of_indices_step(const NodeCall<X, int32_t>& call) {
  const OpDef& def = find_op(call.node->op);
  if (def.view) return copy_step(call);
  if (def.movement != nullptr) return move_step(call);
  const auto binary = [&](auto function) { return binary_step(call, function); };
  if (Step step = make_by_name<Step>(def.name, BinaryIndexFunctions{}, binary)) return step;
  const auto unary = [&](auto function) { return unary_step(call, function); };
  if (Step step = make_by_name<Step>(def.name, UnaryIndexFunctions{}, unary)) return step;
  using Call = NodeCall<X, int32_t>;
  static constexpr StepRow<X, int32_t> kRows[] = {
      {"ReduceSum", [](const Call& c) { return reduce_indices_step<integers::Add>(c, 0); }},
      {"ReduceMax", [](const Call& c) { return reduce_indices_step<integers::Max>(c, INT32_MIN); }},
      {"ReduceMin", [](const Call& c) { return reduce_indices_step<integers::Min>(c, INT32_MAX); }},
      {"CumSum", cumulate_indices_step<X>},
      {"Gather", gather_step<X, int32_t>},
      {"GatherElements", gather_elements_step<X, int32_t>},
      {"ArgMax", arg_max_step<X, int32_t>},
      {"ArgSort", arg_sort_step<X, int32_t>},
      {"Where", where_step<X, int32_t>},
  };
  // index_step() handles comparisons and logic.
  return step_from(kRows, call);
}

template <class X, class T>
Step index_to_real_step(const NodeCall<X, T>& c) {
  return rounded_items_step(c, c.out_count(0),
                            IndexToReal<T, Out<T>>{c.index_in[0], c.out[0], c.out_format(0)});
}

template <class X, class T>
Step real_to_index_step(const NodeCall<X, T>& c) {
  return items_step(*c.executor, c.out_count(0), RealToIndex<In<T>>{c.in[0], c.index_out[0]});
}

template <class X, class T>
Step integer_step(const NodeCall<X, T>& c) {
  static constexpr StepRow<X, T> kRows[] = {
      {"IndexToReal", index_to_real_step<X, T>},
      {"RealToIndex", real_to_index_step<X, T>},
  };
  if (!works_on_indices(*c.graph, *c.node)) return step_from(kRows, c);
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
