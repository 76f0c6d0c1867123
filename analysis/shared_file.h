// SPDX-License-Identifier: MIT
// SQLite files that one process writes while others read them: run files and study files. Private
// to analysis: only its .cpp files include this.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "analysis/sqlite.h"

namespace halfscope::sqlite {

/// SQLite takes a file of less than one page for an empty database.
inline constexpr uintmax_t kSmallestPage = 512;

/// Opens a file that may be growing, was not closed, or is in a folder that cannot be written to,
/// and calls `read`, which makes the transaction. May open it and call `read` again. Throws
/// SqliteError, or Error if the folder would have to be writable.
void read_snapshot(const std::filesystem::path& file,
                   const std::function<void(Database& database)>& read);

/// Turns a file and its WAL into one plain file, which needs exclusive access. Returns false if
/// another program has the file open.
bool leave_wal_mode(Database& database);

}  // namespace halfscope::sqlite
