// SPDX-License-Identifier: MIT
// Tensor-core blocks (core/numeric/sums/fused_dot.h) for whole tiles, one implementation per
// instruction set. With the largest raw exponent Emax of a block's terms, found in byte (fp16, fp8)
// or 16-bit lanes (bf16, tf32),
//   sum = trunc(c * 2^(F - Emax)) + sum of trunc(a_k * b_k * 2^(F - Emax)), integers,
//   c = rho(sum * 2^(Emax - F)).
// a_k * b_k is exact in fp32, so is the scaling, and truncation is the conversion to int32.
// What the tiles cannot do exactly they mark, or the caller (block_product.cpp) knows beforehand
// from the exponents of the lines; those elements go to the reference.
#pragma once

#include <cstdint>

namespace halfscope::gemm_detail {

/// How the values of one operand are encoded. Codes of a and b are added modulo 256 or 65536 and
/// give the biased exponent of the product; any zero among them gives less than any product.
struct BlockCoding {
  uint32_t keep;     ///< bits of the operand that are read
  uint32_t stray;    ///< mantissa bits that no value of the format has
  float min_normal;  ///< 2^min_exponent of the format
  int min_exponent;  ///< biased as in fp32
  int max_exponent;  ///< biased as in fp32
  int base;          ///< code = biased exponent + base
  int zero_code;     ///< or that of zero
};

/// Of each line (row of a, column of b): nonzero if it holds anything but values of the format;
/// extremes of the biased exponents of its values, zeros excepted. Arrays of one element per lane.
struct BlockLines {
  int32_t* bad;
  int32_t* lowest;
  int32_t* highest;
};

inline constexpr int kBlockRows = 32;  ///< of a packed tile of a, and at most in a tile

struct BlockTile {
  int64_t blocks;
  int rows;
  const float* a;           ///< a(i, k) = a[k * kBlockRows + i]
  const uint32_t* a_codes;  ///< likewise; the code in every byte or in both words
  const float* b;           ///< b(k, j) = b[k * panel + j], panel = 4 * lanes
  const uint32_t* b_codes;  ///< byte v of word l: column v * lanes + l; 16-bit: see block_body.h
  float* c;                 ///< accumulators, c(i, j) = c[i * panel + j]
  int32_t* bad;  ///< negative where c is not to be trusted; like c. Blocks of at least 16, fp16 c
  // Of tiles that take notes, like c: products of which nothing was left, zeros among them, and the
  // largest magnitude of an accumulator.
  int32_t* swamped;
  float* largest;
  int fraction_bits;
  int zero_exponent;  ///< biased; fp16 accumulators only
};

/// What a tile of one kind of block does: see the template in block_body.h.
enum class BlockKind : uint8_t { fp32, fp32_wide, e8m13, fp16, count };
inline constexpr int kBlockSizes = 4;  ///< 4, 8, 16, 32 products

struct BlockKernels {
  int lanes;
  using Run = void (*)(const BlockTile&);
  /// [kind][log2(products) - 2][0: one vector, the first of the panel; 1: all four].
  Run run[static_cast<int>(BlockKind::count)][kBlockSizes][2];
  /// Likewise, and takes notes.
  Run noting[static_cast<int>(BlockKind::count)][kBlockSizes][2];
  /// Encodes k lines of `width` (a multiple of the lanes) operands, as rows of a: `to` and `codes`
  /// have the layout of `from`, which is contiguous; `wide` for 16-bit codes.
  void (*encode_rows)(const BlockCoding& coding, bool wide, int64_t k, int64_t width,
                      const float* from, float* to, uint32_t* codes, const BlockLines& lines);
  /// The same for one panel of b, four vectors wide.
  void (*encode_panel)(const BlockCoding& coding, bool wide, int64_t k, const float* from,
                       float* to, uint32_t* codes, const BlockLines& lines);
  /// total[i] += x[i]
  void (*add)(int64_t n, const float* x, float* total);
};

#if defined(__x86_64__)
const BlockKernels& avx2_block_kernels() noexcept;
const BlockKernels& avx512_block_kernels() noexcept;
#endif

}  // namespace halfscope::gemm_detail
