// SPDX-License-Identifier: MIT
// Steps of the operators that are listed in core/ops/functions.h.
#pragma once

#include "core/ops/functions.h"
#include "gpu/bodies/function_tables.h"
#include "gpu/bodies/functions.h"
#include "gpu/engine/function_tables.h"
#include "gpu/engine/movement_steps.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

template <class Function, class X, class T>
Delivered<Function> delivered_function(const NodeCall<X, T>& c) {
  return {function_of<Function>(*c.node), c.out_format(0)};
}

template <class X, class T, class Operation>
Step ternary_step(const NodeCall<X, T>& c, Operation operation) {
  return items_step(*c.executor, c.out_count(0),
                    Ternary<T, Operation>{c.in[0], c.in[1], c.in[2], c.out[0], operand_of(c, 1),
                                          operand_of(c, 2), operation});
}

template <class X, class T>
Step function_step(const NodeCall<X, T>& c) {
  const std::string& op = c.node->op;
  const auto unary = [&]<class F>(F) {
    if (Step step = rounded_step<1>(c, function_of<F>(*c.node))) return step;
    if (Step step = table_step(c, delivered_function<F>(c))) return step;
    return unary_step(c, delivered_function<F>(c));
  };
  if (Step step = make_by_name<Step>(op, UnaryFunctions{}, unary)) return step;
  const auto binary = [&]<class F>(F) {
    if (Step step = rounded_step<2>(c, function_of<F>(*c.node))) return step;
    if constexpr (HasSlowPart<F>) {
      if (Step step = gradient_table_step(c, function_of<F>(*c.node))) return step;
    }
    return binary_step(c, delivered_function<F>(c));
  };
  if (Step step = make_by_name<Step>(op, BinaryFunctions{}, binary)) return step;
  const auto ternary = [&]<class F>(F) {
    const Step step = rounded_step<3>(c, function_of<F>(*c.node));
    return step ? step : ternary_step(c, delivered_function<F>(c));
  };
  return make_by_name<Step>(op, TernaryFunctions{}, ternary);
}

}  // namespace halfscope::gpu
