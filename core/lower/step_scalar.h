// SPDX-License-Identifier: MIT
// Scalars that updates read, which depend on the number of updates and on options of the optimizer
// that may change by step, for host and device.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/numeric/elementary/elementary.h"

namespace halfscope {

struct StepScalar {
  enum class Kind : uint8_t {
    correction,  ///< Adam's 1 - parameter^t in update t
    share,       ///< of a gradient in SGD's momentum: 1 - parameter, but 1 in the first update
    value,       ///< parameter
    rest,        ///< 1 - parameter
  };
  Kind kind = Kind::correction;
  double parameter = 0.0;

  friend bool operator==(const StepScalar&, const StepScalar&) = default;
};

/// Returns the scalar in update number `updates`; the first is 1.
HS_HD inline double scalar_value(const StepScalar& scalar, int64_t updates) noexcept {
  switch (scalar.kind) {
    case StepScalar::Kind::share:
      return updates == 1 ? 1.0 : 1.0 - scalar.parameter;
    case StepScalar::Kind::value:
      return scalar.parameter;
    case StepScalar::Kind::rest:
      return 1.0 - scalar.parameter;
    case StepScalar::Kind::correction:
      break;
  }
  return 1.0 - elementary::pow(scalar.parameter, static_cast<double>(updates));
}

}  // namespace halfscope
