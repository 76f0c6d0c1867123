// SPDX-License-Identifier: MIT
#include "core/graph/site.h"

namespace halfscope {

const char* role_name(Role role) noexcept {
  switch (role) {
    case Role::input:
      return "input";
    case Role::activation:
      return "activation";
    case Role::weight:
      return "weight";
    case Role::activation_grad:
      return "activation_grad";
    case Role::weight_grad:
      return "weight_grad";
    case Role::update:
      return "update";
    case Role::state:
      return "state";
  }
  return "unknown";
}

const char* phase_name(Phase phase) noexcept {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::update:
      return "update";
  }
  return "unknown";
}

}  // namespace halfscope
