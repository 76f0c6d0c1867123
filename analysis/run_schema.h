// SPDX-License-Identifier: MIT
// What the writers (recorder.cpp, proof_file.cpp) and the reader (run_view_open.cpp) of a run file
// share: the schema of docs/contracts.md, "Run file", and the coding of histograms. Private to
// analysis.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/sqlite.h"
#include "core/observe/recording.h"

namespace halfscope {

inline constexpr int64_t kApplicationId = 0x48534350;  // "HSCP"
inline constexpr int64_t kSchemaVersion = 6;

/// The meta key `evaluated` where evaluations took moving averages in place of the weights.
inline constexpr const char* kEvaluatedAverages = "averages";

/// The CREATE TABLE statements; a test compares them with docs/contracts.md.
extern const char* const kSchemaSql;

/// Throws Error if `database` is not a run file, holds no run yet, or has another schema version
/// than this program writes; of kind `usage` where the user should give another file.
void check_schema(sqlite::Database& database);

/// Replaces `blob` by LEB128 pairs (bin, count) of the bins that are not empty, ascending.
void encode_bins(std::span<const int64_t> counts, std::vector<uint8_t>& blob);

/// The inverse. False if the blob is cut off, not ascending, or a number is out of range.
bool decode_bins(std::span<const uint8_t> blob, std::span<int64_t> counts);

/// Statistics are addressed by SiteInfo::order, so it must be the index of the site in its lane.
void check_site_order(const RunInfo& info);

}  // namespace halfscope
