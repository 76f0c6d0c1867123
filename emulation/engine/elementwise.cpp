// SPDX-License-Identifier: MIT
// Kernels of single elements: arithmetic with broadcasting, Relu, functions. In the
// emulator the operands are values of narrow formats and fp32 arithmetic is wide enough for a
// single later rounding of +, -, *, / and sqrt to be the correct one (NUMERICS: 24 >= 2p + 2).
#include <array>
#include <cmath>

#include "core/numeric/round_odd.h"
#include "core/ops/ops.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/walk.h"

namespace halfscope {
namespace {

template <class T, class F>
void binary(KernelCall<T>& call, const F& f) {
  const T* a = call.in[0];
  const T* b = call.in[1];
  T* y = call.out[0];
  const Shape& shape = call.out_shape(0);
  const int64_t n = element_count(shape);
  const bool same_a = call.in_count(0) == n, same_b = call.in_count(1) == n;
  const bool scalar_a = call.in_count(0) == 1, scalar_b = call.in_count(1) == 1;
  if (same_a && same_b) {
    parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = f(a[i], b[i]);
    });
  } else if (same_a && scalar_b) {
    parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = f(a[i], b[0]);
    });
  } else if (scalar_a && same_b) {
    parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = f(a[0], b[i]);
    });
  } else {
    const Walk<3> walk(shape, {broadcast_strides(call.in_shape(0), shape),
                               broadcast_strides(call.in_shape(1), shape), row_major(shape)});
    const int64_t step_a = walk.step()[0], step_b = walk.step()[1];
    walk.rows([&](const std::array<int64_t, 3>& at, int64_t count) {
      const T* const left = a + at[0];
      const T* const right = b + at[1];
      T* const result = y + at[2];
      if (step_a == 1 && step_b == 1) {  // the usual cases, for the sake of vectors
        for (int64_t i = 0; i < count; ++i) result[i] = f(left[i], right[i]);
      } else if (step_a == 1 && step_b == 0) {
        for (int64_t i = 0; i < count; ++i) result[i] = f(left[i], right[0]);
      } else {
        for (int64_t i = 0; i < count; ++i) result[i] = f(left[i * step_a], right[i * step_b]);
      }
    });
  }
}

template <class T, class F>
void unary(KernelCall<T>& call, const F& f) {
  const T* x = call.in[0];
  T* y = call.out[0];
  parallel_ranges(call.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
  });
}

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

/// A result computed in double, such that the later rounding to the write format is the only one.
float delivered(double value, const FloatFormat& write, float) { return deliver(value, write); }
double delivered(double value, const FloatFormat&, double) { return value; }

// exp and log are taken in double, so that they do not depend on the float functions of a C
// library.
template <class T>
void exponential(KernelCall<T>& c) {
  const FloatFormat write = c.out_format(0);
  unary(c, [&](T x) { return delivered(std::exp(static_cast<double>(x)), write, T{}); });
}
template <class T>
void logarithm(KernelCall<T>& c) {
  const FloatFormat write = c.out_format(0);
  unary(c, [&](T x) { return delivered(std::log(static_cast<double>(x)), write, T{}); });
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
