// SPDX-License-Identifier: MIT
// Steps of operators that read or write indices: gathers, comparisons, logic, ArgMax, Where.
#pragma once

#include <algorithm>
#include <string>

#include "gpu/bodies/elementwise.h"
#include "gpu/bodies/gather.h"
#include "gpu/engine/movement_steps.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

inline GatherShape<Divisor> gather_shape(const Node& node, const Shape& x, int64_t count) {
  const AxisSplit split = split_at(x, axis_attribute(node, x.size(), 0));
  return {split.length, split.inner, count};
}

template <class X, class T>
Step gather_step(const NodeCall<X, T>& c) {
  return items_step(*c.executor, c.out_count(0),
                    Gather<T>{c.in[0], c.index_in[1], c.out[0],
                              gather_shape(*c.node, c.in_shape(0), c.in_count(1))});
}

template <class X, class T>
Step gather_grad_step(const NodeCall<X, T>& c) {  // (dy, indices) -> dx
  const GatherShape<Divisor> s = gather_shape(*c.node, c.out_shape(0), c.in_count(1));
  int32_t* const places = c.template working_memory<int32_t>(s.count);
  int32_t* const first = c.template working_memory<int32_t>(s.length);
  int32_t* const terms = c.template working_memory<int32_t>(s.length);
  X& executor = *c.executor;
  const GatherGrad<T> body{c.in[0], places, first, terms, c.out[0], s, chain_spec(c.sum_spec())};
  const int64_t n = c.out_count(0);
  return in_turn({items_step(executor, s.length, Fill<int32_t>{terms, 0}),
                  items_step(executor, s.count, SortByRow{c.index_in[1], places, first, terms, s}),
                  c.step_with_key([&executor, n, body](uint64_t key) {
                    GatherGrad<T> now = body;
                    now.how.key = key;
                    executor.items(n, now);
                  })});
}

template <class X, class T>
Step gather_elements_step(const NodeCall<X, T>& c) {
  const Shape &x = c.in_shape(0), &indices = c.in_shape(1);
  if (takes_labels(*c.node)) {
    return items_step(*c.executor, x[0],
                      GatherLabels<In<T>, Out<T>>{c.in[0], c.index_in[1], c.out[0], x[1]});
  }
  const size_t axis = static_cast<size_t>(axis_attribute(*c.node, x.size(), 0));
  std::vector<int64_t> strides = row_major(x);
  const int64_t stride = strides[axis];
  strides[axis] = 0;
  return items_step(*c.executor, c.out_count(0),
                    GatherElements<T>{c.in[0], c.index_in[1], c.out[0],
                                      strided(*c.node, indices, strides), x[axis], stride});
}

template <class X, class T>
Step gather_elements_grad_step(const NodeCall<X, T>& c) {  // (dy, indices) -> dx
  const Shape &x = c.out_shape(0), &indices = c.in_shape(1);
  if (takes_labels(*c.node)) {
    return items_step(*c.executor, c.out_count(0),
                      GatherLabelsGrad<T>{c.in[0], c.index_in[1], c.out[0], x[1]});
  }
  check_node(*c.node, x.size() <= static_cast<size_t>(kMaxRank),
             "more than " + std::to_string(kMaxRank) + " dimensions are not supported on a GPU");
  GatherElementsGrad<T> body{.dy = c.in[0],
                             .index = c.index_in[1],
                             .dx = c.out[0],
                             .rank = static_cast<int>(x.size()),
                             .axis = static_cast<int>(axis_attribute(*c.node, x.size(), 0)),
                             .size = {},
                             .taken = {},
                             .how = chain_spec(c.sum_spec())};
  for (size_t d = 0; d < x.size(); ++d) body.size.set(static_cast<int>(d), x[d]);
  std::copy(indices.begin(), indices.end(), body.taken);
  X& executor = *c.executor;
  const int64_t n = c.out_count(0);
  return c.step_with_key([&executor, n, body](uint64_t key) {
    GatherElementsGrad<T> now = body;
    now.how.key = key;
    executor.items(n, now);
  });
}

template <class Element, class X, class T, class Relation>
Step relation_step(const NodeCall<X, T>& c, In<Element> a, In<Element> b, Relation relation) {
  const Shape& to = c.out_shape(0);
  return items_step(*c.executor, element_count(to),
                    Binary<Element, Relation, int32_t>{
                        a, b, c.index_out[0], operand_of(*c.node, c.in_shape(0), to),
                        operand_of(*c.node, c.in_shape(1), to), relation});
}

template <class X, class T, class Relation>
Step compare_step(const NodeCall<X, T>& c, Relation relation) {
  return c.in[0] == nullptr ? relation_step<int32_t>(c, c.index_in[0], c.index_in[1], relation)
                            : relation_step<T>(c, c.in[0], c.in[1], relation);
}

template <class X, class T, class Relation>
Step logic_step(const NodeCall<X, T>& c, Relation relation) {
  return relation_step<int32_t>(c, c.index_in[0], c.index_in[1], relation);
}

template <class X, class T>
Step arg_max_step(const NodeCall<X, T>& c) {
  const AxisLines lines = axis_lines(*c.node, c.in_shape(0), 0);
  return items_step(*c.executor, lines.count,
                    ArgMax<In<T>>{c.in[0], c.index_out[0], lines,
                                  int_attribute(*c.node, "select_last_index", 0) != 0});
}

template <class X, class T>
Step where_step(const NodeCall<X, T>& c) {
  const Shape& to = c.out_shape(0);
  Where<T> body{.condition = c.index_in[0],
                .a = c.in[1],
                .b = c.in[2],
                .y = c.out[0],
                .at_condition = operand_of(*c.node, c.in_shape(0), to),
                .at_a = {},
                .at_b = {}};
  if (body.a != nullptr) body.at_a = operand_of(*c.node, c.in_shape(1), to);
  if (body.b != nullptr) body.at_b = operand_of(*c.node, c.in_shape(2), to);
  return items_step(*c.executor, element_count(to), body);
}

template <class X, class T>
Step not_step(const NodeCall<X, T>& c) {
  return items_step(*c.executor, c.out_count(0),
                    Unary<int32_t, NotOp>{c.index_in[0], c.index_out[0]});
}

template <class X, class T>
Step index_step(const NodeCall<X, T>& call) {
  static constexpr StepRow<X, T> kRows[] = {
      {"Gather", gather_step<X, T>},
      {"GatherGrad", gather_grad_step<X, T>},
      {"GatherElements", gather_elements_step<X, T>},
      {"GatherElementsGrad", gather_elements_grad_step<X, T>},
      {"Not", not_step<X, T>},
      {"ArgMax", arg_max_step<X, T>},
      {"Where", where_step<X, T>},
  };
  if (Step step = step_from(kRows, call)) return step;
  const auto compare = [&](auto relation) { return compare_step(call, relation); };
  if (Step step = make_by_name<Step>(call.node->op, Relations{}, compare)) return step;
  const auto connect = [&](auto relation) { return logic_step(call, relation); };
  return make_by_name<Step>(call.node->op, Connectives{}, connect);
}

}  // namespace halfscope::gpu
