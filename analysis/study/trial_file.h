// SPDX-License-Identifier: MIT
// The result of a trial as JSON, for messages between processes, and in its run file, where a study
// finds it without reading the run again.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "analysis/study/study_view.h"

namespace halfscope {

/// Returns a result as JSON in one line.
std::string trial_json(const std::string& hash, const TrialResult& result);
/// Reads it back. Returns nothing if the text is not the result of the trial with this hash.
std::optional<TrialResult> parse_trial(const std::string& hash, const std::string& json);

/// Adds a result to a finished run file that nobody else reads yet, and a checksum of its contents.
/// Throws Error.
void store_trial(const std::filesystem::path& run, const std::string& hash,
                 const TrialResult& result);

/// Returns the result of a trial from its run file, after it has compared the contents with their
/// checksum. If `train` wrote the file, it contains neither, and the result is computed from the
/// run. Returns nothing if the file is missing, incomplete or damaged, or belongs to another trial:
/// the trial has to be trained again.
std::optional<TrialResult> stored_trial(const std::filesystem::path& run, const std::string& hash);

}  // namespace halfscope
