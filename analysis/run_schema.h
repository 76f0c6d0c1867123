// SPDX-License-Identifier: MIT
// Schema of the run file (docs/reference/files.md) and coding of histograms, shared by the
// writers (recorder.cpp, proof_file.cpp) and the reader (run_view_open.cpp). Private to analysis.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/sqlite.h"
#include "core/observe/recording.h"

namespace halfscope {

inline constexpr int64_t kApplicationId = 0x48534350;  // "HSCP"
inline constexpr int64_t kSchemaVersion = 7;
/// The oldest version that can be read. In version 6, `evals` has no `auc` and no `mean_iou`.
inline constexpr int64_t kOldestSchemaVersion = 6;

/// Value of the meta key `evaluated` if evaluations used moving averages instead of the weights.
inline constexpr const char* kEvaluatedAverages = "averages";
/// Value of the meta key `accuracy` if that column of `evals` has mAP50s (RunInfo::detects).
inline constexpr const char* kAccuracyIsPrecision = "mAP50";

/// The CREATE TABLE statements; a test compares them with docs/reference/files.md.
extern const char* const kSchemaSql;

/// Returns the schema version of the file. Throws Error if `database` is not a run file, contains
/// no run yet, or has a version that this program cannot read; of kind `usage` if the user should
/// pass another file.
int64_t check_schema(sqlite::Database& database);

/// Replaces `blob` by LEB128 pairs (bin, count) of the bins that are not empty, ascending.
void encode_bins(std::span<const int64_t> counts, std::vector<uint8_t>& blob);

/// Decodes such a blob. Returns false if it is truncated, not ascending, or out of range.
bool decode_bins(std::span<const uint8_t> blob, std::span<int64_t> counts);

/// Throws Error unless every SiteInfo::order is the index of the site in its lane, because
/// statistics are addressed by it.
void check_site_order(const RunInfo& info);

}  // namespace halfscope
