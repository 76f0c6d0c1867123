// SPDX-License-Identifier: MIT
#include "analysis/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cmath>
#include <limits>
#include <system_error>

#include "core/hash.h"

namespace halfscope::sqlite {
namespace {

/// Returns the file as a URI of percent-encoded bytes.
std::string immutable_uri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '/' || c == '.' || c == '-' || c == '_';
    if (plain) {
      uri += c;
    } else {
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return uri + "?immutable=1";
}

/// Returns ": No space left on device", or "" if the system reported no error.
std::string system_reason(sqlite3* handle) {
  const int number = handle == nullptr ? 0 : sqlite3_system_errno(handle);
  return number == 0 ? "" : ": " + std::generic_category().message(number);
}

SqliteError make_error(const std::string& file, sqlite3* handle, int code) {
  const auto runtime = [code](const std::string& what, std::string hint) {
    return SqliteError(code, what, std::move(hint), ErrorKind::runtime);
  };
  switch (code & 0xff) {
    case SQLITE_FULL:
      return runtime(fmt::format("cannot write '{}': the disk is full", file),
                     "free some space or write to another disk; the steps recorded so far are "
                     "kept");
    case SQLITE_READONLY:
      return runtime(fmt::format("cannot write '{}': the file or its folder is read-only", file),
                     "choose a folder that you can write to");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return runtime(fmt::format("'{}' is in use by another program", file),
                     "wait until the other program closes it, or stop that program");
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
    case SQLITE_PERM:
      return runtime(fmt::format("cannot open '{}'{}", file, system_reason(handle)),
                     "check the path and the permissions of the file and its folder");
    case SQLITE_NOTADB:
      return SqliteError(code, fmt::format("'{}' is not a run file", file),
                         "pass a run file written by `halfscope train`", ErrorKind::usage);
    case SQLITE_IOERR:
      return runtime(fmt::format("cannot read or write '{}'{}", file, system_reason(handle)),
                     "check the disk and its free space; the steps recorded so far are kept");
    case SQLITE_NOMEM:
      return runtime(fmt::format("not enough memory for '{}'", file), "");
    case SQLITE_CORRUPT:
    case SQLITE_FORMAT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
      return runtime(fmt::format("'{}' is damaged: {}", file, sqlite3_errstr(code)),
                     "restore a copy, or record the run again");
    default:
      return runtime(fmt::format("'{}': {}", file,
                                 handle == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle)),
                     "");
  }
}

}  // namespace

std::filesystem::path side_file(const std::filesystem::path& file, const char* suffix) {
  std::filesystem::path path = file;
  path += suffix;
  return path;
}

Database::Database(const std::filesystem::path& file, Access access) : file_(file) {
  // An absolute path, because names like ":memory:" have a special meaning in SQLite.
  const std::string path = std::filesystem::absolute(file).string();
  const bool immutable = access == Access::immutable;
  const int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                    (access == Access::read_write ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) |
                    (immutable ? SQLITE_OPEN_URI : 0);
  const std::string name = immutable ? immutable_uri(path) : path;
  const int code = sqlite3_open_v2(name.c_str(), &handle_, flags, nullptr);
  if (code != SQLITE_OK) {
    const SqliteError error = make_error(file_.string(), handle_, code);
    sqlite3_close_v2(handle_);
    throw error;
  }
  // A run file may come from anywhere: neither code in its schema nor sizes in it are trusted.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
}

Database::~Database() { sqlite3_close_v2(handle_); }

void Database::set_busy_timeout(int milliseconds) { sqlite3_busy_timeout(handle_, milliseconds); }

void Database::execute(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code);
}

int64_t Database::query_integer(const char* sql) {
  Statement statement(*this, sql);
  return statement.step() ? statement.integer(0) : 0;
}

std::string Database::query_text(const char* sql) {
  Statement statement(*this, sql);
  return statement.step() ? statement.text(0) : "";
}

void Database::fail(int code) const { throw make_error(file_.string(), handle_, code); }

void Database::fail_damaged(const std::string& detail) const {
  throw SqliteError(SQLITE_CORRUPT, fmt::format("'{}' is damaged: {}", file_.string(), detail),
                    "restore a copy, or record the run again", ErrorKind::runtime);
}

