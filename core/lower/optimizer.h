// SPDX-License-Identifier: MIT
// Optimizers as graph builders: each adds the nodes that update one variable, and the state
// variables they need (core/ops/training.cpp has the formulas).
#pragma once

#include <optional>
#include <span>
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
  double dampening = 0.0;             ///< sgd: this share of a gradient does not enter the momentum
  bool nesterov = false;              ///< sgd: the gradient plus momentum times the new momentum
  double weight_decay = 0.0;          ///< L2, added to the gradient; adamw applies it separately
  double beta1 = 0.9, beta2 = 0.999;  ///< adam, adamw
  bool amsgrad = false;               ///< adam, adamw: divides by the largest second moment so far
  double eps = 1e-8;                  ///< adam, adamw, rmsprop
  double alpha = 0.99;                ///< rmsprop
  bool centered = false;              ///< rmsprop: divides by the deviation of gradients
  bool maximize = false;              ///< moves along the gradient, not against it

  friend bool operator==(const Optimizer&, const Optimizer&) = default;
};

bool is_adam(const Optimizer& optimizer);  ///< also AdamW

/// Parses "sgd", "adam", "adamw" or "rmsprop", with options after a colon:
/// "sgd:lr=0.05,momentum=0.9,nesterov=true". The defaults are PyTorch's, except sgd's learning
/// rate, which is 0.1. Throws Error (usage).
Optimizer parse_optimizer(std::string_view text);
/// Returns the text that parse_optimizer reads: the learning rate and every value that is not a
/// default.
std::string optimizer_text(const Optimizer& optimizer);

/// Settings of some variables that differ from the optimizer's (PyTorch's parameter groups).
struct ParameterGroup {
  std::string glob;  ///< matches paths of variables, or their names in the imported file
  /// Names of options as parse_optimizer() reads them, with their values; switches are 0 and 1.
  std::vector<std::pair<std::string, double>> options;

  /// Returns whether the group has its own value of an option.
  bool sets(std::string_view key) const;

  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

/// Parses "*.bias:weight_decay=0" or "head.*:lr=0.01,beta2=0.99", with options of any optimizer.
/// The glob ends at the last colon. Throws Error (usage).
ParameterGroup parse_parameter_group(std::string_view text);
/// Returns the text that parse_parameter_group() reads.
std::string parameter_group_text(const ParameterGroup& group);

/// Returns the first group that the variable belongs to, or null.
const ParameterGroup* group_of(std::span<const ParameterGroup> groups, const Variable& variable);
/// Returns the optimizer with the settings of the variable's group. Throws Error (usage) if the
/// group has options that the optimizer lacks.
Optimizer optimizer_of(const Optimizer& optimizer, std::span<const ParameterGroup> groups,
                       const Variable& variable);

/// Returns whether the optimizer has an option with this name.
bool has_option(const Optimizer& optimizer, std::string_view key);

/// An option that changes by step.
struct ScheduledOption {
  std::string key;     ///< "lr", "momentum" or "beta1"
  std::string glob{};  ///< ParameterGroup::glob; empty: the optimizer's own

  friend bool operator==(const ScheduledOption&, const ScheduledOption&) = default;
};

/// Parses "momentum" or, of a parameter group, "*.bias:momentum". Returns nothing if no such option
/// can change.
std::optional<ScheduledOption> parse_scheduled_option(std::string_view text);
/// Returns the text that parse_scheduled_option() reads.
std::string scheduled_option_text(const ScheduledOption& option);
/// Returns the option that decides the value of `key` for the members of a group (null: of none),
/// by its place; nothing if the value stays as it is. A group's own option comes first; without it,
/// a group that sets the value keeps it.
std::optional<size_t> scheduled_at(std::span<const ScheduledOption> scheduled,
                                   const ParameterGroup* group, std::string_view key);

/// Scalars that the caller writes before each update.
struct UpdateScalars {
  ValueId inverse_scale = kNone, clip = kNone, learning_rate = kNone;
  ValueId correction_1 = kNone, correction_2 = kNone;  ///< only Adam reads them
  ValueId share = kNone;                               ///< only SGD with dampening reads it
  // Options that change by step; otherwise they are attributes.
  ValueId momentum = kNone;               ///< SGD, RMSprop
  ValueId beta1 = kNone, rest_1 = kNone;  ///< Adam: beta1 and 1 - beta1
};

/// Returns whether updates have the state `momentum`.
inline bool has_momentum(const Optimizer& optimizer, const UpdateScalars& scalars) {
  return optimizer.momentum != 0.0 || scalars.momentum != kNone;
}

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
