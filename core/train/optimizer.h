// SPDX-License-Identifier: MIT
// Optimizers as graph builders: each adds one update node per variable (core/ops/training.cpp
// has the formulas) and the state variables it needs.
#pragma once

#include <string>
#include <string_view>

#include "core/graph/graph.h"

namespace halfscope {

struct Optimizer {
  enum class Kind : uint8_t { sgd, adam };
  Kind kind = Kind::sgd;
  double learning_rate = 0.1;
  double momentum = 0.0;      ///< sgd
  double weight_decay = 0.0;  ///< L2, added to the gradient
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< adam
};

/// "sgd", "sgd:lr=0.05,momentum=0.9,weight_decay=1e-4", "adam", "adam:beta1=0.9,eps=1e-6". The
/// default learning rate is 0.1 for sgd and 0.001 for adam. Throws Error (usage).
Optimizer parse_optimizer(std::string_view text);
/// The form that parse_optimizer reads: the learning rate and every value that is not a default.
std::string optimizer_text(const Optimizer& optimizer);

/// Scalars that the caller writes before each update.
struct UpdateScalars {
  ValueId inverse_scale, learning_rate, correction_1, correction_2;
};

/// Adds the update of graph.variables()[variable] for its gradient and sets its `next`. State
/// variables are stored in `storage`. Returns the value that holds the update itself.
ValueId add_update(Graph& graph, size_t variable, ValueId gradient, const Optimizer& optimizer,
                   const UpdateScalars& scalars, const FloatFormat& storage);

}  // namespace halfscope
