// SPDX-License-Identifier: MIT
// Kernels of single elements: arithmetic with broadcasting, Relu, functions. In the
// emulator the operands are values of narrow formats and fp32 arithmetic is wide enough for a
// single later rounding of +, -, *, / and sqrt to be the correct one (NUMERICS: 24 >= 2p + 2).
#include <array>
#include <cmath>

#include "core/numeric/elementary/elementary.h"
#include "core/ops/ops.h"
#include "emulation/engine/broadcast.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"
#include "emulation/engine/walk.h"

namespace halfscope {
namespace {

template <class T>
void add(KernelCall<T>& c) {
  binary(c, [](T a, T b) { return a + b; });
}
template <class T>
void sub(KernelCall<T>& c) {
  binary(c, [](T a, T b) { return a - b; });
}
template <class T>
void mul(KernelCall<T>& c) {
  binary(c, [](T a, T b) { return a * b; });
}
template <class T>
void div(KernelCall<T>& c) {
  binary(c, [](T a, T b) { return a / b; });
}
template <class T>
void neg(KernelCall<T>& c) {
  unary(c, [](T x) { return -x; });
}
template <class T>
void square_root(KernelCall<T>& c) {
  unary(c, [](T x) { return std::sqrt(x); });
}

// exp and log are taken in double.
template <class T>
void exponential(KernelCall<T>& c) {
  map_elements<1>(c, [](double x) { return elementary::exp(x); });
}
template <class T>
void logarithm(KernelCall<T>& c) {
  map_elements<1>(c, [](double x) { return elementary::log(x); });
}

template <class T>
void relu(KernelCall<T>& c) {
  unary(c, [](T x) { return x <= T{0} ? T{0} : x; });  // NaN compares false and stays
}

template <class T>
void relu_grad(KernelCall<T>& c) {
  binary(c, [](T dy, T y) { return y <= T{0} ? T{0} : dy; });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> elementwise_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"Add", add<T>},         {"Sub", sub<T>},
      {"Mul", mul<T>},         {"Div", div<T>},
      {"Neg", neg<T>},         {"Sqrt", square_root<T>},
      {"Exp", exponential<T>}, {"Log", logarithm<T>},
      {"Relu", relu<T>},       {"ReluGrad", relu_grad<T>},
  };
  return kernels;
}

template std::span<const KernelEntry<float>> elementwise_kernels();
template std::span<const KernelEntry<double>> elementwise_kernels();

}  // namespace halfscope
