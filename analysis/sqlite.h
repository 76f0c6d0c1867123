// SPDX-License-Identifier: MIT
// RAII wrappers for the part of SQLite's C API that run files need. Private to analysis: only its
// .cpp files include this. Every failure becomes a SqliteError that names the file and says what to
// do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace halfscope::sqlite {

/// An Error with SQLite's extended result code, for callers that can handle some of them.
class SqliteError : public Error {
 public:
  SqliteError(int code, const std::string& what, std::string hint, ErrorKind kind)
      : Error(what, std::move(hint), kind), code_(code) {}
  int code() const noexcept { return code_; }
  /// Returns the code without its extension: SQLITE_BUSY for SQLITE_BUSY_RECOVERY.
  int primary_code() const noexcept { return code_ & 0xff; }

 private:
  int code_;
};

enum class Access : uint8_t {
  read_only,   ///< never changes the file; in WAL mode it needs a writable folder or a -shm file
  immutable,   ///< reads a file that nobody writes: no locks, no WAL
  read_write,  ///< the file must exist
};

class Database {
 public:
  Database(const std::filesystem::path& file, Access access);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::filesystem::path& file() const noexcept { return file_; }
  sqlite3* handle() const noexcept { return handle_; }

  /// Sets how long a statement waits for another connection's lock.
  void set_busy_timeout(int milliseconds);
  void execute(const char* sql);
  /// Returns the first column of the first row, for example of a PRAGMA.
  int64_t query_integer(const char* sql);
  std::string query_text(const char* sql);

  /// Throws the SqliteError for the result code of this connection's last call.
  [[noreturn]] void fail(int code) const;
  /// Throws a SqliteError that the file is damaged. `detail` says where.
  [[noreturn]] void fail_damaged(const std::string& detail) const;

 private:
  std::filesystem::path file_;
  sqlite3* handle_ = nullptr;
};

/// A prepared statement. Parameters count from 1, columns from 0, as in SQLite.
class Statement {
 public:
  Statement(Database& database, const char* sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void bind(int parameter, int64_t value);
  void bind(int parameter, double value);  ///< NaN becomes NULL
  void bind(int parameter, std::string_view text);
  void bind(int parameter, std::span<const uint8_t> blob);  ///< must live until run()
  void bind_null(int parameter);

  /// Goes to the next row. Returns false at the end.
  bool step();
  /// Runs a statement without rows and resets it for the next values.
  void run();
  /// Resets a statement before all of its rows were read.
  void reset();

  // A value of another type than the schema says means a damaged file.
  int64_t integer(int column) const;
  double real(int column) const;  ///< NULL is NaN
  std::string text(int column) const;
  std::span<const uint8_t> blob(int column) const;  ///< until the next step()
  bool is_null(int column) const;
  /// Returns `start` extended by the types and values of the row: the hash of everything so far.
  uint64_t hash_row(uint64_t start) const;

 private:
  void check(int code) const;
  void require_type(int column, int type) const;

  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
};

/// Holds a transaction, which is rolled back unless committed.
class Transaction {
 public:
  enum class Kind : uint8_t { read, write };
  Transaction(Database& database, Kind kind);
  /// Uses prepared statements of the caller, for many transactions.
  Transaction(Database& database, Statement& begin, Statement& commit);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  Statement* commit_ = nullptr;
  bool open_ = true;
};

/// Returns "run.hscope-wal" for suffix "-wal".
std::filesystem::path side_file(const std::filesystem::path& file, const char* suffix);

}  // namespace halfscope::sqlite
