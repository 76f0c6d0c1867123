// SPDX-License-Identifier: MIT
// Steps of operators that read or write indices: gathers, comparisons, logic, ArgMax, ArgSort,
// Where.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "gpu/bodies/elementwise.h"
#include "gpu/bodies/gather.h"
#include "gpu/engine/movement_steps.h"
#include "gpu/engine/node_call.h"
#include "gpu/engine/pair_sort.h"

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

/// Makes the steps that sum dy by row. keys_of(rows, places) returns the body that makes the pairs.
template <class X, class T, class KeysOf>
Step row_sums_step(const NodeCall<X, T>& c, const GatherShape<Divisor>& s, const KeysOf& keys_of) {
  constexpr int64_t kMost = int64_t{1} << 31;
  check_node(*c.node, s.count < kMost && s.length <= 2 * kMost,
             "more than 2^31 indices, or 2^32 elements to choose from, are not supported on a GPU");
  X& executor = *c.executor;
  uint32_t* const rows = c.template working_memory<uint32_t>(s.count);
  int32_t* const places = c.template working_memory<int32_t>(s.count);
  const uint64_t largest = static_cast<uint64_t>(std::max<int64_t>(s.length, 2) - 1);
  PairSort sort{.keys = rows,
                .sorted_keys = c.template working_memory<uint32_t>(s.count),
                .values = places,
                .sorted_values = c.template working_memory<int32_t>(s.count),
                .n = s.count,
                .bits = static_cast<int>(std::bit_width(largest))};
  sort.bytes = X::sort_bytes(sort);
  sort.memory = c.template working_memory<std::byte>(static_cast<int64_t>(sort.bytes));
  const GatherGrad<T> sums{c.in[0], sort.sorted_keys,        sort.sorted_values, c.out[0],
                           s,       chain_spec(c.sum_spec())};
  const Zeros<T> zeros{c.out[0], c.out_count(0)};
  const int64_t n = c.in_count(0);
  std::vector<Step> steps{items_step(executor, zeros.items(), zeros)};
  if (n == 0) return in_turn(std::move(steps));
  steps.push_back(items_step(executor, s.count, keys_of(rows, places)));
  steps.push_back([&executor, sort](const RunState&) { executor.sort(sort); });
  steps.push_back(
      sums_step(c, n, sums, [](GatherGrad<T>& body) -> ChainSpec& { return body.how; }));
  return in_turn(std::move(steps));
}

template <class X, class T>
Step gather_grad_step(const NodeCall<X, T>& c) {  // (dy, indices) -> dx
  const GatherShape<Divisor> s = gather_shape(*c.node, c.out_shape(0), c.in_count(1));
  return row_sums_step(c, s, [&](uint32_t* rows, int32_t* places) {
    return RowKeys{c.index_in[1], s.length, rows, places};
  });
}

/// The axis of a GatherElements: its length and stride in x, and the strides of x without it.
struct PickedAxis {
  int64_t length, stride;
  std::vector<int64_t> others;

  PickedAxis(const Node& node, const Shape& x) : others(row_major(x)) {
    const size_t axis = static_cast<size_t>(axis_attribute(node, x.size(), 0));
    length = x[axis];
    stride = std::exchange(others[axis], 0);
  }
};

template <class X, class T>
Step gather_elements_step(const NodeCall<X, T>& c) {
  const Shape &x = c.in_shape(0), &indices = c.in_shape(1);
  if (takes_labels(*c.node)) {
    return items_step(*c.executor, x[0],
                      GatherLabels<In<T>, Out<T>>{c.in[0], c.index_in[1], c.out[0], x[1]});
  }
  const PickedAxis axis(*c.node, x);
  return items_step(
      *c.executor, c.out_count(0),
      GatherElements<T>{c.in[0], c.index_in[1], c.out[0], strided(*c.node, indices, axis.others),
                        axis.length, axis.stride});
}

template <class X, class T>
Step gather_elements_grad_step(const NodeCall<X, T>& c) {  // (dy, indices) -> dx
  const Shape &x = c.out_shape(0), &indices = c.in_shape(1);
  if (takes_labels(*c.node)) {
    return items_step(*c.executor, c.out_count(0),
                      GatherLabelsGrad<T>{c.in[0], c.index_in[1], c.out[0], x[1]});
  }
  const PickedAxis axis(*c.node, x);
  const Strided at = strided(*c.node, indices, axis.others);
  const GatherShape<Divisor> s{element_count(x), 1, element_count(indices)};
  return row_sums_step(c, s, [&](uint32_t* rows, int32_t* places) {
    return ElementKeys{c.index_in[1], at, axis.length, axis.stride, rows, places};
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
Step arg_sort_step(const NodeCall<X, T>& c) {
  return items_step(*c.executor, element_count(c.in_shape(0)),
                    ArgSort<In<T>>{c.in[0], c.index_out[0], axis_lines(*c.node, c.in_shape(0), -1),
                                   axis_lines(*c.node, c.out_shape(0), -1)});
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
      {"ArgSort", arg_sort_step<X, T>},
      {"Where", where_step<X, T>},
  };
  if (Step step = step_from(kRows, call)) return step;
  const auto compare = [&](auto relation) { return compare_step(call, relation); };
  if (Step step = make_by_name<Step>(call.node->op, Relations{}, compare)) return step;
  const auto connect = [&](auto relation) { return logic_step(call, relation); };
  return make_by_name<Step>(call.node->op, Connectives{}, connect);
}

}  // namespace halfscope::gpu
