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
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "core/numeric/elementary/quick_exp.h"
#include "core/numeric/formats/round_odd.h"
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

/// Calls f(), compiled for an instruction set.
template <class F>
HALFSCOPE_FLATTEN_FOR("avx2,fma")
void call_avx2(const F& function) {
  const F f = function;
  f();
}
template <class F>
HALFSCOPE_FLATTEN_FOR(HALFSCOPE_AVX512)
void call_avx512(const F& function) {
  const F f = function;
  f();
}

/// Returns whether approximations pay off: their std::fma() is one instruction.
inline bool has_fma(Isa isa) { return isa != Isa::baseline; }
/// Calls f() in the widest vectors. What f() captures by value, its loops may keep in registers.
template <class F>
void call_in_vectors(Isa isa, const F& f) {
  switch (isa) {
    case Isa::baseline:
      return f();
    case Isa::avx2:
      return call_avx2(f);
    case Isa::avx512:
      return call_avx512(f);
  }
}
/// Calls f(begin, end) as parallel_ranges() does, in the widest vectors.
template <class F>
void parallel_ranges_in_vectors(int64_t n, int64_t grain, const F& f) {
  const Isa isa = active_isa();
  parallel_ranges(n, grain, [&](int64_t begin, int64_t end) {
    call_in_vectors(isa, [&f, begin, end] { f(begin, end); });
  });
}

/// Stores x as deliver() would store any number within its bound. Returns 0, or another number if
/// they are not all stored alike.
inline uint32_t store_surely(const elementary::Bounded& x, bool odd, float& y) {
  const double low = x.value - x.error;
  const double high = x.error == 0.0 ? x.value : x.value + x.error;  // -0 + 0 is 0
  y = odd ? round_to_odd(low) : static_cast<float>(low);
  const float other = odd ? round_to_odd(high) : static_cast<float>(high);
  const uint32_t unknown = y != y ? 1u : 0u;
  return (std::bit_cast<uint32_t>(y) ^ std::bit_cast<uint32_t>(other)) | unknown;
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

/// Computes n elements by f.quick(). Returns false if a result is in doubt.
template <bool kOdd, class F, class... X>
bool map_quickly(Isa isa, const F& f, float* __restrict__ y, int64_t n, const X*... x) {
  uint32_t doubts = 0;
  call_in_vectors(isa, [=, &doubts] {
    uint32_t found = 0;
    for (int64_t i = 0; i < n; ++i) {
      found |= store_surely(f.quick(static_cast<double>(x[i])...), kOdd, y[i]);
    }
    doubts = found;
  });
  return doubts == 0;
}

/// Computes an operator's output as map_with(), where all operands have the output's shape, by
/// f.quick(): pieces with results in doubt are computed by f() as well.
template <size_t N, class F>
void map_quickly(KernelCall<float>& call, const F& f) {
  constexpr int64_t kPiece = 256;
  const Isa isa = active_isa();
  const FloatFormat write = call.out_format(0);
  const bool odd = write.mantissa_bits <= 21;  // as deliver()
  const auto of_piece = [&]<size_t... I>(int64_t at, int64_t n, std::index_sequence<I...>) {
    float* const y = call.out[0] + at;
    if (odd ? map_quickly<true>(isa, f, y, n, (call.in[I] + at)...)
            : map_quickly<false>(isa, f, y, n, (call.in[I] + at)...)) {
      return;
    }
    double exact[kPiece];
    map_values(isa, f, exact, n, (call.in[I] + at)...);
    for (int64_t k = 0; k < n; ++k) y[k] = deliver(exact[k], write);
  };
  parallel_ranges(call.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kPiece) {
      of_piece(at, std::min(kPiece, end - at), std::make_index_sequence<N>{});
    }
  });
}

template <class F, size_t... I>
constexpr bool has_quick(std::index_sequence<I...>) {
  return requires(const F& f) { f.quick((static_cast<void>(I), 0.0)...); };
}

/// Returns whether map_quickly() suits: every operand has the output's shape, and the result is
/// rounded to nearest.
template <size_t N>
bool suits_quick(const KernelCall<float>& call) {
  for (size_t i = 0; i < N; ++i) {
    if (call.in_shape(i) != call.out_shape(0)) return false;
  }
  return has_fma(active_isa()) && call.result_rounding().mode == RoundingMode::nearest_even;
}

/// Computes an operator's output as f of its first N inputs, with broadcasting. f runs in double;
/// the result is rounded once.
template <size_t N, class T, class F>
void map_with(KernelCall<T>& call, const F& f) {
  if constexpr (std::is_same_v<T, float> && has_quick<F>(std::make_index_sequence<N>{})) {
    if (suits_quick<N>(call)) return map_quickly<N>(call, f);
  }
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
