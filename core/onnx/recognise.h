// SPDX-License-Identifier: MIT
// Composites that exporters write out in primitives (a layer normalization as ReduceMean, Sub, Pow,
// ...) become one node again, so that plans and reports treat them as one.
#pragma once

#include "core/lower/lower.h"

namespace halfscope::onnx_files {

/// Replaces LayerNormalization, RMSNormalization, Gelu (both forms), Swish and Attention written in
/// primitives. A group is replaced only if nobody outside of it reads what it computes on the way.
/// The node that replaces it has the path of its last one.
Model recognise_composites(Model model);

}  // namespace halfscope::onnx_files
