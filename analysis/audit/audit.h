// SPDX-License-Identifier: MIT
// Audit: checks the constants of a network and its training in the formats of a plan. It only
// computes these constants: the network does not run.
//
// A constant c is rounded to the format in which the plan's operator reads it. Where c itself may
// be the output (Add, Sub, Max, Min, Clip, Where), it is also rounded to the output's format.
// Scalars of the optimizer are fp32, and their products are rounded to the format of the update:
// then c has the effect of round(c) on 1 and on every power of two.
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
  std::string path{}, op{};  ///< of its reader or the variable; "" outside networks
  int64_t count = 1;         ///< elements
  /// The worst element: the largest that becomes infinite, else the largest that becomes 0, else
  /// the largest of all.
  double value = 0.0;
  FloatFormat format = kFp32;
  double becomes = 0.0;                ///< that element in the format
  int64_t zeros = 0, infinities = 0;   ///< elements that only become 0 or infinite here
  double relative_error = 0.0;         ///< relative error of that element
  Severity severity = Severity::info;  ///< warning: may do harm; error: does harm
  std::string text{};                  ///< a sentence: what it does; "" for plain rounding
  std::optional<double> safe{};        ///< the nearest value that works; nothing if this one does
  /// For divisors: the nearest value by which gradients may be divided, too.
  std::optional<double> safe_for_gradients{};
  std::string advice{};  ///< in words; "" if there is nothing to do

  bool is_harmful() const noexcept { return severity >= Severity::warning; }
};

/// Returns "network", "weights" ...
const char* audited_name(AuditedConstant::Of of) noexcept;

/// Audits a lane of `plan`: first the constants of the network in execution order, then, unless
/// `training` is null, the constants of the training. In inference, weights are constants, too: the
/// model's own, replaced by `init`; randomly initialized weights are left out. Throws Error like
/// lower().
std::vector<AuditedConstant> audit_constants(const Model& model, const Plan& plan,
                                             const TrainConfig* training,
                                             const NamedTensors& init = {});

/// Returns {"of", "name", "path", ...} of each as a JSON array.
std::string audit_json(const std::vector<AuditedConstant>& constants);

}  // namespace halfscope
