// SPDX-License-Identifier: MIT
// Kernels of the arithmetic in core/bodies/elements.h, and of exp and log.
#include <vector>

#include "core/bodies/elements.h"
#include "core/numeric/elementary/elementary.h"
#include "emulation/engine/broadcast.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"

namespace halfscope {
namespace {

// exp and log are taken in double.
template <class T>
void exponential(KernelCall<T>& c) {
  map_elements<1>(c, [](double x) { return elementary::exp(x); });
}
template <class T>
void logarithm(KernelCall<T>& c) {
  map_elements<1>(c, [](double x) { return elementary::log(x); });
}

template <class T, class... F>
void add_unary(std::vector<KernelEntry<T>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, unary<T, F>}), ...);
}
template <class T, class... F>
void add_binary(std::vector<KernelEntry<T>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, binary<T, F>}), ...);
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> elementwise_kernels() {
  static const auto kernels = [] {
    std::vector<KernelEntry<T>> list{{"Exp", exponential<T>}, {"Log", logarithm<T>}};
    add_unary(list, UnaryElements{});
    add_binary(list, BinaryElements{});
    return list;
  }();
  return kernels;
}

template std::span<const KernelEntry<float>> elementwise_kernels();
template std::span<const KernelEntry<double>> elementwise_kernels();

}  // namespace halfscope
