// SPDX-License-Identifier: MIT
#include "analysis/run_schema.h"

#include <fmt/format.h>

#include "core/error.h"

namespace halfscope {
namespace {

void append_leb128(uint64_t value, std::vector<uint8_t>& blob) {
  while (value >= 0x80) {
    blob.push_back(static_cast<uint8_t>(value | 0x80));
    value >>= 7;
  }
  blob.push_back(static_cast<uint8_t>(value));
}

/// Takes one number off the front; false if it is cut off or does not fit into 63 bits.
bool read_leb128(std::span<const uint8_t>& blob, int64_t& value) {
  value = 0;
  for (int shift = 0; shift < 63; shift += 7) {
    if (blob.empty()) return false;
    const uint8_t byte = blob.front();
    blob = blob.subspan(1);
    value |= static_cast<int64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

}  // namespace

const char* const kSchemaSql = R"sql(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE lanes(lane INTEGER PRIMARY KEY, name TEXT NOT NULL, backend TEXT NOT NULL,
  plan TEXT NOT NULL);
CREATE TABLE layers(lane INTEGER NOT NULL, layer INTEGER NOT NULL, path TEXT NOT NULL,
  op TEXT NOT NULL, inputs TEXT NOT NULL, read TEXT NOT NULL, write TEXT NOT NULL,
  follows INTEGER NOT NULL, parameters INTEGER NOT NULL, PRIMARY KEY(lane, layer)) WITHOUT ROWID;
CREATE TABLE sites(lane INTEGER NOT NULL, site INTEGER NOT NULL, path TEXT NOT NULL,
  tensor TEXT NOT NULL, role TEXT NOT NULL, phase TEXT NOT NULL, op TEXT NOT NULL,
  format TEXT NOT NULL, shape TEXT NOT NULL, PRIMARY KEY(lane, site)) WITHOUT ROWID;
CREATE TABLE steps(step INTEGER NOT NULL, lane INTEGER NOT NULL, loss REAL, loss_scale REAL,
  skipped INTEGER NOT NULL, grad_norm REAL, accuracy REAL, ms REAL, first_bad INTEGER,
  PRIMARY KEY(step, lane)) WITHOUT ROWID;
CREATE TABLE evals(step INTEGER NOT NULL, lane INTEGER NOT NULL, loss REAL, accuracy REAL,
  PRIMARY KEY(step, lane)) WITHOUT ROWID;
CREATE TABLE stats(step INTEGER NOT NULL, lane INTEGER NOT NULL, site INTEGER NOT NULL,
  step_count INTEGER NOT NULL, n INTEGER NOT NULL, zero INTEGER NOT NULL,
  pos_inf INTEGER NOT NULL, neg_inf INTEGER NOT NULL, nan INTEGER NOT NULL,
  overflow INTEGER NOT NULL, underflow INTEGER NOT NULL, subnormal INTEGER NOT NULL,
  lost INTEGER NOT NULL, max_abs REAL NOT NULL, min_abs REAL, sum REAL NOT NULL,
  sum_sq REAL NOT NULL, exponents BLOB NOT NULL, PRIMARY KEY(step, lane, site)) WITHOUT ROWID;
)sql";

void encode_exponents(const ExponentCounts& counts, std::vector<uint8_t>& blob) {
  blob.clear();
  for (size_t bin = 0; bin < counts.size(); ++bin) {
    if (counts[bin] == 0) continue;
    append_leb128(bin, blob);
    append_leb128(static_cast<uint64_t>(counts[bin]), blob);
  }
}

bool decode_exponents(std::span<const uint8_t> blob, ExponentCounts& counts) {
  counts.fill(0);
  int64_t next_bin = 0;
  while (!blob.empty()) {
    int64_t bin = 0;
    int64_t count = 0;
    if (!read_leb128(blob, bin) || !read_leb128(blob, count)) return false;
    if (bin < next_bin || bin >= kExponentBins || count == 0) return false;
    counts[static_cast<size_t>(bin)] = count;
    next_bin = bin + 1;
  }
  return true;
}

void check_site_order(const RunInfo& info) {
  for (const LaneInfo& lane : info.lanes) {
    for (size_t i = 0; i < lane.sites.size(); ++i) {
      if (lane.sites[i].order == static_cast<int>(i)) continue;
      throw Error(fmt::format("site {} of lane {} has order {}, but stands at position {}",
                              lane.sites[i].name(), lane.name, lane.sites[i].order, i));
    }
  }
}

}  // namespace halfscope
