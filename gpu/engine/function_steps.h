// SPDX-License-Identifier: MIT
// Steps of the operators that core/ops/functions.h lists.
#pragma once

#include "core/ops/functions.h"
#include "gpu/bodies/functions.h"
#include "gpu/engine/movement_steps.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

template <class Function, class X, class T>
Delivered<Function> delivered_function(const NodeCall<X, T>& c) {
  return {function_of<Function>(*c.node), c.out_format(0)};
}

template <class X, class T, class... F>
Step unary_functions(const NodeCall<X, T>& c, FunctionList<F...>) {
  Step step;
  ((c.node->op == F::kName ? void(step = unary_step(c, delivered_function<F>(c))) : void()), ...);
  return step;
}

template <class X, class T, class... F>
Step binary_functions(const NodeCall<X, T>& c, FunctionList<F...>) {
  Step step;
  ((c.node->op == F::kName ? void(step = binary_step(c, delivered_function<F>(c))) : void()), ...);
  return step;
}

template <class X, class T, class Operation>
Step ternary_step(const NodeCall<X, T>& c, Operation operation) {
  const Shape& to = c.out_shape(0);
  return items_step(*c.executor, element_count(to),
                    Ternary<T, Operation>{c.in[0], c.in[1], c.in[2], c.out[0],
                                          operand_of(*c.node, c.in_shape(1), to),
                                          operand_of(*c.node, c.in_shape(2), to), operation});
}

template <class X, class T, class... F>
Step ternary_functions(const NodeCall<X, T>& c, FunctionList<F...>) {
  Step step;
  ((c.node->op == F::kName ? void(step = ternary_step(c, delivered_function<F>(c))) : void()), ...);
  return step;
}

template <class X, class T>
Step function_step(const NodeCall<X, T>& c) {
  if (Step step = unary_functions(c, UnaryFunctions{})) return step;
  if (Step step = binary_functions(c, BinaryFunctions{})) return step;
  return ternary_functions(c, TernaryFunctions{});
}

}  // namespace halfscope::gpu
