// SPDX-License-Identifier: MIT
// Kernels of the arithmetic in core/bodies/elements.h, of exp, log and dropout.
#include <vector>

#include "core/bodies/elements.h"
#include "core/numeric/elementary/functions.h"
#include "core/ops/dropout.h"
#include "emulation/engine/broadcast.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"

namespace halfscope {
namespace {

// exp and log are computed in double.
template <class T, class F>
void function_of_one(KernelCall<T>& c) {
  map_elements<1>(c, F{});
}

/// Computes in fp32, unless the output is rounded in a mode other than nearest even.
template <class T, class F, size_t N>
void arithmetic(KernelCall<T>& c) {
  if constexpr (std::is_same_v<T, float> && has_exact<F>(std::make_index_sequence<N>{})) {
    if (c.result_rounding().mode != RoundingMode::nearest_even) return map_elements<N>(c, F{});
  }
  if constexpr (N == 1) {
    unary<T, F>(c);
  } else {
    binary<T, F>(c);
  }
}

template <class T>
void drop(KernelCall<T>& c) {
  const DropoutDraw draw = dropout_of(*c.node, c.random.seed, c.random.step);
  for_items(
      c.out_count(0), kGrain,
      Dropout<T, const T*, T*>{c.in[0], c.out[0], draw, c.out_format(0), c.result_rounding()});
}

template <size_t N, class T, class... F>
void add_arithmetic(std::vector<KernelEntry<T>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, arithmetic<T, F, N>}), ...);
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> elementwise_kernels() {
  static const auto kernels = [] {
    std::vector<KernelEntry<T>> list{{"Exp", function_of_one<T, fn::Exp>},
                                     {"Log", function_of_one<T, fn::Log>},
                                     {"Dropout", drop<T>},
                                     {"DropoutGrad", drop<T>}};
    add_arithmetic<1>(list, UnaryElements{});
    add_arithmetic<2>(list, BinaryElements{});
    return list;
  }();
  return kernels;
}

template std::span<const KernelEntry<float>> elementwise_kernels();
template std::span<const KernelEntry<double>> elementwise_kernels();

}  // namespace halfscope
