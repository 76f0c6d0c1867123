// SPDX-License-Identifier: MIT
#include "emulation/engine/double_tile_body.h"

namespace halfscope {

DoubleTile avx2_double_tile() noexcept { return make_double_tile<4, 6, 2>(); }

}  // namespace halfscope
