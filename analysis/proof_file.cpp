// SPDX-License-Identifier: MIT
#include "analysis/proof_file.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <nlohmann/json.hpp>

#include "analysis/live_writer.h"
#include "analysis/run_schema.h"
#include "analysis/sqlite.h"
#include "analysis/step_rows.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using sqlite::Access;
using sqlite::Database;
using sqlite::SqliteError;
using sqlite::Statement;
using sqlite::Transaction;

constexpr int kBusyMilliseconds = 5000;  // readers hold a run file for milliseconds

void check_lane(Database& database, int lane) {
  Statement lanes(database, "SELECT count(*) FROM lanes WHERE lane=?1");
  lanes.bind(1, static_cast<int64_t>(lane));
  if (!lanes.step() || lanes.integer(0) == 0) {
    throw usage_error(fmt::format("'{}' has no lane {}", database.file().string(), lane), "");
  }
}

/// Opens a finished run file and does `work` in one transaction.
template <class Work>
void change_run(const fs::path& run, const Work& work) {
  if (has_live_writer(run)) {
    throw usage_error(fmt::format("'{}' is still being recorded", run.string()),
                      "wait for the end of the run");
  }
  Database database(run, Access::read_write);
  database.set_busy_timeout(kBusyMilliseconds);
  try {
    static_cast<void>(check_schema(database));
    Transaction transaction(database, Transaction::Kind::write);
    work(database);
    transaction.commit();
  } catch (const SqliteError& error) {
    // It is a run file, so anything that SQLite rejects here is damage.
    if (error.primary_code() != SQLITE_ERROR) throw;
    database.fail_damaged("its tables are not those of a run file");
  }
}

}  // namespace

void store_proof(const fs::path& run, int lane, const std::string& json) {
  if (!nlohmann::json::accept(json)) throw Error("a proof must be JSON");
  change_run(run, [&](Database& database) {
    check_lane(database, lane);
    Statement insert(database, "INSERT OR REPLACE INTO proofs VALUES(?1,?2)");
    insert.bind(1, static_cast<int64_t>(lane));
    insert.bind(2, json);
    insert.run();
  });
}

void store_trials(const fs::path& run, int lane, const std::string& json) {
  change_run(run, [&](Database& database) {
    check_lane(database, lane);
    Statement insert(database, "INSERT OR REPLACE INTO meta VALUES(?1,?2)");
    insert.bind(1, fmt::format("trials.{}", lane));
    insert.bind(2, json);
    insert.run();
  });
}

bool proof_clears(const std::string& json) {
  if (json.empty()) return false;
  const nlohmann::json proof = nlohmann::json::parse(json, nullptr, false);
  if (!proof.is_object() || !proof.contains("trials") || !proof["trials"].is_array()) return false;
  for (const nlohmann::json& trial : proof["trials"]) {
    if (!trial.is_object() || trial.value("kind", nlohmann::json()) != "original") continue;
    return trial.value("passes", nlohmann::json()) == true;
  }
  return false;
}

void store_deviations(const fs::path& run,
                      const std::vector<std::pair<int, Deviation>>& deviations) {
  change_run(run, [&](Database& database) {
    Statement insert(database, kInsertDeviation);
    for (const auto& [lane, deviation] : deviations) {
      check_lane(database, lane);
      write_deviation(insert, lane, deviation);
    }
  });
}

}  // namespace halfscope
