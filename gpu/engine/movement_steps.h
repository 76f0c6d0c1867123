// SPDX-License-Identifier: MIT
// Steps without sums: arithmetic with broadcasting, functions of one element, dropout, copies.
#pragma once

#include <type_traits>
#include <vector>

#include "core/bodies/dropout.h"
#include "core/numeric/elementary/functions.h"
#include "core/ops/dropout.h"
#include "core/ops/movement.h"
#include "gpu/bodies/elementwise.h"
#include "gpu/bodies/indexing.h"
#include "gpu/engine/function_tables.h"
#include "gpu/engine/group_steps.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

/// Drops dimensions of size 1 and merges contiguous neighbours.
inline Strided strided(const Node& node, const std::vector<int64_t>& sizes,
                       const std::vector<int64_t>& strides) {
  Strided result;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    const int last = result.rank - 1;
    if (last >= 0 && result.stride[last] == strides[d] * sizes[d]) {
      result.size.set(last, result.size[last] * sizes[d]);
      result.stride[last] = strides[d];
      continue;
    }
    check_node(node, result.rank < kMaxRank,
               "more than " + std::to_string(kMaxRank) + " dimensions are not supported on a GPU");
    result.size.set(result.rank, sizes[d]);
    result.stride[result.rank++] = strides[d];
  }
  return result;
}

/// Broadcasts `shape` to `to`: stride 0 along stretched dimensions.
inline Strided broadcast(const Node& node, const Shape& shape, const Shape& to) {
  return strided(node, to, broadcast_strides(shape, to));
}

inline Operand operand_of(const Node& node, const Shape& shape, const Shape& to) {
  if (element_count(shape) == element_count(to)) return {Operand::Kind::same, {}};
  if (element_count(shape) == 1) return {Operand::Kind::scalar, {}};
  return {Operand::Kind::broadcast, broadcast(node, shape, to)};
}
/// Same for operand `i` and the first output.
template <class X, class T>
Operand operand_of(const NodeCall<X, T>& c, size_t i) {
  return operand_of(*c.node, c.in_shape(i), c.out_shape(0));
}

template <class X, class T, class Operation>
Step binary_step(const NodeCall<X, T>& c, Operation operation) {
  return items_step(*c.executor, c.out_count(0),
                    Binary<T, Operation>{c.in[0], c.in[1], c.out[0], operand_of(c, 0),
                                         operand_of(c, 1), operation});
}

/// Makes the step of an operation that is no slower than reading its operands.
template <class X, class T, class Operation>
Step simple_binary_step(const NodeCall<X, T>& c, Operation operation) {
  const int64_t n = c.out_count(0);
  if (c.in_count(0) != n || c.in_count(1) != n) return binary_step(c, operation);
  return items_step(*c.executor, items_of_several(n),
                    SimpleBinary<T, Operation>{c.in[0], c.in[1], c.out[0], n, operation});
}
template <class X, class T, class Operation>
Step simple_unary_step(const NodeCall<X, T>& c, Operation operation) {
  const int64_t n = c.out_count(0);
  return items_step(*c.executor, items_of_several(n),
                    SimpleUnary<T, Operation>{c.in[0], c.out[0], n, operation});
}

template <class X, class T, class Operation>
Step unary_step(const NodeCall<X, T>& c, Operation operation) {
  return items_step(*c.executor, c.out_count(0), Unary<T, Operation>{c.in[0], c.out[0], operation});
}

/// Makes the step of a function of N operands if the output is rounded in a mode other than nearest
/// even; otherwise returns nothing.
template <size_t N, class X, class T, class Function>
Step rounded_step(const NodeCall<X, T>& c, const Function& f) {
  if constexpr (std::is_same_v<T, float>) {
    const RoundingMode mode = c.result_rounding().mode;
    if (mode == RoundingMode::nearest_even) return {};
    using Exact = Exactly<Function>;
    RoundedElements<N, Exact> body;
    body.y = c.out[0];
    body.f = Exact{f, mode == RoundingMode::down};
    body.write = c.out_format(0);
    for (size_t i = 0; i < N; ++i) {
      body.x[i] = c.in[i];
      body.at[i] = operand_of(c, i);
    }
    return rounded_items_step(c, c.out_count(0), body);
  }
  return {};
}

