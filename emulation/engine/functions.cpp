// SPDX-License-Identifier: MIT
// Kernels of the operators that core/ops/functions.h lists: computed in double, rounded once.
#include "core/ops/functions.h"

#include <vector>

#include "emulation/engine/broadcast.h"
#include "emulation/engine/kernel.h"

namespace halfscope {
namespace {

template <class T, class Function>
void unary_function(KernelCall<T>& c) {
  const Function f = function_of<Function>(*c.node);
  const FloatFormat write = c.out_format(0);
  unary(c, [&](T x) { return delivered(f(static_cast<double>(x)), write, T{}); });
}

template <class T, class Function>
void binary_function(KernelCall<T>& c) {
  const Function f = function_of<Function>(*c.node);
  const FloatFormat write = c.out_format(0);
  binary(c, [&](T a, T b) {
    return delivered(f(static_cast<double>(a), static_cast<double>(b)), write, T{});
  });
}

template <class T, class Function>
void ternary_function(KernelCall<T>& call) {
  const Function f = function_of<Function>(*call.node);
  const FloatFormat write = call.out_format(0);
  ternary(call, [&](T a, T b, T c) {
    return delivered(f(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)),
                     write, T{});
  });
}

template <class T, class... F>
void add_unary(std::vector<KernelEntry<T>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, unary_function<T, F>}), ...);
}
template <class T, class... F>
void add_binary(std::vector<KernelEntry<T>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, binary_function<T, F>}), ...);
}
template <class T, class... F>
void add_ternary(std::vector<KernelEntry<T>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, ternary_function<T, F>}), ...);
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> function_kernels() {
  static const auto kernels = [] {
    std::vector<KernelEntry<T>> list;
    add_unary(list, UnaryFunctions{});
    add_binary(list, BinaryFunctions{});
    add_ternary(list, TernaryFunctions{});
    return list;
  }();
  return kernels;
}

template std::span<const KernelEntry<float>> function_kernels();
template std::span<const KernelEntry<double>> function_kernels();

}  // namespace halfscope
