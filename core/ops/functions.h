// SPDX-License-Identifier: MIT
// The operators that core/numeric/elementary/functions.h computes element by element, with
// broadcasting. The lists serve every backend.
#pragma once

#include "core/graph/graph.h"
#include "core/numeric/elementary/functions.h"

namespace halfscope {

template <class... Function>
struct FunctionList {};

using UnaryFunctions =
    FunctionList<fn::Abs, fn::Ceil, fn::Clip, fn::Cos, fn::Elu, fn::Erf, fn::Floor, fn::Gelu,
                 fn::HardSigmoid, fn::HardSwish, fn::LeakyRelu, fn::Reciprocal, fn::Round,
                 fn::Sigmoid, fn::Sign, fn::Sin, fn::Softplus, fn::Swish, fn::Tanh>;
using BinaryFunctions =
    FunctionList<fn::Max, fn::Min, fn::PRelu, fn::Pow, fn::ClipGrad, fn::EluGrad, fn::ErfGrad,
                 fn::GeluGrad, fn::HardSigmoidGrad, fn::HardSwishGrad, fn::LeakyReluGrad,
                 fn::PReluSlopeGrad, fn::ReciprocalGrad, fn::SigmoidGrad, fn::SoftplusGrad,
                 fn::SwishGrad, fn::TanhGrad>;
using TernaryFunctions = FunctionList<fn::MaxGrad, fn::PReluGrad, fn::PowGrad, fn::PowExponentGrad>;

/// The function with the node's attributes; a gradient has those of its operator.
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
