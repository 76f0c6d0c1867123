// SPDX-License-Identifier: MIT
// What every command that trains does first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/args/settings.h"
#include "cli/terminal/network_summary.h"
#include "core/train/trainer.h"

namespace halfscope {

/// Everything but the initial weights and a network from a file, which are read later. Throws Error
/// (usage).
TrainConfig train_config(const Settings& settings);

/// Whether --checkpoint goes on writing the file that --resume reads.
bool resumes_own_checkpoint(const Settings& settings);

/// The files that a training or a run reads besides its samples: plans, weights, the network.
std::vector<std::string> input_files(const Settings& settings);

/// Reads --init: an .npz of finite values, or nothing without it. Throws Error that names the
/// tensor and the element otherwise.
NamedTensors read_initial_weights(const Settings& settings);

/// The data of --data, as --normalize has them.
Dataset load_training_data(const Settings& settings);

/// Adds to the configuration how the network and its loss are built, where that is no built-in
/// classifier of images. What is understood of a network's file is written to `summary`, which must
/// outlive the configuration, when the network is built. Throws Error if it cannot be loaded.
void attach_network(TrainConfig& config, const Settings& settings, const Dataset& data,
                    NetworkSummary* summary = nullptr);

/// Errors about initial weights name the file they are from, which the trainer does not know.
std::unique_ptr<Trainer> make_trainer(const TrainConfig& config, const Dataset& data,
                                      const std::string& init);

}  // namespace halfscope