/// Makes the step of an operator of core/ops/movement.h.
template <class X, class T>
Step move_step(const NodeCall<X, T>& c) {
  const Movement movement = movement_of(*c.graph, *c.node);
  std::vector<Step> steps;
  if (movement.fill) {
    steps.push_back(
        items_step(*c.executor, c.out_count(0), Fill<T>{c.out[0], static_cast<T>(*movement.fill)}));
  }
  for (const BoxCopy& box : movement.boxes) {
    const Strided from = strided(*c.node, box.sizes, box.from);
    const Strided to = strided(*c.node, box.sizes, box.to);
    const In<T> x = c.in[box.input] + box.first_from;
    const Out<T> y = c.out[box.output] + box.first_to;
    const int64_t n = element_count(box.sizes);
    if (from.keeps_neighbours() && to.keeps_neighbours()) {
      steps.push_back(items_step(*c.executor, n / kSeveral, CopyPacks<T>{x, y, from, to}));
      continue;
    }
    steps.push_back(to.is_whole()     ? items_step(*c.executor, n, CopyFrom<T>{x, y, from})
                    : from.is_whole() ? items_step(*c.executor, n, CopyTo<T>{x, y, to})
                                      : items_step(*c.executor, n, CopyBox<T>{x, y, from, to}));
  }
  return in_turn(std::move(steps));
}

/// Copies into separate memory when the output does not share the input's.
template <class X, class T>
Step copy_step(const NodeCall<X, T>& c) {
  return joint_step(c, [](const NodeCall<X, T>& call) {
    return Copy<T>{call.in[0], call.out[0], call.out_count(0)};
  });
}

template <class X, class T>
Step dropout_step(const NodeCall<X, T>& c) {
  Dropout<T, In<T>, Out<T>> body{c.in[0], c.out[0], {}, c.out_format(0), {}};
  const RoundingChoice choice = c.result_rounding();
  const ValueId value = c.node->outputs[0];
  // A copy, because the step outlives the call.
  return [&executor = *c.executor, n = c.out_count(0), body, choice, value,
          node = *c.node](const RunState& state) {
    Dropout<T, In<T>, Out<T>> now = body;
    now.draw = dropout_of(node, state.random.seed, state.random.step);
    now.rounding = rounding_now(choice, value, state.random);
    executor.items(n, now);
  };
}

template <class X, class T>
Step movement_step(const NodeCall<X, T>& c) {
  const OpDef& def = find_op(c.node->op);
  if (def.view) return copy_step(c);
  if (def.movement != nullptr) return move_step(c);
  using Call = NodeCall<X, T>;
  static constexpr StepRow<X, T> kRows[] = {
      {"Exp",
       [](const Call& call) {
         if (Step step = rounded_step<1>(call, fn::Exp{})) return step;
         const Step step = table_step(call, ExpOp{call.out_format(0)});
         return step ? step : unary_step(call, ExpOp{call.out_format(0)});
       }},
      {"Log",
       [](const Call& call) {
         if (Step step = rounded_step<1>(call, fn::Log{})) return step;
         const Step step = table_step(call, LogOp{call.out_format(0)});
         return step ? step : unary_step(call, LogOp{call.out_format(0)});
       }},
      {"Assign", copy_step<X, T>},
      {"Dropout", dropout_step<X, T>},
      {"DropoutGrad", dropout_step<X, T>},
  };
  if (Step step = step_from(kRows, c)) return step;
  const auto unary = [&]<class F>(F f) {
    if constexpr (HasExact<F, double>) {
      if (Step step = rounded_step<1>(c, f)) return step;
    }
    if constexpr (requires { F::kWaits; }) return unary_step(c, f);
    return simple_unary_step(c, f);
  };
  if (Step step = make_by_name<Step>(def.name, UnaryElements{}, unary)) return step;
  const auto binary = [&]<class F>(F f) {
    if constexpr (HasExact<F, double, double>) {
      if (Step step = rounded_step<2>(c, f)) return step;
    }
    if constexpr (requires { F::kWaits; }) return binary_step(c, f);
    return simple_binary_step(c, f);
  };
  return make_by_name<Step>(def.name, BinaryElements{}, binary);
}

}  // namespace halfscope::gpu
