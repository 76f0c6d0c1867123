// SPDX-License-Identifier: MIT
// A list of types from which every backend makes its kernels, so that adding a function is adding
// one entry.
#pragma once

#include <string_view>

namespace halfscope {

/// A list of structs, each with kName (the operator's name) and a call operator.
template <class... Function>
struct FunctionList {};

/// Returns make(F{}) for the function called `name`, or a default-constructed Result if there is
/// none.
template <class Result, class... F, class Make>
Result make_by_name(std::string_view name, FunctionList<F...>, const Make& make) {
  Result result{};
  ((name == F::kName ? void(result = make(F{})) : void()), ...);
  return result;
}

}  // namespace halfscope
