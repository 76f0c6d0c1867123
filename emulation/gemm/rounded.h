// SPDX-License-Identifier: MIT
// Register tiles whose chains round after every term, in a mode other than nearest even. They
// replace the strided tiles of Kernels<double> (tile.h) and start and end their chains.
#pragma once

#include <cstdint>

#include "emulation/gemm/tile.h"

namespace halfscope {
struct SumSpec;
}

namespace halfscope::gemm_detail {

/// How a tile computes the rounded sum.
enum class RoundedWay : uint8_t {
  directed,  ///< up, down: the processor rounds that way, to double and then to the format
  added,     ///< towards zero, nearest away, stochastic: the truncated sum plus a number
             ///< in the bits that will be dropped, so that the carry rounds
  odd,       ///< the sum is rounded to odd and then cut
};
inline constexpr int kRoundedWays = 3;
inline constexpr int kRoundedRows = 4;

struct RoundedTiles {
  int lanes;
  void (*run[kRoundedRows][2])(const Tile<double>&);
};

/// Returns whether tiles compute `spec` exactly; they must also know the format.
bool has_rounded_tiles(const SumSpec& spec) noexcept;
/// Returns the kernels of the active instruction set.
const Kernels<double>& rounded_kernels(const SumSpec& spec);
SumRounding sum_rounding(const SumSpec& spec, int64_t terms) noexcept;

const RoundedTiles& baseline_rounded_tiles(RoundedWay way, bool mul_add) noexcept;
#if defined(__x86_64__)
const RoundedTiles& avx2_rounded_tiles(RoundedWay way, bool mul_add) noexcept;
const RoundedTiles& avx512_rounded_tiles(RoundedWay way, bool mul_add) noexcept;
#endif

}  // namespace halfscope::gemm_detail
