// SPDX-License-Identifier: MIT
// The only list of backends.
#pragma once

#include "core/plan/plan.h"
#include "core/train/backend.h"

namespace halfscope {

/// The backend that runs a plan.
const Backend& backend_for(const Plan& plan);

}  // namespace halfscope
