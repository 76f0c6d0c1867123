// SPDX-License-Identifier: MIT
// Tiles of rounded.h for AVX2.
#include "emulation/gemm/rounded_body.h"

namespace halfscope::gemm_detail {

const RoundedTiles& avx2_rounded_tiles(RoundedWay way, bool mul_add) noexcept {
  return rounded_tiles(way, mul_add);
}

}  // namespace halfscope::gemm_detail
