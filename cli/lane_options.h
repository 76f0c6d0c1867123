// SPDX-License-Identifier: MIT
// The flags of lanes and of their comparison, which `train` and `run` share, and what they mean.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/train_options.h"

namespace halfscope {

inline constexpr uint64_t kMostCounted = 1'000'000'000'000'000;  ///< steps, samples

/// --lanes, --backend, --fast, --kernels, --fp32, --accumulate.
void add_lane_options(CLI::App& sub, TrainOptions& options);
/// --errors-every, --compare, --no-errors; `steps` is what is counted.
void add_comparison_options(CLI::App& sub, TrainOptions& options, const std::string& steps);
/// Both, and --every, as `run` has them.
void add_run_lane_options(CLI::App& sub, TrainOptions& options);

/// Whether a lane's plan is given as its JSON in place of a name or a file.
bool is_inline_plan(const std::string& plan);

/// The plans of the lanes: names, files or JSON. Throws Error (usage), as the next two do.
std::vector<std::string> lane_names(const TrainOptions& options);
std::vector<LaneConfig> lanes_of(const TrainOptions& options);
ErrorSampling error_sampling(const TrainOptions& options);

}  // namespace halfscope
