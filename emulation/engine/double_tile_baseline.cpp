// SPDX-License-Identifier: MIT
#include "emulation/engine/double_tile_body.h"

namespace halfscope {

DoubleTile baseline_double_tile() noexcept { return make_double_tile<2, 4, 2>(); }

}  // namespace halfscope
