// SPDX-License-Identifier: MIT
// The register tile: the one piece of arithmetic under gemm.h, with one implementation per
// instruction set. A tile is rows x columns chains
//   c(i, j) = sum over ascending k of a(i, k) * b(k, j)
// in registers: b comes in vectors, a is broadcast. The drivers (driver.cpp, conv_*.cpp) choose
// what a and b point at. The tables below are the only way into the vector code.
#pragma once

#include <cstdint>

#include "emulation/isa.h"

namespace halfscope::gemm_detail {

/// Rounding constants of one format, for chains in double that round after every term.
struct FormatRounding {
  double min_normal;  ///< 2^min_exponent: smaller values share the quantum of this binade
  double above_max;   ///< 2^(max_exponent + 1)
  double magic;       ///< 1.5 * 2^(52 - mantissa_bits): times 2^e, adding it rounds at e
  double max_finite;
  double overflow;  ///< replaces a larger value: infinity, NaN or max_finite
};

/// The constants of fp32, written without the library.
inline constexpr FormatRounding kFp32Rounding{.min_normal = 0x1p-126,
                                              .above_max = 0x1p128,
                                              .magic = 0x1.8p29,
                                              .max_finite = 0x1.fffffep127,
                                              .overflow = __builtin_inf()};

/// How the chains of rounded.h round after every term.
struct SumRounding {
  FormatRounding format;
  int processor = 0;           ///< processor rounding mode while the tile runs, as in <cfenv>
  double over[2] = {0, 0};     ///< replaces a finite sum beyond the largest, by its sign
  uint64_t keep = 0;           ///< bits of a double that the format has
  uint64_t constant = 0;       ///< added to the dropped bits if there are no draws
  bool draws = false;          ///< add random bits
  int draw_shift = 0;          ///< shift from the top of a word to the top of the dropped bits
  uint64_t draw_mask = 0;      ///< the dropped bits that are random
  uint64_t first_draw = 0;     ///< state of the generator for the first word of element 0
  uint64_t element_draws = 0;  ///< step of that state from one element to the next
};

/// Notes on the steps of a tile's chains, summed over calls.
struct TileNotes {
  int64_t unchanged = 0;  ///< steps that left their chain unchanged
  double largest = 0;     ///< magnitude of a chain when sampled (Tile::look_every)
  bool finite = true;     ///< all chains are finite; if not, the other numbers are meaningless
};

/// The work of one tile. T is the type of the chains (and of the operands, already converted).
template <class T>
struct Tile {
  int64_t k;
  const T* a;
  int64_t a_stride;      ///< strided tiles: a(i, k) = a[k * a_stride + i]
  const int64_t* a_row;  ///< gather tiles: a(i, k) = a[a_row[i] + a_column[k]]
  const int64_t* a_column;
  const T* b;  ///< b(k, j) = b[k * b_stride + j], readable to a whole vector
  int64_t b_stride;
  T* c;  ///< c(i, j) = c[c_row[i] + j]
  const int64_t* c_row;
  int columns;           ///< number of existing columns of c; the others are not touched
  bool accumulate;       ///< continue the chains stored in c instead of starting from +0
  bool finish;           ///< last part of the chains: add the bias, make every NaN the quiet one
  const T* row_bias;     ///< bias[i] or null; read only if finish
  const T* column_bias;  ///< bias[j] or null, readable to a whole vector; read only if finish
  const FormatRounding* rounding;  ///< for chains that round after every term
  // For tiles that collect diagnostics; missing columns of b must be zeros.
  TileNotes* notes;
  int64_t look_every;  ///< steps between two samples of the chains' magnitudes
  // For tiles of rounded.h only.
  const SumRounding* sums;
  int64_t first_term;  ///< number of the first of the k terms in its sum
  uint64_t draws;      ///< generator state of c(0, 0), and its steps per row and per column
  uint64_t row_draws, column_draws;
};

inline constexpr int kMaxRows = 14;

/// A run of consecutive elements to copy.
struct Run {
  int64_t from, to;
  int length;
};

/// One instruction set's functions for chains of type T. A tile has at most `rows` rows and one or
/// two vectors of `lanes` columns: strided[rows - 1][vectors - 1].
template <class T>
struct Kernels {
  using TileFunction = void (*)(const Tile<T>&);
  int rows;
  int lanes;
  TileFunction strided[kMaxRows][2];
  TileFunction gather[kMaxRows][2];
  /// Stores to[j * to_stride + i] = from[i * from_stride + j] for i < rows, j < columns. If `pad`,
  /// i continues to the next multiple of 8 with copies of the last row, which saves a slow tail.
  void (*transpose)(int64_t rows, int64_t columns, const float* from, int64_t from_stride, T* to,
                    int64_t to_stride, bool pad);
  /// Copies runs: to[k * to_stride + run.to + i] = from[offset[k] + run.from + i].
  void (*copy_runs)(int64_t k, const T* from, const int64_t* offset, const Run* runs, int run_count,
                    T* to, int64_t to_stride);
  /// Converts chains to outputs: to nearest, or to odd (gemm.h, SumSpec). NaN becomes the quiet
  /// one.
  void (*deliver)(int64_t n, const T* from, float* to, bool odd);
};

/// Chains in fp16 or bf16 that floats can carry from step to step; without rows if there are none.
/// Products of mul_add must be exact in fp32 (driver.h, facts_of).
struct NarrowKernels {
  Kernels<float> format, format_mul_add, fma32_then_round;
};

struct KernelSet {
  Kernels<float> fp32;
  Kernels<double> fp64;
  Kernels<double> format, format_mul_add, fma32_then_round;  ///< for any format
  Kernels<float> kahan, pairwise;  ///< cannot be continued: k must not be cut
  NarrowKernels fp16{}, bf16{};
  NarrowKernels bf16_of_bf16{};  ///< for operands in bf16
};

/// Kernel sets with `noting` collect diagnostics. They only have strided tiles, without kahan and
/// pairwise.

const KernelSet& baseline_kernels() noexcept;
const KernelSet& baseline_noting_kernels() noexcept;
#if defined(__x86_64__)
const KernelSet& avx2_kernels() noexcept;
const KernelSet& avx2_noting_kernels() noexcept;
const KernelSet& avx512_kernels() noexcept;
const KernelSet& avx512_noting_kernels() noexcept;
#endif

}  // namespace halfscope::gemm_detail
