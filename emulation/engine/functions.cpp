// SPDX-License-Identifier: MIT
// Kernels of the operators that core/ops/functions.h lists: computed in double, rounded once.
#include "core/ops/functions.h"

#include <vector>

#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"

namespace halfscope {
namespace {

template <size_t N, class T, class Function>
void function_kernel(KernelCall<T>& c) {
  const Function f = function_of<Function>(*c.node);
  if constexpr (requires { f.tanh; }) {  // decided here, not for every element
    if (f.tanh) {
      map_elements<N>(c, [](auto... x) { return Function{.tanh = true}(x...); });
    } else {
      map_elements<N>(c, [](auto... x) { return Function{.tanh = false}(x...); });
    }
  } else {
    map_elements<N>(c, f);
  }
}

template <size_t N, class T, class... F>
void add_functions(std::vector<KernelEntry<T>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, function_kernel<N, T, F>}), ...);
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> function_kernels() {
  static const auto kernels = [] {
    std::vector<KernelEntry<T>> list;
    add_functions<1>(list, UnaryFunctions{});
    add_functions<2>(list, BinaryFunctions{});
    add_functions<3>(list, TernaryFunctions{});
    return list;
  }();
  return kernels;
}

template std::span<const KernelEntry<float>> function_kernels();
template std::span<const KernelEntry<double>> function_kernels();

}  // namespace halfscope
