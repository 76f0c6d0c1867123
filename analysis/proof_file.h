// SPDX-License-Identifier: MIT
// Adds proofs, trials and deviations from later runs to a finished run file.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/observe/recording.h"

namespace halfscope {

/// Adds or replaces the lane's row of the table `proofs`; RunView::proof reads it back. Throws
/// Error and leaves the file unchanged if a run is still being recorded into it, if it has another
/// schema version, or if it cannot be written.
void store_proof(const std::filesystem::path& run, int lane, const std::string& json);

/// Stores the trials of a search on a lane so far; RunView::trials reads them back. Throws like
/// store_proof().
void store_trials(const std::filesystem::path& run, int lane, const std::string& json);
/// Returns whether a stored proof shows that the unchanged lane is correct: its trial `original`
/// passes. False for "" and for text that is not a proof.
bool proof_clears(const std::string& json);

/// Adds measured deviations of lanes and replaces rows of the same lane, step, kind and name.
/// Throws like store_proof().
void store_deviations(const std::filesystem::path& run,
                      const std::vector<std::pair<int, Deviation>>& deviations);

}  // namespace halfscope
