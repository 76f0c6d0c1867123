// SPDX-License-Identifier: MIT
#include "emulation/engine/double_tile_body.h"

namespace halfscope {

DoubleTile avx512_double_tile() noexcept { return make_double_tile<8, 8, 3>(); }

}  // namespace halfscope
