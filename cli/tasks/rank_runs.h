// SPDX-License-Identifier: MIT
// Run files that the ranks of one training wrote, as one run with a lane for each rank.
#pragma once

#include <string>

namespace halfscope {

/// Returns whether a name ends like "run.rank0.hscope", as the Python package names files of ranks.
bool is_rank_file(const std::string& name);

/// Joins the files of all ranks: `name` is one of them. Returns what differs between the ranks, in
/// lines for a person. Throws Error if they are not from the same training.
std::string merge_rank_runs(const std::string& name, const std::string& out, bool force);

}  // namespace halfscope
