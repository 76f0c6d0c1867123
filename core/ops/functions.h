// SPDX-License-Identifier: MIT
// The operators that core/numeric/elementary/functions.h computes element by element, with
// broadcasting.
#pragma once

#include "core/graph/graph.h"
#include "core/numeric/elementary/functions.h"

namespace halfscope {

/// Returns the function with the node's attributes; a gradient has those of its operator.
template <class Function>
Function function_of(const Node& node) {
  Function f{};
  if constexpr (requires { f.alpha; }) f.alpha = real_attribute(node, "alpha", f.alpha);
  if constexpr (requires { f.beta; }) f.beta = real_attribute(node, "beta", f.beta);
  if constexpr (requires { f.low; }) {
    f.low = real_attribute(node, "min", f.low);
    f.high = real_attribute(node, "max", f.high);
  }
  if constexpr (requires { f.tanh; }) f.tanh = int_attribute(node, "tanh", 0) != 0;
  return f;
}

}  // namespace halfscope
