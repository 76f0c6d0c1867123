// SPDX-License-Identifier: MIT
// The flags of `run`: how they are declared and what they mean together.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/train_options.h"

namespace halfscope {

struct RunOptions {
  std::string network, data, normalize, labels, init;
  std::vector<std::string> inputs, dimensions, plans;
  std::optional<uint64_t> random_seed;
  int64_t batch = 0, limit = 0;
  std::string out, record;
  std::string config;  ///< read by with_run_file()
  bool print_config = false;
  /// Of lanes, recording and comparisons; the members of training are left at their defaults.
  TrainOptions shared;

  RunOptions() { shared.lanes = "float32"; }
};

/// Declares the flags; `options` must outlive the parsing.
void add_run_options(CLI::App& sub, RunOptions& options);

/// Throw Error (usage) unless there is a network, and one source of samples.
void check_network(const RunOptions& options);
void check_sources(const RunOptions& options);

/// The flags of lanes as `train` has them; --plan may be given several times here.
TrainOptions run_lanes(const RunOptions& options);

/// RunInfo::settings: the arguments of `run`, lanes and outputs left out.
std::vector<std::string> run_settings(const RunOptions& options, const RunInfo& info);

}  // namespace halfscope
