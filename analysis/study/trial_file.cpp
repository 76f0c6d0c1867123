// SPDX-License-Identifier: MIT
#include "analysis/study/trial_file.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "analysis/run_schema.h"
#include "analysis/shared_file.h"
#include "analysis/study/trial_summary.h"
#include "core/error.h"
#include "core/hash.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using sqlite::Access;
using sqlite::Database;
using sqlite::Statement;
using sqlite::Transaction;

// In SQLite's file format.
constexpr std::string_view kFileStart("SQLite format 3\0", 16);
constexpr size_t kHeaderBytes = 100;
constexpr uintmax_t kLargestPage = 65536;  // written as 1

/// JSON has no infinities and NaNs.
json number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return nullptr;
  return value > 0.0 ? "inf" : "-inf";
}

double number_in(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return INFINITY;
  return value == "-inf" ? -INFINITY : std::nan("");
}

json curve_json(const std::vector<CurvePoint>& curve) {
  json flat = json::array();
  for (const CurvePoint& point : curve) {
    flat.push_back(number(static_cast<double>(point.step)));
    flat.push_back(number(static_cast<double>(point.loss)));
  }
  return flat;
}

std::vector<CurvePoint> curve_in(const json& flat) {
  std::vector<CurvePoint> curve;
  for (size_t i = 0; i + 1 < flat.size() && curve.size() < kMostCurvePoints; i += 2) {
    curve.push_back(
        {static_cast<float>(number_in(flat[i])), static_cast<float>(number_in(flat[i + 1]))});
  }
  return curve;
}

std::optional<TrialStatus> status_named(const std::string& name) {
  for (const TrialStatus each : {TrialStatus::waiting, TrialStatus::done, TrialStatus::failed}) {
    if (name == trial_status_name(each)) return each;
  }
  return std::nullopt;
}

/// Throws json::exception where the text has another form.
std::optional<TrialResult> result_in(const std::string& hash, const json& from) {
  if (from.at("hash") != hash) return std::nullopt;
  const std::optional<TrialStatus> status = status_named(from.at("status").get<std::string>());
  if (!status) return std::nullopt;
  TrialResult result;
  result.status = *status;
  result.error = from.at("error");
  result.steps = from.at("steps");
  result.skipped = from.at("skipped");
  result.loss = number_in(from.at("loss"));
  result.test_loss = number_in(from.at("test_loss"));
  result.accuracy = number_in(from.at("accuracy"));
  if (const json& bad = from.at("first_bad"); !bad.is_null()) {
    result.first_bad = {bad.at("step"), bad.at("layer"), bad.at("role")};
  }
  result.cause = from.at("cause");
  result.cause_layer = from.at("cause_layer");
  result.headline = from.at("headline");
  result.bits = number_in(from.at("bits"));
  result.curve = curve_in(from.at("curve"));
  result.seconds = number_in(from.at("seconds"));
  return result;
}

/// Returns whether a run file has as many bytes as its header says. Reads the header only.
bool is_whole(const fs::path& run) noexcept {
  try {
    if (!fs::is_regular_file(run)) return false;
    std::ifstream stream(run, std::ios::binary);
    std::array<char, kHeaderBytes> header{};
    if (!stream.read(header.data(), header.size()) ||
        !std::string_view(header.data(), header.size()).starts_with(kFileStart)) {
      return false;
    }
    const auto number = [&header](size_t at, size_t bytes) {
      uintmax_t value = 0;
      for (size_t i = 0; i < bytes; ++i) value = value << 8U | static_cast<uint8_t>(header[at + i]);
      return value;
    };
    const uintmax_t page = number(16, 2), pages = number(28, 4);
    return pages > 0 && fs::file_size(run) >= pages * (page == 1 ? kLargestPage : page);
  } catch (const std::exception&) {
    return false;
  }
}

/// Returns the checksum of all that a recorder and store_trial() have written. `diagnose --verify`
/// may add proofs later.
std::string checksum_of(Database& database) {
  std::vector<std::string> tables;
  uint64_t hash = fnv1a("");
  Statement schema(database, "SELECT tbl_name, type, name, rootpage, sql FROM sqlite_master");
  while (schema.step()) {
    hash = schema.hash_row(hash);
    if (schema.text(1) == "table") tables.push_back(schema.text(0));
  }
  for (const std::string& table : tables) {
    if (table == "proofs") continue;
    std::string sql = "SELECT * FROM \"" + table + "\"";
    if (table == "meta") sql += " WHERE key<>'checksum' AND key NOT LIKE 'trials.%'";
    hash = fnv1a(table, hash);
    Statement rows(database, sql.c_str());
    while (rows.step()) hash = rows.hash_row(hash);
  }
  return fmt::format("{:016x}", hash);
}

/// Returns the stored text; "" if there is none. Throws Error if the file is damaged.
std::string stored_text(const fs::path& run) {
  std::string text;
  sqlite::read_snapshot(run, [&text](Database& database) {
    Transaction transaction(database, Transaction::Kind::read);
    static_cast<void>(check_schema(database));
    text = database.query_text("SELECT value FROM meta WHERE key='trial'");
    // Runs that `train` has written have none.
    const std::string sum = database.query_text("SELECT value FROM meta WHERE key='checksum'");
    if (!sum.empty() && sum != checksum_of(database)) {
      database.fail_damaged("its contents differ from their checksum");
    }
    transaction.commit();
  });
  return text;
}

}  // namespace

std::string trial_json(const std::string& hash, const TrialResult& result) {
  json bad = nullptr;
  if (result.first_bad) {
    bad = {{"step", result.first_bad->step},
           {"layer", result.first_bad->layer},
           {"role", result.first_bad->role}};
  }
  const json all{{"hash", hash},
                 {"status", trial_status_name(result.status)},
                 {"error", result.error},
                 {"steps", result.steps},
                 {"skipped", result.skipped},
                 {"loss", number(result.loss)},
                 {"test_loss", number(result.test_loss)},
                 {"accuracy", number(result.accuracy)},
                 {"first_bad", bad},
                 {"cause", result.cause},
                 {"cause_layer", result.cause_layer},
                 {"headline", result.headline},
                 {"bits", number(result.bits)},
                 {"curve", curve_json(result.curve)},
                 {"seconds", number(result.seconds)}};
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<TrialResult> parse_trial(const std::string& hash, const std::string& text) {
  try {
    return result_in(hash, json::parse(text));
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

void store_trial(const fs::path& run, const std::string& hash, const TrialResult& result) {
  Database database(run, Access::read_write);
  database.execute("PRAGMA journal_mode=MEMORY");
  database.execute("PRAGMA synchronous=OFF");
  Transaction transaction(database, Transaction::Kind::write);
  Statement insert(database, "INSERT OR REPLACE INTO meta VALUES(?1,?2)");
  const auto store = [&insert](std::string_view key, const std::string& value) {
    insert.bind(1, key);
    insert.bind(2, std::string_view(value));
    insert.run();
  };
  store("trial", trial_json(hash, result));
  store("checksum", checksum_of(database));
  transaction.commit();
}

std::optional<TrialResult> stored_trial(const fs::path& run, const std::string& hash) {
  if (!is_whole(run)) return std::nullopt;
  try {
    if (const std::string text = stored_text(run); !text.empty()) return parse_trial(hash, text);
    TrialResult result = summarize_trial(RunView::open(run));
    if (result.status != TrialStatus::done) return std::nullopt;
    return result;
  } catch (const Error&) {
    return std::nullopt;  // damaged by a power failure, say, or in a copy
  }
}

}  // namespace halfscope
