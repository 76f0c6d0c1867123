// SPDX-License-Identifier: MIT
// A run as a folder for TensorBoard (docs/reference/tensorboard.md): a folder per lane with an
// event file.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "analysis/run_view.h"

namespace halfscope {

/// Name of the event file of a lane.
inline constexpr const char* kEventFileName = "events.out.tfevents.0.halfscope";

/// Most histograms of a tensor; neighbouring windows are merged.
inline constexpr size_t kMostHistograms = 64;

/// Returns the folder of each lane: its name with characters other than letters, digits and
/// "._+=,-" as "_", and with a number if another lane has that name.
std::vector<std::string> tensorboard_folders(const RunView& run);

/// Throws Error (usage) if `folder` cannot be the name of a new folder: something with that name
/// exists that is not an empty folder, unless it is a folder and `force` is true; or the folder
/// that should contain it is missing.
void check_tensorboard_folder(const std::filesystem::path& folder, bool force);

/// Writes the event files. `findings` has a text in Markdown for each lane. Throws Error.
void write_tensorboard(const RunView& run, std::span<const std::string> findings,
                       const std::filesystem::path& folder);

}  // namespace halfscope
