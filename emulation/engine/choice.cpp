// SPDX-License-Identifier: MIT
// Comparisons, logic, ArgMax and Where (core/ops/choice.cpp).
#include "core/ops/ops.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/walk.h"

namespace halfscope {
namespace {

template <class Element, class T, class F>
void relate(KernelCall<T>& c, const Element* a, const Element* b, const F& f) {
  const Shape& to = c.out_shape(0);
  const Walk<3> walk(to, {broadcast_strides(c.in_shape(0), to),
                          broadcast_strides(c.in_shape(1), to), row_major(to)});
  const auto& step = walk.step();
  walk.rows([&](const std::array<int64_t, 3>& at, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      c.index_out[0][at[2] + i * step[2]] =
          f(a[at[0] + i * step[0]], b[at[1] + i * step[1]]) ? 1 : 0;
    }
  });
}

template <class T, class F>
void compare(KernelCall<T>& c, const F& f) {
  if (c.in[0] != nullptr) {
    relate(c, c.in[0], c.in[1], f);
  } else {
    relate(c, c.index_in[0], c.index_in[1], f);
  }
}

template <class T>
void equal(KernelCall<T>& c) {
  compare(c, [](auto a, auto b) { return a == b; });
}
template <class T>
void less(KernelCall<T>& c) {
  compare(c, [](auto a, auto b) { return a < b; });
}
template <class T>
void less_or_equal(KernelCall<T>& c) {
  compare(c, [](auto a, auto b) { return a <= b; });
}
template <class T>
void greater(KernelCall<T>& c) {
  compare(c, [](auto a, auto b) { return a > b; });
}
template <class T>
void greater_or_equal(KernelCall<T>& c) {
  compare(c, [](auto a, auto b) { return a >= b; });
}
template <class T>
void both(KernelCall<T>& c) {
  relate(c, c.index_in[0], c.index_in[1], [](int32_t a, int32_t b) { return a != 0 && b != 0; });
}
template <class T>
void either(KernelCall<T>& c) {
  relate(c, c.index_in[0], c.index_in[1], [](int32_t a, int32_t b) { return a != 0 || b != 0; });
}
template <class T>
void negate(KernelCall<T>& c) {
  for (int64_t i = 0; i < c.out_count(0); ++i) c.index_out[0][i] = c.index_in[0][i] == 0 ? 1 : 0;
}

template <class T>
bool is_nan(T value) {
  return value != value;
}

template <class T>
void arg_max(KernelCall<T>& c) {
  const Shape& x = c.in_shape(0);
  const AxisSplit s = split_at(x, axis_attribute(*c.node, x.size(), 0));
  const bool last = int_attribute(*c.node, "select_last_index", 0) != 0;
  parallel_ranges(s.outer * s.inner, 64, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const T* const line = c.in[0] + item / s.inner * s.length * s.inner + item % s.inner;
      int64_t best = 0;
      for (int64_t i = 1; i < s.length; ++i) {
        const T value = line[i * s.inner], largest = line[best * s.inner];
        const bool ties = value == largest || (is_nan(value) && is_nan(largest));
        const bool wins = value > largest || (is_nan(value) && !is_nan(largest));
        if (wins || (last && ties)) best = i;
      }
      c.index_out[0][item] = static_cast<int32_t>(best);
    }
  });
}

template <class T>
void where(KernelCall<T>& c) {
  const Shape& to = c.out_shape(0);
  const T zero = 0;
  const T* values[2];
  Strides strides[2];
  for (size_t i = 0; i < 2; ++i) {
    const bool given = c.node->inputs[i + 1] != kNone;
    values[i] = given ? c.in[i + 1] : &zero;
    strides[i] = given ? broadcast_strides(c.in_shape(i + 1), to) : Strides(to.size(), 0);
  }
  const Walk<4> walk(to,
                     {broadcast_strides(c.in_shape(0), to), strides[0], strides[1], row_major(to)});
  const auto& step = walk.step();
  walk.rows([&](const std::array<int64_t, 4>& at, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const T x = values[0][at[1] + i * step[1]], y = values[1][at[2] + i * step[2]];
      c.out[0][at[3] + i * step[3]] = c.index_in[0][at[0] + i * step[0]] != 0 ? x : y;
    }
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> choice_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"Equal", equal<T>},
      {"Less", less<T>},
      {"LessOrEqual", less_or_equal<T>},
      {"Greater", greater<T>},
      {"GreaterOrEqual", greater_or_equal<T>},
      {"And", both<T>},
      {"Or", either<T>},
      {"Not", negate<T>},
      {"ArgMax", arg_max<T>},
      {"Where", where<T>},
  };
  return kernels;
}

template std::span<const KernelEntry<float>> choice_kernels();
template std::span<const KernelEntry<double>> choice_kernels();
template std::span<const KernelEntry<int32_t>> choice_kernels();

}  // namespace halfscope
