// SPDX-License-Identifier: MIT
// Arithmetic and sums of index tensors, which wrap in 32 bits (core/numeric/elementary/integers.h),
// and the ways between indices and reals.
#include <algorithm>
#include <vector>

#include "core/numeric/formats/round_odd.h"
#include "core/ops/index_functions.h"
#include "core/ops/ops.h"
#include "emulation/engine/broadcast.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/walk.h"

namespace halfscope {
namespace {

using Call = KernelCall<int32_t>;

template <class Function>
void of_two(Call& c) {
  binary(c, Function{});
}
template <class Function>
void of_one(Call& c) {
  unary(c, Function{});
}

template <class... F>
void add_binary(std::vector<KernelEntry<int32_t>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, of_two<F>}), ...);
}
template <class... F>
void add_unary(std::vector<KernelEntry<int32_t>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, of_one<F>}), ...);
}

/// Every element is taken into the one of the result that it belongs to.
template <class Function>
void reduce(Call& c, int32_t start) {
  const Shape& x = c.in_shape(0);
  Shape kept = x;
  for (const int64_t axis : reduction_axes(*c.node, x.size())) kept[static_cast<size_t>(axis)] = 1;
  const Strides to = broadcast_strides(kept, x);
  std::fill_n(c.out[0], c.out_count(0), start);
  std::vector<int64_t> at(x.size(), 0);
  int64_t place = 0;
  for (int64_t i = 0, n = element_count(x); i < n; ++i) {
    c.out[0][place] = Function{}(c.out[0][place], c.in[0][i]);
    for (size_t d = x.size(); d-- > 0;) {
      place += to[d];
      if (++at[d] < x[d]) break;
      place -= to[d] * x[d];
      at[d] = 0;
    }
  }
}

void sum(Call& c) { reduce<integers::Add>(c, 0); }
void largest(Call& c) { reduce<integers::Max>(c, INT32_MIN); }
void least(Call& c) { reduce<integers::Min>(c, INT32_MAX); }

void cumulative_sum(Call& c) {
  const Shape& x = c.in_shape(0);
  const AxisSplit s = split_at(x, axis_attribute(*c.node, x.size()));
  const bool exclusive = int_attribute(*c.node, "exclusive", 0) != 0;
  const bool reverse = int_attribute(*c.node, "reverse", 0) != 0;
  for (int64_t line = 0; line < s.outer * s.inner; ++line) {
    const int64_t first = line / s.inner * s.length * s.inner + line % s.inner;
    int32_t total = 0;
    for (int64_t k = 0; k < s.length; ++k) {
      const int64_t i = first + (reverse ? s.length - 1 - k : k) * s.inner;
      const int32_t before = total;
      total = integers::Add{}(total, c.in[0][i]);
      c.out[0][i] = exclusive ? before : total;
    }
  }
}

template <class T>
void to_real(KernelCall<T>& c) {
  const FloatFormat write = c.out_format(0);
  parallel_ranges(c.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      c.out[0][i] = delivered(static_cast<double>(c.index_in[0][i]), write, T{});
  });
}

template <class T>
void to_index(KernelCall<T>& c) {
  parallel_ranges(c.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      c.index_out[0][i] = integers::truncated(static_cast<double>(c.in[0][i]));
  });
}

}  // namespace

std::span<const KernelEntry<int32_t>> integer_kernels() {
  static const auto kernels = [] {
    std::vector<KernelEntry<int32_t>> list{{"ReduceSum", sum},
                                           {"ReduceMax", largest},
                                           {"ReduceMin", least},
                                           {"CumSum", cumulative_sum}};
    add_binary(list, BinaryIndexFunctions{});
    add_unary(list, UnaryIndexFunctions{});
    return list;
  }();
  return kernels;
}

template <class T>
std::span<const KernelEntry<T>> conversion_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"IndexToReal", to_real<T>},
      {"RealToIndex", to_index<T>},
  };
  return kernels;
}

template std::span<const KernelEntry<float>> conversion_kernels();
template std::span<const KernelEntry<double>> conversion_kernels();

}  // namespace halfscope
