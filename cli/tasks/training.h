// SPDX-License-Identifier: MIT
// Preparation of a training, for every command that trains.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/args/settings.h"
#include "cli/terminal/network_summary.h"
#include "core/train/trainer.h"

namespace halfscope {

/// Returns the configuration without initial weights and network files, which are read later.
/// Throws Error (usage).
TrainConfig train_config(const Settings& settings);

/// Returns whether --checkpoint and --resume name the same file.
bool resumes_own_checkpoint(const Settings& settings);

/// Returns the files that a training or a run reads besides its samples: plans, weights, the
/// network.
std::vector<std::string> input_files(const Settings& settings);

/// Reads --init: an .npz of finite values, or nothing without it. Throws Error that names the
/// tensor and the element otherwise.
NamedTensors read_initial_weights(const Settings& settings);

/// Loads the data of --data, scaled by --normalize.
Dataset load_training_data(const Settings& settings);

/// Adds the builder of the network and its loss, except for built-in image classifiers. Building a
/// network from a file fills `summary`, which must outlive the configuration. Throws Error if the
/// network cannot be loaded.
void attach_network(TrainConfig& config, const Settings& settings, const Dataset& data,
                    NetworkSummary* summary = nullptr);

/// Returns the trainer. Errors about initial weights name the file `init`.
std::unique_ptr<Trainer> make_trainer(const TrainConfig& config, const Dataset& data,
                                      const std::string& init);

}  // namespace halfscope
