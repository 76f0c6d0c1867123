// SPDX-License-Identifier: MIT
// One node of an executable graph as an executable of its own, whose operands are for the caller to
// write: to see what another backend makes of them, or the same on other operands.
#pragma once

#include "core/lower/lower.h"

namespace halfscope {

/// Ids, formats, roundings and the node's plan are those of `graph`, and so are its random words.
/// The one entry is `eval`; `inputs` are the operands, `outputs` the results.
Executable single_node(const Graph& graph, NodeId node);

/// Of a node that sums products: those of its first two operands alone, summed as the node does and
/// written in fp32, without bias, scales and the factors of a Gemm.
Executable bare_product(const Graph& graph, NodeId node);

}  // namespace halfscope
