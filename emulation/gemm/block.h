// SPDX-License-Identifier: MIT
// Tensor-core blocks (core/numeric/sums/fused_dot.h) for whole tiles, one implementation per
// instruction set. Let Emax be the largest raw exponent of a block's terms, found in byte lanes
// (fp16, fp8) or 16-bit lanes (bf16, tf32). Then
//   sum = trunc(c * 2^(F - Emax)) + sum of trunc(a_k * b_k * 2^(F - Emax)), in integers,
//   c = rho(sum * 2^(Emax - F)).
// a_k * b_k is exact in fp32, so is the scaling, and the conversion to int32 truncates. Tiles mark
// the elements that they cannot compute exactly. For other elements, the caller (block_product.cpp)
// knows in advance from the exponents of the lines. All these elements go to the reference.
#pragma once

#include <cstdint>

namespace halfscope::gemm_detail {

/// Encoding of one operand's values. The codes of a and b are added modulo 256 or 65536 and give
/// the biased exponent of the product. If either operand is zero, the sum is below that of any
/// product.
struct BlockCoding {
  uint32_t keep;     ///< bits of the operand that are used
  uint32_t stray;    ///< mantissa bits that are 0 in every value of the format
  float min_normal;  ///< 2^min_exponent of the format
  int min_exponent;  ///< biased as in fp32
  int max_exponent;  ///< biased as in fp32
  int base;          ///< code = biased exponent + base
  int zero_code;     ///< or this code if the value is zero
};

/// Facts about each line (row of a, column of b), as arrays with one element per lane. `bad` is
/// nonzero if a value is not in the format. `lowest` and `highest` are the extremes of the biased
/// exponents, without zeros.
struct BlockLines {
  int32_t* bad;
  int32_t* lowest;
  int32_t* highest;
};

inline constexpr int kBlockRows = 32;  ///< rows of a packed tile of a; also the most rows of a tile

struct BlockTile {
  int64_t blocks;
  int rows;
  const float* a;           ///< a(i, k) = a[k * kBlockRows + i]
  const uint32_t* a_codes;  ///< same layout; the code is in every byte, or in both 16-bit words
  const float* b;           ///< b(k, j) = b[k * panel + j], panel = 4 * lanes
  const uint32_t* b_codes;  ///< byte v of word l: column v * lanes + l; 16-bit: see block_body.h
  float* c;                 ///< accumulators, c(i, j) = c[i * panel + j]
  int32_t* bad;  ///< negative where c is not reliable; layout of c. Blocks of >= 16, fp16 c
  // For tiles that collect diagnostics, with the layout of c: the number of completely lost
  // products (including zeros), and the largest magnitude of the accumulator.
  int32_t* swamped;
  float* largest;
  int fraction_bits;
  int zero_exponent;  ///< biased; fp16 accumulators only
};

/// Kind of block, that is, of accumulator: see the template in block_body.h.
enum class BlockKind : uint8_t { fp32, fp32_wide, e8m13, fp16, count };
inline constexpr int kBlockSizes = 4;  ///< 4, 8, 16, 32 products

struct BlockKernels {
  int lanes;
  using Run = void (*)(const BlockTile&);
  /// Indexed by [kind][log2(products) - 2][0: one vector, the panel's first; 1: all four].
  Run run[static_cast<int>(BlockKind::count)][kBlockSizes][2];
  /// Same index; these tiles also collect diagnostics.
  Run noting[static_cast<int>(BlockKind::count)][kBlockSizes][2];
  /// Encodes k lines of `width` operands as rows of a; `width` is a multiple of the lanes. `to` and
  /// `codes` have the layout of `from`, which is contiguous. `wide` selects 16-bit codes.
  void (*encode_rows)(const BlockCoding& coding, bool wide, int64_t k, int64_t width,
                      const float* from, float* to, uint32_t* codes, const BlockLines& lines);
  /// Same for one panel of b, which is four vectors wide.
  void (*encode_panel)(const BlockCoding& coding, bool wide, int64_t k, const float* from,
                       float* to, uint32_t* codes, const BlockLines& lines);
  /// Adds x[i] to total[i].
  void (*add)(int64_t n, const float* x, float* total);
};

#if defined(__x86_64__)
const BlockKernels& avx2_block_kernels() noexcept;
const BlockKernels& avx512_block_kernels() noexcept;
#endif

}  // namespace halfscope::gemm_detail
