// SPDX-License-Identifier: MIT
// One node of an executable graph as a separate executable, whose operands the caller writes: to
// run it on another backend, or on other operands.
#pragma once

#include "core/lower/lower.h"

namespace halfscope {

/// Returns the node's executable. Ids, formats, roundings, the node's plan and its random words are
/// the same as in `graph`. The only entry is `eval`; `inputs` are the operands, `outputs` the
/// outputs.
Executable single_node(const Graph& graph, NodeId node);

/// Returns the executable of a product's first two operands alone, summed as the node does and
/// written in fp32: without bias, scales and the factors of a Gemm.
Executable bare_product(const Graph& graph, NodeId node);

}  // namespace halfscope
