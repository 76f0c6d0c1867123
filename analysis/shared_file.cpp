// SPDX-License-Identifier: MIT
#include "analysis/shared_file.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <chrono>
#include <system_error>
#include <thread>

#include "core/error.h"

namespace halfscope::sqlite {
namespace {

namespace fs = std::filesystem;

/// Half a second: a temporary journal disappears in milliseconds, even on a busy machine.
constexpr int kJournalAttempts = 100;
constexpr std::chrono::milliseconds kJournalPause{5};

/// Readers lock a file for milliseconds, a writer for its whole life.
constexpr int kLockAttempts = 50;
constexpr std::chrono::milliseconds kLockPause{20};

using Read = std::function<void(Database& database)>;

void read_once(const fs::path& file, Access access, const Read& read) {
  Database database(file, access);
  database.set_busy_timeout(5000);
  // Finds inconsistent pages early, before their content is used.
  database.execute("PRAGMA cell_size_check=ON");
  read(database);
}

/// Reads a file that has a journal but no lock. Either its writer died while it turned the WAL into
/// a plain file, and undoing that needs writing; or the file was replaced after it was opened, and
/// the journal belongs to a run in progress, which undoing would break. Opening the file again
/// finds its own journal, so the journal is undone only if every attempt shows the same.
void read_beside_journal(const fs::path& file, const Read& read) {
  for (int attempt = 0; attempt < kJournalAttempts; ++attempt) {
    std::this_thread::sleep_for(kJournalPause);
    try {
      return read_once(file, Access::read_only, read);
    } catch (const SqliteError& error) {
      if (error.code() != SQLITE_READONLY_ROLLBACK) throw;
    }
  }
  read_once(file, Access::read_write, read);
}

bool has_wal(const fs::path& file) {
  std::error_code error;
  const uintmax_t size = fs::file_size(side_file(file, "-wal"), error);
  return !error && size > 0;
}

}  // namespace

void read_snapshot(const fs::path& file, const Read& read) {
  try {
    read_once(file, Access::read_only, read);
  } catch (const SqliteError& error) {
    if (error.code() == SQLITE_READONLY_ROLLBACK) return read_beside_journal(file, read);
    const bool cannot_share_wal =
        error.primary_code() == SQLITE_CANTOPEN || error.primary_code() == SQLITE_READONLY;
    if (!cannot_share_wal || ::access(file.c_str(), R_OK) != 0) throw;
    // A file in WAL mode in a folder we may not write to, where SQLite cannot make its -shm.
    if (has_wal(file)) {
      throw Error(fmt::format("cannot read '{}': it was not closed, and its folder is read-only",
                              file.string()),
                  fmt::format("copy it together with {}-wal to a folder that you can write to",
                              file.filename().string()));
    }
    read_once(file, Access::immutable, read);
  }
}

bool leave_wal_mode(Database& database) {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kLockPause);
    try {
      if (database.query_text("PRAGMA journal_mode=DELETE") == "delete") return true;
    } catch (const SqliteError& error) {
      if (error.primary_code() != SQLITE_BUSY && error.primary_code() != SQLITE_LOCKED) throw;
    }
  }
  return false;
}

}  // namespace halfscope::sqlite
