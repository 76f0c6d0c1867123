// SPDX-License-Identifier: MIT
// What the step adds after the gradients, computed in a format of its own: clipping and the
// optimizers as primitive nodes, each of which rounds its result. Scalars (learning rate, betas,
// eps) are fp32 whatever the format, as in PyTorch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/lower/optimizer.h"
#include "core/plan/plan.h"

namespace halfscope {

struct ClippedGradients {
  std::vector<ValueId> unscaled, clipped;  ///< in the order of the gradients
  ValueId norm = kNone;                    ///< of all that is unscaled
};

/// torch.nn.utils.clip_grad_norm_ on gradients kept in plan.clip. With u = g * inverse_scale:
///   norm_i = |u_i|, norm = |(norm_1, ..., norm_n)|, factor = min(limit / (norm + 1e-6), 1),
///   clipped_i = u_i * factor
/// Norms are taken in fp32 and rounded once; with plan.clip_stagewise squares, sums and roots are
/// each rounded. All other results are rounded.
ClippedGradients add_clipping(Graph& graph, const std::vector<ValueId>& gradients,
                              const std::vector<std::string>& paths, ValueId inverse_scale,
                              ValueId limit, const Plan& plan);

/// add_update() with every operation rounded to `format`, but for the last, w' = w + update, which
/// is rounded to the variable's. `unscaled`: the gradient is, and clipped; else it is multiplied by
/// inverse_scale and, where the training `clips`, by clip. States are kept in `storage`, or in
/// `format` where that is narrower. Decoupled weight decay is an update of its own, before the
/// other.
Update add_rounded_update(Graph& graph, size_t variable, ValueId gradient,
                          const Optimizer& optimizer, const UpdateScalars& scalars,
                          const FloatFormat& storage, const FloatFormat& format, bool unscaled,
                          bool clips);

}  // namespace halfscope
