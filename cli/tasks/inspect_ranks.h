// SPDX-License-Identifier: MIT
// `halfscope inspect --by-ranks`: the error of reductions by number of ranks, as recorded and as
// estimated for more ranks.
#pragma once

#include <string>

#include "analysis/run_view.h"
#include "cli/terminal/output.h"

namespace halfscope {

/// Returns a table for the largest variable of each lane with several ranks.
std::string reductions_text(const std::string& file, const RunView& run);
/// Returns the array `reductions` of docs/reference/json.md: all variables.
Json reductions_json(const RunView& run);

}  // namespace halfscope
