// SPDX-License-Identifier: MIT
// Audit: what becomes of the constants of a network and its training in the formats of a plan. It
// computes nothing but these constants: the network does not run.
//
// A constant c that an operator reads is rounded to the format in which the plan has it read; where
// c itself may be the result (Add, Sub, Max, Min, Clip, Where), also to the format that is written.
// Scalars of the optimizer are fp32, and the results that they are factors of are rounded to the
// format of the update: round(c) is then what c acts as on 1, and on every power of two.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/finding.h"
#include "core/graph/model.h"
#include "core/numeric/formats/float_format.h"
#include "core/plan/plan.h"
#include "core/train/trainer.h"

namespace halfscope {

struct AuditedConstant {
  enum class Of : uint8_t { network, weights, optimizer, schedule, average, clipping };
  Of of = Of::network;
  std::string name{};        ///< "constant", "epsilon", "beta2", "1 - lr * weight_decay"
  std::string path{}, op{};  ///< of the node that reads it, or of the variable; "" outside networks
  int64_t count = 1;         ///< elements
  /// The element that suffers most: the largest that becomes infinite, else the largest that
  /// becomes 0, else the largest of all.
  double value = 0.0;
  FloatFormat format = kFp32;
  double becomes = 0.0;                ///< that element in the format
  int64_t zeros = 0, infinities = 0;   ///< elements that become 0 or infinite, and were not before
  double relative_error = 0.0;         ///< of that element
  Severity severity = Severity::info;  ///< warning: may do harm; error: does harm
  std::string text{};                  ///< what it does, a sentence; "" of plain rounding
  std::optional<double> safe{};        ///< the nearest value that works; nothing if it does
  /// Of divisors: the nearest value by which gradients may be divided as well.
  std::optional<double> safe_for_gradients{};
  std::string advice{};  ///< in words; "" if there is nothing to do

  bool is_harmful() const noexcept { return severity >= Severity::warning; }
};

/// Returns the word for it: "network", "weights" ...
const char* audited_name(AuditedConstant::Of of) noexcept;

/// Audits a lane of `plan`: first the constants of the network in execution order, then those of
/// `training`, which is null in inference. In inference weights are constants, too: those of the
/// model, replaced by `init`; drawn ones are left out. Throws Error as lower() does.
std::vector<AuditedConstant> audit_constants(const Model& model, const Plan& plan,
                                             const TrainConfig* training,
                                             const NamedTensors& init = {});

/// Returns {"of", "name", "path", ...} of each as a JSON array.
std::string audit_json(const std::vector<AuditedConstant>& constants);

}  // namespace halfscope
