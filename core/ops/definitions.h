// SPDX-License-Identifier: MIT
// Private to core/ops: the operators that each file defines. table.cpp puts them together.
#pragma once

#include <vector>

#include "core/graph/autodiff.h"
#include "core/ops/ops.h"

namespace halfscope::ops {

const std::vector<OpDef>& arithmetic();
const std::vector<OpDef>& attention();
const std::vector<OpDef>& cast();
const std::vector<OpDef>& choice();
const std::vector<OpDef>& conv();
const std::vector<OpDef>& cumsum();
const std::vector<OpDef>& functions();
const std::vector<OpDef>& gather();
const std::vector<OpDef>& gemm();
const std::vector<OpDef>& group_normalization();
const std::vector<OpDef>& index();
const std::vector<OpDef>& loss();
const std::vector<OpDef>& matmul();
const std::vector<OpDef>& move();
const std::vector<OpDef>& normalization();
const std::vector<OpDef>& pooling();
const std::vector<OpDef>& quantize();
const std::vector<OpDef>& reductions();
const std::vector<OpDef>& relu();
const std::vector<OpDef>& shape_ops();
const std::vector<OpDef>& softmax();
const std::vector<OpDef>& training();

}  // namespace halfscope::ops
