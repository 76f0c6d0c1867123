// SPDX-License-Identifier: MIT
// Optimizers as graph builders: each adds the nodes that update one variable, and the state
// variables they need (core/ops/training.cpp has the formulas).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/graph/graph.h"

namespace halfscope {

struct Optimizer {
  enum class Kind : uint8_t { sgd, adam, adamw, rmsprop };
  Kind kind = Kind::sgd;
  double learning_rate = 0.1;
  double momentum = 0.0;              ///< sgd, rmsprop
  double weight_decay = 0.0;          ///< L2, added to the gradient; adamw applies it separately
  double beta1 = 0.9, beta2 = 0.999;  ///< adam, adamw
  double eps = 1e-8;                  ///< adam, adamw, rmsprop
  double alpha = 0.99;                ///< rmsprop

  friend bool operator==(const Optimizer&, const Optimizer&) = default;
};

/// Parses "sgd", "adam", "adamw" or "rmsprop", with options after a colon:
/// "sgd:lr=0.05,momentum=0.9". The defaults are PyTorch's, except sgd's learning rate, which is
/// 0.1. Throws Error (usage).
Optimizer parse_optimizer(std::string_view text);
/// Returns the text that parse_optimizer reads: the learning rate and every value that is not a
/// default.
std::string optimizer_text(const Optimizer& optimizer);

/// Scalars that the caller writes before each update.
struct UpdateScalars {
  ValueId inverse_scale, clip, learning_rate, correction_1, correction_2;
};

struct Update {
  ValueId value = kNone;  ///< the amount added to the variable
  /// New values of the optimizer's state and their names: "momentum", "adam_m".
  std::vector<std::pair<ValueId, std::string>> states;
  // Only set by add_rounded_update().
  ValueId unscaled = kNone;  ///< the gradient divided by the loss scale
  ValueId decay =
      kNone;  ///< the amount that decoupled weight decay adds, if that is a separate operation
};

/// Adds the update of graph.variables()[variable] from its gradient and sets its `next`. State
/// variables are stored in `storage`.
Update add_update(Graph& graph, size_t variable, ValueId gradient, const Optimizer& optimizer,
                  const UpdateScalars& scalars, const FloatFormat& storage);

/// Adds the variable that sums the gradients of a step's micro-batches in `format`; returns the
/// sum.
ValueId add_gradient_sum(Graph& graph, size_t variable, ValueId gradient, ValueId keep,
                         const FloatFormat& format);

}  // namespace halfscope
