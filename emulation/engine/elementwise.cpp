// SPDX-License-Identifier: MIT
// Kernels without sums: arithmetic with broadcasting, Relu, casts, copies, gathers. In the
// emulator the operands are values of narrow formats and fp32 arithmetic is wide enough for a
// single later rounding of +, -, *, / and sqrt to be the correct one (NUMERICS: 24 >= 2p + 2).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/numeric/round_odd.h"
#include "core/ops/ops.h"
#include "emulation/engine/broadcast.h"
#include "emulation/engine/kernel.h"

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

template <class T>
void copy(KernelCall<T>& c) {
  const T* x = c.in[0];
  T* y = c.out[0];
  parallel_ranges(c.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(y + begin, x + begin, static_cast<size_t>(end - begin) * sizeof(T));
  });
}

template <class T>
void expand(KernelCall<T>& c) {
  const T* x = c.in[0];
  T* y = c.out[0];
  const Shape& shape = c.out_shape(0);
  const std::vector<int64_t> strides = broadcast_strides(c.in_shape(0), shape);
  parallel_ranges(element_count(shape), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = x[broadcast_offset(i, shape, strides)];
  });
}

template <class T>
void gather(KernelCall<T>& c) {
  const int64_t rows = c.in_shape(0)[0], columns = c.in_shape(0)[1];
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t index = c.index_in[1][row];
    c.out[0][row] = index < 0 ? T{0} : c.in[0][row * columns + index];
  }
}

template <class T>
void gather_grad(KernelCall<T>& c) {
  const int64_t rows = c.out_shape(0)[0], columns = c.out_shape(0)[1];
  std::fill_n(c.out[0], rows * columns, T{0});
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t index = c.index_in[1][row];
    if (index >= 0) c.out[0][row * columns + index] = c.in[0][row];
  }
}

/// Calls f(position in the slice's tensor, position in the slice, run) for each run of neighbours.
template <class F>
void for_slice_rows(const std::vector<SliceAxis>& axes, const Shape& shape, const F& f) {
  const size_t rank = shape.size();
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < rank; ++i) rows *= axes[i].count;
  const int64_t count = rank == 0 ? 1 : axes[rank - 1].count;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row, base = 0, stride = 1;
    for (size_t i = rank; i-- > 0;) {
      const bool last = i + 1 == rank;
      const int64_t index = last ? 0 : rest % axes[i].count;
      if (!last) rest /= axes[i].count;
      base += (axes[i].start + index * axes[i].step) * stride;
      stride *= shape[i];
    }
    f(base, row * count, count);
  }
}

template <class T>
void slice(KernelCall<T>& c) {
  const Shape& shape = c.in_shape(0);
  const std::vector<SliceAxis> axes = slice_axes(*c.node, shape);
  const int64_t step = shape.empty() ? 1 : axes.back().step;
  for_slice_rows(axes, shape, [&](int64_t from, int64_t to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) c.out[0][to + i] = c.in[0][from + i * step];
  });
}

template <class T>
void slice_grad(KernelCall<T>& c) {
  const Shape& shape = c.out_shape(0);
  const std::vector<SliceAxis> axes = slice_axes(*c.node, shape);
  const int64_t step = shape.empty() ? 1 : axes.back().step;
  std::fill_n(c.out[0], c.out_count(0), T{0});
  for_slice_rows(axes, shape, [&](int64_t to, int64_t from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) c.out[0][to + i * step] = c.in[0][from + i];
  });
}

template <class T>
void pad(KernelCall<T>& c) {
  const Shape& from = c.in_shape(0);
  const std::vector<int64_t> pads = ints_attribute(*c.node, "pads");
  std::vector<SliceAxis> axes;
  for (size_t i = 0; i < from.size(); ++i)
    axes.push_back({.start = pads[i], .step = 1, .count = from[i]});
  std::fill_n(c.out[0], c.out_count(0), T{0});
  for_slice_rows(axes, c.out_shape(0), [&](int64_t to, int64_t source, int64_t count) {
    std::copy_n(c.in[0] + source, count, c.out[0] + to);
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> elementwise_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"Add", add<T>},
      {"Sub", sub<T>},
      {"Mul", mul<T>},
      {"Div", div<T>},
      {"Neg", neg<T>},
      {"Sqrt", square_root<T>},
      {"Exp", exponential<T>},
      {"Log", logarithm<T>},
      {"Relu", relu<T>},
      {"ReluGrad", relu_grad<T>},
      {"Identity", copy<T>},
      {"StopGradient", copy<T>},
      {"Flatten", copy<T>},
      {"Reshape", copy<T>},
      {"Expand", expand<T>},
      {"Slice", slice<T>},
      {"SliceGrad", slice_grad<T>},
      {"Pad", pad<T>},
      {"GatherElements", gather<T>},
      {"GatherElementsGrad", gather_grad<T>},
  };
  return kernels;
}

template std::span<const KernelEntry<float>> elementwise_kernels();
template std::span<const KernelEntry<double>> elementwise_kernels();

}  // namespace halfscope
