// SPDX-License-Identifier: MIT
// Adds to a finished run file what was proved about a lane by a run that came after it.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/observe/recording.h"

namespace halfscope {

/// Puts or replaces the lane's row of the table `proofs`; RunView::proof reads it back. Throws
/// Error, and leaves the file as it was, if a run is still being recorded into it, if it has
/// another schema version, or if it cannot be written.
void store_proof(const std::filesystem::path& run, int lane, const std::string& json);

/// Keeps what a search has tried of a lane so far; RunView::trials reads it back. Throws as
/// store_proof() does.
void store_trials(const std::filesystem::path& run, int lane, const std::string& json);
/// Returns whether a stored proof shows that the lane is right as it is: its trial `original`
/// passes. False for "" and for text that is not a proof.
bool proof_clears(const std::string& json);

/// Adds what was measured of lanes, in place of rows of the same lane, step, kind and name. Throws
/// as store_proof() does.
void store_deviations(const std::filesystem::path& run,
                      const std::vector<std::pair<int, Deviation>>& deviations);

}  // namespace halfscope
