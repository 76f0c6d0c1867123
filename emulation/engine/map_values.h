// SPDX-License-Identifier: MIT
// Loops over functions of doubles, in the widest vectors of the active instruction set. The bits
// are the same for every instruction set, because the functions consist of IEEE arithmetic and no
// multiply-add is fused. Here an instruction set is an attribute of the loop, and everything that
// the loop calls becomes part of it ("flatten"). Code that is not inlined stays ordinary code that
// every processor runs. emulation/CMakeLists.txt compiles the sources that include this file
// without trapping arithmetic; otherwise choices between two values would not vectorize.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "emulation/engine/broadcast.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/walk.h"
#include "emulation/isa.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HALFSCOPE_FLATTEN_FOR(isa) [[gnu::target(isa), gnu::flatten]]
#else
#define HALFSCOPE_FLATTEN_FOR(isa)
#endif
#if defined(__clang__)  // does not know this attribute
#define HALFSCOPE_AVX512 "avx2,avx512f,avx512bw,avx512dq,avx512vl"
#else
#define HALFSCOPE_AVX512 "avx2,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"
#endif

namespace halfscope {

// The function is copied: as far as the compiler knows, the outputs may overlap its members.

template <class F, class... X>
void map_baseline(const F& function, double* __restrict__ y, int64_t n, const X*... x) {
  const F f = function;
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]...);
}
template <class F, class... X>
HALFSCOPE_FLATTEN_FOR("avx2")
void map_avx2(const F& function, double* __restrict__ y, int64_t n, const X*... x) {
  const F f = function;
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]...);
}
template <class F, class... X>
HALFSCOPE_FLATTEN_FOR(HALFSCOPE_AVX512)
void map_avx512(const F& function, double* __restrict__ y, int64_t n, const X*... x) {
  const F f = function;
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]...);
}

/// Computes y[i] = f(x[i]...) for i < n. y must not overlap any x.
template <class F, class... X>
void map_values(Isa isa, const F& f, double* y, int64_t n, const X*... x) {
  switch (isa) {
    case Isa::baseline:
      return map_baseline(f, y, n, x...);
    case Isa::avx2:
      return map_avx2(f, y, n, x...);
    case Isa::avx512:
      return map_avx512(f, y, n, x...);
  }
}

/// The function that map_elements calls for each piece of its N operands: map(y, n, x).
using PieceMap = std::function<void(double*, int64_t, const double* const*)>;

template <size_t N, class T>
void map_pieces(KernelCall<T>& call, const PieceMap& map) {
  constexpr int64_t kPiece = 256;
  using Offsets = typename Walk<N + 1>::Offsets;  // of the operands and the output
  const FloatFormat write = call.out_format(0);
  const TensorRounding rounding = call.result_rounding();
  const Shape& shape = call.out_shape(0);
  const int64_t n = element_count(shape);
  const auto run = [&](const Offsets& at, const Offsets& step, int64_t count) {
    double values[N][kPiece], y[kPiece];
    const double* x[N];
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      const int64_t piece = std::min(kPiece, count - begin);
      for (size_t i = 0; i < N; ++i) {
        const T* const in = call.in[i] + at[i] + begin * step[i];
        x[i] = values[i];
        if (step[i] == 1) {
          for (int64_t k = 0; k < piece; ++k) values[i][k] = static_cast<double>(in[k]);
        } else {
          for (int64_t k = 0; k < piece; ++k) values[i][k] = static_cast<double>(in[k * step[i]]);
        }
      }
      map(y, piece, x);
      T* const out = call.out[0] + at[N] + begin * step[N];
      if (rounding.mode == RoundingMode::nearest_even) {
        for (int64_t k = 0; k < piece; ++k) out[k * step[N]] = delivered<T>(y[k], write);
        continue;
      }
      const TensorRounding from = rounding.from(at[N] + begin * step[N]);
      for (int64_t k = 0; k < piece; ++k) {
        out[k * step[N]] = delivered<T>(y[k], write, from.element(k * step[N]));
      }
    }
  };
  Offsets flat;  // every operand has the output's shape or is a single number
  flat[N] = 1;
  bool is_flat = true;
  for (size_t i = 0; i < N; ++i) {
    flat[i] = call.in_count(i) == n ? 1 : 0;
    is_flat = is_flat && (call.in_count(i) == n || call.in_count(i) == 1);
  }
  if (is_flat) {
    parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
      Offsets at;
      for (size_t i = 0; i <= N; ++i) at[i] = begin * flat[i];
      run(at, flat, end - begin);
    });
    return;
  }
  std::array<Strides, N + 1> strides;
  for (size_t i = 0; i < N; ++i) strides[i] = broadcast_strides(call.in_shape(i), shape);
  strides[N] = row_major(shape);
  const Walk<N + 1> walk(shape, strides);
  walk.rows([&](const Offsets& at, int64_t count) { run(at, walk.step(), count); });
}

/// Computes an operator's output as f of its first N inputs, with broadcasting. f runs in double;
/// the result is rounded once.
template <size_t N, class T, class F>
void map_with(KernelCall<T>& call, const F& f) {
  const Isa isa = active_isa();
  map_pieces<N>(call, [&f, isa](double* y, int64_t n, const double* const* x) {
    [&]<size_t... I>(std::index_sequence<I...>) { map_values(isa, f, y, n, x[I]...); }
    (std::make_index_sequence<N>{});
  });
}

template <class F, size_t... I>
constexpr bool has_exact(std::index_sequence<I...>) {
  return requires { F::exact((static_cast<void>(I), 0.0)..., false); };
}

/// Same as map_with, but also correct for roundings other than nearest even.
template <size_t N, class T, class F>
void map_elements(KernelCall<T>& call, const F& f) {
  if constexpr (std::is_same_v<T, float> && has_exact<F>(std::make_index_sequence<N>{})) {
    const RoundingMode mode = call.result_rounding().mode;
    if (mode != RoundingMode::nearest_even) {
      return map_with<N>(call, Exactly<F>{f, mode == RoundingMode::down});
    }
  }
  map_with<N>(call, f);
}

}  // namespace halfscope

#undef HALFSCOPE_FLATTEN_FOR
#undef HALFSCOPE_AVX512
