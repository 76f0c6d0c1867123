// SPDX-License-Identifier: MIT
// libFuzzer target: run files. The input edits a small valid one: odd first bytes overwrite bytes
// of the file, even ones write values into cells of its tables, which SQLite accepts. Then the file
// is opened, and its tables or a form of its report are written. The JSON must be JSON.
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "analysis/export/csv.h"
#include "analysis/recorder.h"
#include "analysis/report/report.h"
#include "analysis/run_view.h"
#include "core/error.h"
#include "tests/analysis/sample_run.h"
#include "tests/fuzz/scratch.h"

namespace {

using namespace halfscope;  // NOLINT: one target
using Bytes = std::span<const uint8_t>;

/// A cell that can be edited.
struct Column {
  std::string table, name;
  int64_t rows;
};

template <class Visit>
void each_row(sqlite3* database, const std::string& sql, const Visit& visit) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) return;
  while (sqlite3_step(statement) == SQLITE_ROW) visit(statement);
  sqlite3_finalize(statement);
}

std::string text_at(sqlite3_stmt* row, int column) {
  return reinterpret_cast<const char*>(sqlite3_column_text(row, column));
}

const std::vector<uint8_t>& valid_run() {
  static const std::vector<uint8_t> bytes = [] {
    const std::filesystem::path file = fuzz::scratch_folder() / "valid.hscope";
    {
      Recorder recorder(file);
      test::send_run(recorder, test::sample_info(), 5);
    }
    const std::string text = test::read_text(file);
    return std::vector<uint8_t>(text.begin(), text.end());
  }();
  return bytes;
}

const std::vector<Column>& columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> found;
    const std::string file = fuzz::scratch_file("columns.hscope", valid_run()).string();
    sqlite3* database = nullptr;
    if (sqlite3_open(file.c_str(), &database) != SQLITE_OK) std::abort();
    each_row(database,
             "SELECT m.name, c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c "
             "WHERE m.type = 'table' ORDER BY 1, 2",
             [&](sqlite3_stmt* row) {
               found.push_back({text_at(row, 0), text_at(row, 1), 0});
             });
    for (Column& column : found) {
      each_row(database, "SELECT count(*) FROM " + column.table,
               [&](sqlite3_stmt* row) { column.rows = sqlite3_column_int64(row, 0); });
    }
    sqlite3_close(database);
    if (found.size() < 50) std::abort();
    return found;
  }();
  return all;
}

template <class T>
T take(Bytes& data) {
  T value{};
  const size_t count = std::min(sizeof(T), data.size());
  std::memcpy(&value, data.data(), count);
  data = data.subspan(count);
  return value;
}

/// Writes one value, or deletes or repeats a row.
void edit_cell(sqlite3* database, Bytes& data) {
  const Column& column = columns()[take<uint8_t>(data) % columns().size()];
  const int64_t row = column.rows > 0 ? take<uint8_t>(data) % column.rows : 0;
  const uint8_t kind = take<uint8_t>(data) % 6;
  // Tables without row numbers: a row is found by the value of its cell.
  const std::string where = " WHERE " + column.name + " IS (SELECT " + column.name + " FROM " +
                            column.table + " LIMIT 1 OFFSET " + std::to_string(row) + ")";
  const std::string sql =
      kind == 5 ? "DELETE FROM " + column.table + where
                : "UPDATE OR REPLACE " + column.table + " SET " + column.name + " = ?1" + where;
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) return;
  std::string text;
  if (kind == 0) sqlite3_bind_int64(statement, 1, static_cast<int8_t>(take<uint8_t>(data)));
  if (kind == 1) sqlite3_bind_int64(statement, 1, take<int64_t>(data));
  if (kind == 2) sqlite3_bind_double(statement, 1, take<double>(data));
  if (kind == 3 || kind == 4) {
    const size_t length = std::min<size_t>(take<uint8_t>(data), data.size());
    text.assign(reinterpret_cast<const char*>(data.data()), length);
    data = data.subspan(length);
    const auto size = static_cast<int>(length);
    if (kind == 3) sqlite3_bind_text(statement, 1, text.data(), size, SQLITE_STATIC);
    if (kind == 4) sqlite3_bind_blob(statement, 1, text.data(), size, SQLITE_STATIC);
  }
  sqlite3_step(statement);
  sqlite3_finalize(statement);
}

std::filesystem::path edited_run(Bytes data) {
  std::vector<uint8_t> bytes = valid_run();
  if (take<uint8_t>(data) % 2 != 0) {
    while (data.size() > 2) {
      const size_t at = take<uint16_t>(data);
      bytes[at % bytes.size()] = take<uint8_t>(data);
    }
    return fuzz::scratch_file("run.hscope", bytes);
  }
  std::filesystem::path file = fuzz::scratch_file("run.hscope", bytes);
  sqlite3* database = nullptr;
  if (sqlite3_open(file.c_str(), &database) != SQLITE_OK) std::abort();
  sqlite3_exec(database, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN", nullptr, nullptr,
               nullptr);
  constexpr int kMostEdits = 8;
  for (int i = 0; i < kMostEdits && !data.empty(); ++i) edit_cell(database, data);
  sqlite3_exec(database, "COMMIT", nullptr, nullptr, nullptr);
  sqlite3_close(database);
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    const RunView run = RunView::open(edited_run({data, size}));
    const int form = data[0] / 2 % 4;  // all of them at once would take too long
    if (form == 0) {
      for (const auto write :
           {write_steps_csv, write_stats_csv, write_sums_csv, write_kernels_csv}) {
        std::ostringstream text;
        write(run, text);
      }
      return 0;
    }
    const Report report = make_report(run);
    if (form == 1 && !nlohmann::json::accept(report_json(report))) std::abort();
    if (form == 2) report_html(report);
    if (form == 3) {
      report_markdown(report);
      report_markdown_summary(report);
      report_csv(report);
    }
  } catch (const Error&) {  // refused, as it may be
  }
  return 0;
}