Statement::Statement(Database& database, const char* sql) : database_(database) {
  check(sqlite3_prepare_v3(database.handle(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement_,
                           nullptr));
}

Statement::~Statement() { sqlite3_finalize(statement_); }

void Statement::check(int code) const {
  if (code != SQLITE_OK) database_.fail(code);
}

void Statement::bind(int parameter, int64_t value) {
  check(sqlite3_bind_int64(statement_, parameter, value));
}

void Statement::bind(int parameter, double value) {
  check(sqlite3_bind_double(statement_, parameter, value));
}

void Statement::bind(int parameter, std::string_view text) {
  // A null pointer would bind NULL instead of the empty text.
  check(sqlite3_bind_text64(statement_, parameter, text.empty() ? "" : text.data(), text.size(),
                            SQLITE_TRANSIENT, SQLITE_UTF8));
}

void Statement::bind(int parameter, std::span<const uint8_t> blob) {
  const void* data = blob.empty() ? static_cast<const void*>("") : blob.data();
  check(sqlite3_bind_blob64(statement_, parameter, data, blob.size(), SQLITE_STATIC));
}

void Statement::bind_null(int parameter) { check(sqlite3_bind_null(statement_, parameter)); }

bool Statement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  database_.fail(code);
}

void Statement::run() {
  const int code = sqlite3_step(statement_);
  if (code != SQLITE_DONE) {
    // The error is created before the reset, which would clear its text.
    const SqliteError error = make_error(database_.file().string(), database_.handle(), code);
    sqlite3_reset(statement_);
    throw error;
  }
  check(sqlite3_reset(statement_));
}

void Statement::reset() { check(sqlite3_reset(statement_)); }

void Statement::require_type(int column, int type) const {
  if (sqlite3_column_type(statement_, column) == type) return;
  database_.fail_damaged(fmt::format("column {} contains a value of the wrong type",
                                     sqlite3_column_name(statement_, column)));
}

int64_t Statement::integer(int column) const {
  require_type(column, SQLITE_INTEGER);
  return sqlite3_column_int64(statement_, column);
}

double Statement::real(int column) const {
  if (is_null(column)) return std::numeric_limits<double>::quiet_NaN();
  require_type(column, SQLITE_FLOAT);
  return sqlite3_column_double(statement_, column);
}

std::string Statement::text(int column) const {
  require_type(column, SQLITE_TEXT);
  const unsigned char* text = sqlite3_column_text(statement_, column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
  if (text == nullptr) database_.fail(SQLITE_NOMEM);
  return std::string(reinterpret_cast<const char*>(text), size);
}

std::span<const uint8_t> Statement::blob(int column) const {
  require_type(column, SQLITE_BLOB);
  const auto* data = static_cast<const uint8_t*>(sqlite3_column_blob(statement_, column));
  return {data, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

uint64_t Statement::hash_row(uint64_t start) const {
  uint64_t hash = start;
  const auto add = [&hash](const void* bytes, size_t size) {
    hash = fnv1a({static_cast<const char*>(bytes), size}, hash);
  };
  const auto add_number = [&add](auto value) { add(&value, sizeof value); };
  for (int column = 0; column < sqlite3_column_count(statement_); ++column) {
    const int type = sqlite3_column_type(statement_, column);
    add_number(static_cast<uint8_t>(type));
    if (type == SQLITE_INTEGER) {
      add_number(int64_t{sqlite3_column_int64(statement_, column)});
    } else if (type == SQLITE_FLOAT) {
      add_number(sqlite3_column_double(statement_, column));
    } else if (type != SQLITE_NULL) {
      const void* const bytes = sqlite3_column_blob(statement_, column);
      const int64_t size = sqlite3_column_bytes(statement_, column);
      add_number(size);
      if (size > 0) add(bytes, static_cast<size_t>(size));
    }
  }
  return hash;
}

Transaction::Transaction(Database& database, Kind kind) : database_(database) {
  database.execute(kind == Kind::write ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::Transaction(Database& database, Statement& begin, Statement& commit)
    : database_(database), commit_(&commit) {
  begin.run();
}

Transaction::~Transaction() {
  // Some failures (disk full) have rolled back already, so this one may fail.
  if (open_) sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  if (commit_ != nullptr) {
    commit_->run();
  } else {
    database_.execute("COMMIT");
  }
  open_ = false;
}

}  // namespace halfscope::sqlite
