// SPDX-License-Identifier: MIT
#include "analysis/study/study_schema.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include "core/error.h"

namespace halfscope {

const char* const kNoStudyHint =
    "pass the folder of a study; if this is one, delete study.sqlite, then run "
    "`halfscope sweep STUDY --collect`";

const char* const kStudySchemaSql = R"sql(
CREATE TABLE study(name TEXT NOT NULL, json TEXT NOT NULL, version TEXT NOT NULL, baseline TEXT,
  tolerance REAL NOT NULL);
CREATE TABLE axes(axis INTEGER NOT NULL, name TEXT NOT NULL, place INTEGER NOT NULL,
  value TEXT NOT NULL, PRIMARY KEY(axis, place)) WITHOUT ROWID;
CREATE TABLE trials(trial INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE,
  baseline INTEGER NOT NULL, places TEXT NOT NULL, base INTEGER, command TEXT NOT NULL,
  run TEXT NOT NULL, status TEXT NOT NULL, error TEXT, steps INTEGER, skipped INTEGER, loss REAL,
  test_loss REAL, accuracy REAL, first_bad_step INTEGER, first_bad_layer TEXT, first_bad_role TEXT,
  cause TEXT, cause_layer TEXT, headline TEXT, bits REAL, curve BLOB, seconds REAL, worker TEXT);
)sql";

void check_study_schema(sqlite::Database& database) {
  const std::string file = database.file().string();
  if (database.query_integer("PRAGMA application_id") != kStudyApplicationId) {
    throw usage_error(fmt::format("'{}' is not a study file", file), kNoStudyHint);
  }
  const int64_t version = database.query_integer("PRAGMA user_version");
  if (version == kStudySchemaVersion) return;
  const bool newer = version > kStudySchemaVersion;
  throw usage_error(fmt::format("'{}' has the {} format {}, but this version reads format {}", file,
                                newer ? "newer" : "older", version, kStudySchemaVersion),
                    newer ? "update HalfScope" : "run the sweep in another folder");
}

Error study_error(const sqlite::SqliteError& error, const std::filesystem::path& file) {
  switch (error.primary_code()) {
    case SQLITE_NOTADB:
      return usage_error(fmt::format("'{}' is not a study file", file.string()), kNoStudyHint);
    case SQLITE_ERROR:  // it is a database, but its tables are others
    case SQLITE_CORRUPT:
    case SQLITE_FORMAT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
      return Error(fmt::format("'{}' is damaged", file.string()),
                   "delete study.sqlite, then run `halfscope sweep STUDY --collect`: the run files "
                   "of the trials are enough");
    default:
      return error;
  }
}

}  // namespace halfscope
