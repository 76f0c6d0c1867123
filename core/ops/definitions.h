// SPDX-License-Identifier: MIT
// Private to core/ops: the operators that each file defines. table.cpp collects them.
#pragma once

#include <vector>

#include "core/graph/autodiff.h"
#include "core/ops/ops.h"

namespace halfscope::ops {

#define HALFSCOPE_OPERATORS(file) const std::vector<OpDef>& file();
#include "core/ops/list.inc"
#undef HALFSCOPE_OPERATORS

}  // namespace halfscope::ops
