// SPDX-License-Identifier: MIT
// Kernels of the arithmetic in core/bodies/elements.h, and of exp and log.
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

}  // namespace

template <class T>
std::span<const KernelEntry<T>> elementwise_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"Add", binary<T, AddOp>},  {"Sub", binary<T, SubOp>},
      {"Mul", binary<T, MulOp>},  {"Div", binary<T, DivOp>},
      {"Neg", unary<T, NegOp>},   {"Sqrt", unary<T, SqrtOp>},
      {"Exp", exponential<T>},    {"Log", logarithm<T>},
      {"Relu", unary<T, ReluOp>}, {"ReluGrad", binary<T, ReluGradOp>},
  };
  return kernels;
}

template std::span<const KernelEntry<float>> elementwise_kernels();
template std::span<const KernelEntry<double>> elementwise_kernels();

}  // namespace halfscope
