// SPDX-License-Identifier: MIT
// Cases as files: folders with net.onnx, data.npz and case.json, read as `halfscope train` and
// `halfscope run` read them.
#pragma once

#include <filesystem>
#include <vector>

#include "core/models/zoo/zoo.h"

namespace halfscope::zoo {

/// The cases of a folder, one for each of its folders that has a case.json, by name. case.json:
/// kind ("run" or "train"), lanes and expert (a preset or a file of the folder plans, then flags),
/// and of trainings loss, flags and scale; healthy.
std::vector<Case> file_cases(const std::filesystem::path& folder);

}  // namespace halfscope::zoo
