// SPDX-License-Identifier: MIT
#include "analysis/run_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "analysis/packed_stats.h"
#include "core/error.h"

namespace halfscope {
namespace {

Error not_begun(const sqlite::Database& database) {
  return Error(fmt::format("'{}' does not contain a run yet", database.file().string()),
               "if the run has just started, try again in a moment");
}

}  // namespace

const char* const kSchemaSql = R"sql(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE lanes(lane INTEGER PRIMARY KEY, name TEXT NOT NULL, backend TEXT NOT NULL,
  plan TEXT NOT NULL, loss_scale TEXT NOT NULL);
CREATE TABLE layers(lane INTEGER NOT NULL, layer INTEGER NOT NULL, path TEXT NOT NULL,
  op TEXT NOT NULL, inputs TEXT NOT NULL, read TEXT NOT NULL, write TEXT NOT NULL,
  follows INTEGER NOT NULL, parameters INTEGER NOT NULL, PRIMARY KEY(lane, layer)) WITHOUT ROWID;
CREATE TABLE sites(lane INTEGER NOT NULL, site INTEGER NOT NULL, path TEXT NOT NULL,
  tensor TEXT NOT NULL, role TEXT NOT NULL, phase TEXT NOT NULL, op TEXT NOT NULL,
  format TEXT NOT NULL, shape TEXT NOT NULL, scale TEXT NOT NULL,
  PRIMARY KEY(lane, site)) WITHOUT ROWID;
CREATE TABLE steps(step INTEGER NOT NULL, lane INTEGER NOT NULL, loss REAL, loss_scale REAL,
  skipped INTEGER NOT NULL, grad_norm REAL, accuracy REAL, ms REAL, first_bad INTEGER,
  learning_rate REAL, PRIMARY KEY(step, lane)) WITHOUT ROWID;
CREATE TABLE evals(step INTEGER NOT NULL, lane INTEGER NOT NULL, loss REAL, accuracy REAL,
  auc REAL, mean_iou REAL, PRIMARY KEY(step, lane)) WITHOUT ROWID;
CREATE TABLE windows(step INTEGER PRIMARY KEY, step_count INTEGER NOT NULL, stats BLOB NOT NULL);
CREATE TABLE errors(step INTEGER NOT NULL, lane INTEGER NOT NULL, site INTEGER NOT NULL,
  other_lane INTEGER NOT NULL, other_site INTEGER NOT NULL, n INTEGER NOT NULL,
  differing INTEGER NOT NULL, sign_flips INTEGER NOT NULL, total REAL, max_ulps REAL,
  local_fp32 REAL, local_fp64 REAL, inherited REAL, ulps BLOB NOT NULL,
  PRIMARY KEY(step, lane, site, other_lane)) WITHOUT ROWID;
CREATE TABLE sums(step INTEGER NOT NULL, lane INTEGER NOT NULL, site INTEGER NOT NULL,
  layer TEXT NOT NULL, accumulation TEXT NOT NULL, sums INTEGER NOT NULL, products INTEGER NOT NULL,
  swamped INTEGER NOT NULL, largest REAL NOT NULL, overflowed INTEGER NOT NULL,
  first_overflow INTEGER, PRIMARY KEY(step, lane, site)) WITHOUT ROWID;
CREATE TABLE kernels(step INTEGER NOT NULL, lane INTEGER NOT NULL, site INTEGER NOT NULL,
  n INTEGER NOT NULL, differing INTEGER NOT NULL, max_ulps REAL NOT NULL, worst INTEGER,
  beyond INTEGER, kernel TEXT NOT NULL, sum_order TEXT NOT NULL, sampled INTEGER NOT NULL,
  explained INTEGER NOT NULL, unexplained TEXT NOT NULL,
  PRIMARY KEY(step, lane, site)) WITHOUT ROWID;
