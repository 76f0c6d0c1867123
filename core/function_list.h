// SPDX-License-Identifier: MIT
// A list of types that serves every backend: each makes its kernels from it, so that one more
// function is one more entry.
#pragma once

#include <string_view>

namespace halfscope {

/// Structs with a kName, the operator's, and a call operator.
template <class... Function>
struct FunctionList {};

/// make(F{}) of the function with that name; the default of the result if there is none.
template <class Result, class... F, class Make>
Result made_by_name(std::string_view name, FunctionList<F...>, const Make& make) {
  Result result{};
  ((name == F::kName ? void(result = make(F{})) : void()), ...);
  return result;
}

}  // namespace halfscope
