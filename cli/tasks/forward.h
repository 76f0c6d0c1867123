// SPDX-License-Identifier: MIT
// What every command that runs networks forward does first.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/args/network.h"
#include "cli/args/settings.h"
#include "core/data/dataset.h"
#include "core/graph/model.h"
#include "core/train/runner.h"

namespace halfscope {

/// The samples, and the labels that go with them.
struct Samples {
  Dataset data;
  std::vector<int32_t> labels;
};

/// What is run, and on what.
struct Work {
  Model network;
  Samples samples;
  NetworkOptions wanted;
};

/// Loads the network and the samples that the settings name. Throws Error.
Work read_work(const Settings& settings);

/// Everything but the initial weights and the labels, which are read later. Throws Error (usage).
RunnerConfig runner_config(const Settings& settings);

}  // namespace halfscope
