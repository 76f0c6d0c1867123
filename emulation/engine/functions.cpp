// SPDX-License-Identifier: MIT
// Kernels of the operators that core/ops/functions.h lists: computed in double, rounded once.
#include "core/ops/functions.h"

#include <vector>

#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"

namespace halfscope {
namespace {

/// One form of GELU, chosen here and not for every element.
template <class Function, bool kTanh>
struct OneForm {
  template <class... X>
  double operator()(X... x) const {
    return Function{.tanh = kTanh}(x...);
  }
  template <class... X>
  requires kTanh static elementary::Bounded quick(X... x) { return Function::quick(x...); }
};

template <size_t N, class T, class Function>
void function_kernel(KernelCall<T>& c) {
  const Function f = function_of<Function>(*c.node);
  if constexpr (requires { f.tanh; }) {
    if (f.tanh) {
      map_elements<N>(c, OneForm<Function, true>{});
    } else {
      map_elements<N>(c, OneForm<Function, false>{});
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
