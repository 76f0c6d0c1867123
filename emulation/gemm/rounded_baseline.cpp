// SPDX-License-Identifier: MIT
// Tiles of rounded.h for any processor. Vectors are longer than the processor's, because packed
// panels need at least 8 columns. They are only passed between functions of this file.
#include "emulation/gemm/rounded_body.h"

namespace halfscope::gemm_detail {

const RoundedTiles& baseline_rounded_tiles(RoundedWay way, bool mul_add) noexcept {
  return rounded_tiles(way, mul_add);
}

}  // namespace halfscope::gemm_detail
