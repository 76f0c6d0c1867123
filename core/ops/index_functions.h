// SPDX-License-Identifier: MIT
// The operators that core/numeric/elementary/integers.h computes on index tensors, with
// broadcasting. The lists serve every backend.
#pragma once

#include "core/numeric/elementary/integers.h"
#include "core/ops/functions.h"

namespace halfscope {

using BinaryIndexFunctions =
    FunctionList<integers::Add, integers::Sub, integers::Mul, integers::Div, integers::Mod,
                 integers::BitwiseAnd, integers::BitwiseOr, integers::BitwiseXor, integers::Min,
                 integers::Max>;
using UnaryIndexFunctions = FunctionList<integers::Neg, integers::Abs>;

/// Returns whether the node reads and writes only indices.
bool works_on_indices(const Graph& graph, const Node& node);

}  // namespace halfscope
