// SPDX-License-Identifier: MIT
// Preparation of a forward run, for every command that runs networks forward.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/args/network.h"
#include "cli/args/settings.h"
#include "cli/tasks/run_input.h"
#include "core/data/dataset.h"
#include "core/graph/model.h"
#include "core/train/runner.h"

namespace halfscope {

/// Samples and their labels.
struct Samples {
  Dataset data;
  SampleLabels labels;
};

/// The network and its samples.
struct Work {
  Model network;
  Samples samples;
  NetworkOptions wanted;
};

/// Whether a data set's training part stays in memory.
enum class TrainPart : uint8_t { drop, keep };

/// Loads the network and the samples that the settings name. Throws Error.
Work read_work(const Settings& settings, TrainPart train = TrainPart::drop);

/// Returns a note for standard error that weights are random, if the network has none and --init is
/// not given: then accuracies mean nothing. "" otherwise, for networks of the zoo, which choose
/// their weights, and if quiet.
std::string random_weights_note(const Settings& settings, const Model& network);

/// Everything but the initial weights and the labels, which are read later. Throws Error (usage).
RunnerConfig runner_config(const Settings& settings);

}  // namespace halfscope
