// SPDX-License-Identifier: MIT
// Arithmetic and sums of index tensors, which wrap in 32 bits (core/numeric/elementary/integers.h),
// and conversions between indices and reals.
#include "core/bodies/indices.h"

#include <algorithm>
#include <vector>

#include "core/ops/index_functions.h"
#include "core/ops/ops.h"
#include "emulation/engine/broadcast.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/walk.h"

namespace halfscope {
namespace {

using Call = KernelCall<int32_t>;

template <class... F>
void add_binary(std::vector<KernelEntry<int32_t>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, binary<int32_t, F>}), ...);
}
template <class... F>
void add_unary(std::vector<KernelEntry<int32_t>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, unary<int32_t, F>}), ...);
}

/// Combines every element into the output element that it belongs to.
template <class Function>
void reduce(Call& c, int32_t start) {
  const Shape& x = c.in_shape(0);
  Shape kept = x;
  for (const int64_t axis : reduction_axes(*c.node, x.size())) kept[static_cast<size_t>(axis)] = 1;
  const Strides to = broadcast_strides(kept, x);
  const int32_t* const values = c.in[0];
  int32_t* const y = c.out[0];
  std::fill_n(y, c.out_count(0), start);
  std::vector<int64_t> at(x.size(), 0);
  int64_t place = 0;
  for (int64_t i = 0, n = element_count(x); i < n; ++i) {
    y[place] = Function{}(y[place], values[i]);
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
  const AxisLines lines = axis_lines(*c.node, c.in_shape(0));
  const CumulateIndices body{c.in[0], c.out[0], lines, int_attribute(*c.node, "exclusive", 0) != 0,
                             int_attribute(*c.node, "reverse", 0) != 0};
  for (int64_t line = 0; line < lines.count; ++line) body(line);
}

template <class T>
void to_real(KernelCall<T>& c) {
  for_items(c.out_count(0), kGrain,
            IndexToReal<T, T*>{c.index_in[0], c.out[0], c.out_format(0), c.result_rounding()});
}

template <class T>
void to_index(KernelCall<T>& c) {
  for_items(c.out_count(0), kGrain, RealToIndex<const T*>{c.in[0], c.index_out[0]});
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
