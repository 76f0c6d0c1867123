// SPDX-License-Identifier: MIT
// Includes all the bodies for node_call.h, for executors whose programs are compiled in one piece.
// CUDA's are compiled one family at a time (gpu/CMakeLists.txt).
#pragma once

#include "gpu/engine/function_steps.h"
#include "gpu/engine/index_steps.h"
#include "gpu/engine/integer_steps.h"
#include "gpu/engine/movement_steps.h"
#include "gpu/engine/normalization_steps.h"
#include "gpu/engine/product_steps.h"
#include "gpu/engine/reduction_steps.h"
#include "gpu/engine/update_steps.h"
