// SPDX-License-Identifier: MIT
// The part of SQLite's C API that run files need, as values that clean up after themselves.
// Private to analysis: only its .cpp files include this. Every failure becomes a SqliteError
// that names the file and says what to do.
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

/// An Error that still knows SQLite's extended result code, for callers with a second plan.
class SqliteError : public Error {
 public:
  SqliteError(int code, const std::string& what, std::string hint, ErrorKind kind)
      : Error(what, std::move(hint), kind), code_(code) {}
  int code() const noexcept { return code_; }
  /// The code without its extension: SQLITE_BUSY for SQLITE_BUSY_RECOVERY.
  int primary_code() const noexcept { return code_ & 0xff; }

 private:
  int code_;
};

enum class Access : uint8_t {
  read_only,   ///< never changes the file; in WAL mode it needs a writable folder or a -shm file
  immutable,   ///< plain reading of a file that nobody writes: no locks, no WAL
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

  /// How long a statement waits for another connection's lock.
  void set_busy_timeout(int milliseconds);
  void execute(const char* sql);
  /// First column of the first row, such as a PRAGMA's answer.
  int64_t query_integer(const char* sql);
  std::string query_text(const char* sql);

  /// Throws what the result code `code` of this connection's last call means.
  [[noreturn]] void fail(int code) const;
  /// Throws that the file is damaged; `detail` says where.
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

  /// Next row; false at the end.
  bool step();
  /// Runs a statement that has no rows and makes it ready for the next values.
  void run();
  /// Makes a statement ready whose rows have not all been asked for.
  void reset();

  // A value of another type than the schema says means a damaged file.
  int64_t integer(int column) const;
  double real(int column) const;  ///< NULL is NaN
  std::string text(int column) const;
  std::span<const uint8_t> blob(int column) const;  ///< until the next step()
  bool is_null(int column) const;

 private:
  void check(int code) const;
  void require_type(int column, int type) const;

  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
};

/// Rolls back unless committed.
class Transaction {
 public:
  enum class Kind : uint8_t { read, write };
  Transaction(Database& database, Kind kind);
  /// With statements that the caller has prepared, for when there are many transactions.
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

/// "run.hscope-wal" for suffix "-wal".
std::filesystem::path side_file(const std::filesystem::path& file, const char* suffix);

}  // namespace halfscope::sqlite
