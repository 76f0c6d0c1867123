// SPDX-License-Identifier: MIT
// Clipping and optimizers that compute in a format of their own: primitive nodes, each of which
// rounds its output. Scalars (learning rate, betas, eps) are fp32 in every format, as in PyTorch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/lower/optimizer.h"
#include "core/plan/plan.h"

namespace halfscope {

struct ClippedGradients {
  std::vector<ValueId> unscaled, clipped;  ///< in the order of the gradients
  ValueId norm = kNone;                    ///< norm of all unscaled gradients
};

/// Replaces each gradient by g / scale, in fp32, where the caller writes the scale to
/// scalars.inverse_scale; then replaces that scalar by a constant 1.
void divide_by_scale(Graph& graph, std::vector<ValueId>& gradients,
                     const std::vector<std::string>& paths, UpdateScalars& scalars);

/// Adds torch.nn.utils.clip_grad_norm_ on gradients stored in plan.clip. With u = g *
/// inverse_scale:
///   norm_i = |u_i|, norm = |(norm_1, ..., norm_n)|, factor = min(limit / (norm + 1e-6), 1),
///   clipped_i = u_i * factor
/// Norms are computed in fp32 and rounded once; with plan.clip_stagewise squares, sums and roots
/// are rounded separately. All other results are rounded.
ClippedGradients add_clipping(Graph& graph, const std::vector<ValueId>& gradients,
                              const std::vector<std::string>& paths, ValueId inverse_scale,
                              ValueId limit, const Plan& plan);

/// Adds the same update as add_update() with every operation rounded to `format`, except the last,
/// w' = w + update, which is rounded to the variable's format. `unscaled`: the gradient is already
/// unscaled and clipped; otherwise it is multiplied by inverse_scale and, if the training `clips`,
/// by clip. States are stored in `storage`, or in `format` if that has fewer bits. Decoupled weight
/// decay is a separate update before the other one.
Update add_rounded_update(Graph& graph, size_t variable, ValueId gradient,
                          const Optimizer& optimizer, const UpdateScalars& scalars,
                          const FloatFormat& storage, const FloatFormat& format, bool unscaled,
                          bool clips);

}  // namespace halfscope
