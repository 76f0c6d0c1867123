// SPDX-License-Identifier: MIT
// Paths of rules that select one node and nothing else. Other paths also select by module and by a
// file's names: "norm" selects the node "norm", and "norm:mul" inside the module "norm".
#pragma once

#include <string>
#include <string_view>

#include "core/plan/plan.h"

namespace halfscope {

/// Returns the glob that matches this path alone. It starts with a backslash, which marks rules
/// that select by a node's own path (docs/reference/plans.md).
inline std::string own_path_glob(std::string_view path) {
  const std::string glob = exact_glob(path);
  return glob.starts_with('\\') ? glob : "\\" + glob;
}

/// Returns whether rules with this glob select nodes by their own path alone.
inline bool is_own_path(std::string_view glob) { return glob.starts_with('\\'); }

}  // namespace halfscope
