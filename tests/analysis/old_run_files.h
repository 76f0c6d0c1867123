// SPDX-License-Identifier: MIT
// Run files of older versions, made with the SQL of their time.
#pragma once

#include <filesystem>

#include "analysis/run_view.h"

namespace halfscope::test {

/// As HalfScope 0.1 wrote them.
void write_version_1(const std::filesystem::path& file, const RunView& run);
/// What a version 1 file can hold of the sample run: two lanes, six steps.
RunView sample_of_version_1();
/// The sample run of three steps as these versions had it.
void write_version_2(const std::filesystem::path& file);
void write_version_3(const std::filesystem::path& file);

}  // namespace halfscope::test
