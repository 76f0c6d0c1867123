// SPDX-License-Identifier: MIT
#include "cli/backends.h"

#include "emulation/backends.h"

namespace halfscope {

const Backend& backend_for(const Plan& plan) {
  return plan.double_precision ? float64_backend() : emulation_backend();
}

}  // namespace halfscope
