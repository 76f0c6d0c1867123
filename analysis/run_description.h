// SPDX-License-Identifier: MIT
// Writes what a run file says of its run before the first step: settings, lanes, layers and sites.
// Private to analysis.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "analysis/sqlite.h"
#include "core/observe/recording.h"

namespace halfscope {

/// Returns JSON text, whatever bytes the strings contain.
std::string to_text(const nlohmann::json& value);

/// Write the rows of the table `meta`, and of one lane's tables, within a transaction of the
/// caller.
void write_meta(sqlite::Database& database, const RunInfo& run);
void write_lane(sqlite::Database& database, int64_t index, const LaneInfo& lane);

}  // namespace halfscope
