// SPDX-License-Identifier: MIT
// What the writer (recorder.cpp) and the reader (run_view_open.cpp) of a run file share: the
// schema of docs/contracts.md, "Run file", and the coding of the histogram. Private to analysis.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/numeric/tensor_stats.h"
#include "core/train/recording.h"

namespace halfscope {

inline constexpr int64_t kApplicationId = 0x48534350;  // "HSCP"
inline constexpr int64_t kSchemaVersion = 1;

/// The CREATE TABLE statements; a test compares them with docs/contracts.md.
extern const char* const kSchemaSql;

using ExponentCounts = std::array<int64_t, kExponentBins>;

/// Replaces `blob` by LEB128 pairs (exponent + 149, count) of the non-empty bins, ascending.
void encode_exponents(const ExponentCounts& counts, std::vector<uint8_t>& blob);

/// The inverse. False if the blob is cut off, not ascending, or a number is out of range.
bool decode_exponents(std::span<const uint8_t> blob, ExponentCounts& counts);

/// Statistics are addressed by SiteInfo::order, so it must be the index of the site in its lane.
void check_site_order(const RunInfo& info);

}  // namespace halfscope
