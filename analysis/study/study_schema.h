// SPDX-License-Identifier: MIT
// Schema of the study file (docs/reference/sweep.md), shared by its writer and its reader. Private
// to analysis.
#pragma once

#include <cstdint>

#include "analysis/sqlite.h"

namespace halfscope {

inline constexpr int64_t kStudyApplicationId = 0x48535354;  // "HSST"
inline constexpr int64_t kStudySchemaVersion = 1;

/// The CREATE TABLE statements; a test compares them with docs/reference/sweep.md.
extern const char* const kStudySchemaSql;

/// For a file that is not a study file. It may have been one.
extern const char* const kNoStudyHint;

/// Throws Error if `database` is not a study file or has another schema version than this program;
/// of kind `usage` if the user should pass another file.
void check_study_schema(sqlite::Database& database);

/// Returns an error of SQLite in the words of studies: it speaks of run files otherwise.
Error study_error(const sqlite::SqliteError& error, const std::filesystem::path& file);

}  // namespace halfscope
