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

/// Adds a result to a finished run file that nobody else reads yet. Throws Error.
void store_trial(const std::filesystem::path& run, const std::string& hash,
                 const TrialResult& result);

/// Returns whether a run file has as many bytes as its header says. Reads the header only.
bool is_whole_run_file(const std::filesystem::path& run) noexcept;

/// Returns the result of a trial from its run file. If `train` wrote the file, it contains no
/// result, which is then computed from the run. Returns nothing if the file is missing, incomplete
/// or damaged, or belongs to another trial: the trial has to be trained again.
std::optional<TrialResult> stored_trial(const std::filesystem::path& run, const std::string& hash);

}  // namespace halfscope
