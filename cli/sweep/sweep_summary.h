// SPDX-License-Identifier: MIT
// The text that `sweep` prints at its end: a table of plans, and the same as JSON.
#pragma once

#include <optional>
#include <string>

#include "analysis/study/study_view.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {

/// Returns the table, and a line on trials that are missing.
std::string sweep_text(const StudyView& study, const std::string& folder, size_t width);

/// Returns the JSON halfscope.sweep/1.
Json sweep_json(const StudyView& study, const std::string& folder);

/// Returns the error that ends a sweep in which trials could not be trained; nothing if all could.
std::optional<Error> sweep_error(const StudyView& study, const std::string& folder);

}  // namespace halfscope
