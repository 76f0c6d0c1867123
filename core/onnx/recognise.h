// SPDX-License-Identifier: MIT
// Composites that exporters write out in primitives (a layer normalization as ReduceMean, Sub, Pow,
// ...) become one node again, so that plans and reports treat them as one.
#pragma once

#include <functional>

#include "core/lower/lower.h"

namespace halfscope::onnx_files {

/// Replaces Layer-, RMS- and GroupNormalization, Gelu (both forms), Swish, HardSwish, Attention and
/// softmaxes that give 0 where everything is masked. A group is replaced only if nobody outside of
/// it reads what it computes on the way. The node that replaces it has the path of its last one.
/// Ones and zeros that only such a group reads are no variables any more, and scale and bias of
/// channels get the shape [channels]. Each composite keeps the primitives that it replaces
/// (Node::written), with their paths as aliases. `type_of` says in which format the file computes a
/// node.
Model recognise_composites(Model model, const std::function<FloatFormat(const Node&)>& type_of);

/// Marks the steps of operators of PyTorch that the file has in primitives: standard deviations,
/// variances and LogSigmoid. They stay nodes of their own, which fused plans do not round.
void mark_steps(Model& model, const std::function<FloatFormat(const Node&)>& type_of);

}  // namespace halfscope::onnx_files