CREATE TABLE deviations(step INTEGER NOT NULL, lane INTEGER NOT NULL, kind TEXT NOT NULL,
  name TEXT NOT NULL, n INTEGER NOT NULL, broken INTEGER NOT NULL, error REAL, worst REAL,
  ratio REAL, spread REAL, worst_spread REAL, ratio_spread REAL, worst_channel REAL,
  worst_channel_spread REAL, differences REAL, differences_spread REAL, noise REAL,
  channel_axis INTEGER, channel INTEGER,
  PRIMARY KEY(step, lane, kind, name)) WITHOUT ROWID;
CREATE TABLE reductions(step INTEGER NOT NULL, lane INTEGER NOT NULL, site INTEGER NOT NULL,
  ranks INTEGER NOT NULL, n INTEGER NOT NULL, broken INTEGER NOT NULL, error REAL NOT NULL,
  stored REAL NOT NULL, additions INTEGER NOT NULL, swamped INTEGER NOT NULL,
  PRIMARY KEY(step, lane, site, ranks)) WITHOUT ROWID;
CREATE TABLE ranks(step INTEGER NOT NULL, lane INTEGER NOT NULL, ranks INTEGER NOT NULL,
  skipped INTEGER NOT NULL, distance REAL NOT NULL, PRIMARY KEY(step, lane)) WITHOUT ROWID;
CREATE TABLE proofs(lane INTEGER PRIMARY KEY, proof TEXT NOT NULL);
)sql";

int64_t check_schema(sqlite::Database& database) {
  const int64_t application_id = database.query_integer("PRAGMA application_id");
  const int64_t version = database.query_integer("PRAGMA user_version");
  const std::string file = database.file().string();
  if (application_id == 0 && version == 0 &&
      database.query_integer("SELECT count(*) FROM sqlite_schema") == 0) {
    throw not_begun(database);
  }
  if (application_id != kApplicationId) {
    throw usage_error(fmt::format("'{}' is not a run file", file),
                      "pass a run file written by `halfscope train`");
  }
  if (version > kSchemaVersion) {
    throw usage_error(fmt::format("'{}' has the newer format {}, but this version reads {} to {}",
                                  file, version, kOldestSchemaVersion, kSchemaVersion),
                      "update HalfScope");
  }
  if (version < 1) database.fail_damaged("its schema version is missing");
  if (version < kOldestSchemaVersion) {
    throw usage_error(fmt::format("'{}' has the older format {}, but this version reads {} to {}",
                                  file, version, kOldestSchemaVersion, kSchemaVersion),
                      "record the run again");
  }
  if (database.query_integer("SELECT count(*) FROM meta") == 0) throw not_begun(database);
  return version;
}

void encode_bins(std::span<const int64_t> counts, std::vector<uint8_t>& blob) {
  blob.clear();
  for (size_t bin = 0; bin < counts.size(); ++bin) {
    if (counts[bin] == 0) continue;
    append_leb128(bin, blob);
    append_leb128(static_cast<uint64_t>(counts[bin]), blob);
  }
}

bool decode_bins(std::span<const uint8_t> blob, std::span<int64_t> counts) {
  std::fill(counts.begin(), counts.end(), 0);
  int64_t next_bin = 0;
  while (!blob.empty()) {
    int64_t bin = 0;
    int64_t count = 0;
    if (!take_leb128(blob, bin) || !take_leb128(blob, count)) return false;
    if (bin < next_bin || bin >= static_cast<int64_t>(counts.size()) || count == 0) return false;
    counts[static_cast<size_t>(bin)] = count;
    next_bin = bin + 1;
  }
  return true;
}

void check_site_order(const RunInfo& info) {
  for (const LaneInfo& lane : info.lanes) {
    for (size_t i = 0; i < lane.sites.size(); ++i) {
      if (lane.sites[i].order == static_cast<int>(i)) continue;
      throw Error(fmt::format("site {} of lane {} has order {}, but is at position {}",
                              lane.sites[i].name(), lane.name, lane.sites[i].order, i));
    }
  }
}

}  // namespace halfscope
