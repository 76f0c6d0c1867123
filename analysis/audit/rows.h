// SPDX-License-Identifier: MIT
// Shared by both halves of the audit: how a number is rounded, and what works in a format.
#pragma once

#include <string>
#include <vector>

#include "analysis/audit/audit.h"
#include "core/lower/lower.h"

namespace halfscope::audit {

/// Returns the number in the format, to nearest even.
double in_format(double x, const FloatFormat& format) noexcept;

/// Returns |becomes - value| / |value|; 0 if they are equal, infinite if `becomes` alone is.
double relative_error(double value, double becomes) noexcept;

/// Returns the smallest positive number that the format does not round to 0.
double least_number(const FloatFormat& format) noexcept;

/// Returns the row of a number that is kept in the format.
AuditedConstant number(AuditedConstant::Of of, std::string name, double value,
                       const FloatFormat& format);

/// Adds the rows of the network. `exe` is the lowered graph, `whole` the same graph in fp32 with
/// composites in one piece.
void add_network(const Executable& exe, const Graph& whole, std::vector<AuditedConstant>& rows);
/// Adds the rows of weights that do not train.
void add_weights(const Executable& exe, const NamedTensors& weights,
                 std::vector<AuditedConstant>& rows);
/// Adds the rows of the optimizer, the schedule, clipping and moving averages.
void add_training(const Executable& exe, const Model& model, const Plan& plan,
                  const TrainConfig& training, std::vector<AuditedConstant>& rows);

}  // namespace halfscope::audit
