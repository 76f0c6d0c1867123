// SPDX-License-Identifier: MIT
// Writes result files so that a crash or a full disk leaves either the old file or the whole new
// one, and so that nothing is replaced without the user's consent. Reports and exports use it; the
// recorder shares the check.
#pragma once

#include <filesystem>
#include <string_view>

namespace halfscope {

/// Throws Error if `file` cannot be the name of a new file: it exists and `force` is false, it is a
/// folder, or its folder is missing. Call it before the work is done.
void check_output_file(const std::filesystem::path& file, bool force);

/// Writes `text` to `file` (a neighbouring temporary file, then a rename). Devices and pipes are
/// written directly; "-" is a file name like any other.
void write_output_file(const std::filesystem::path& file, std::string_view text, bool force);

}  // namespace halfscope
