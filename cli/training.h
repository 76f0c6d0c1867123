// SPDX-License-Identifier: MIT
// What every command that trains does first.
#pragma once

#include <memory>
#include <string>

#include "cli/train_options.h"
#include "core/train/trainer.h"

namespace halfscope {

/// Reads an .npz of finite values. Throws Error that names the tensor and the element otherwise.
NamedTensors read_initial_weights(const std::string& file);

/// The data of --data, as --normalize has them.
Dataset load_training_data(const TrainOptions& options);

/// Adds to the configuration how the network and its loss are built, where that is no built-in
/// classifier of images. Throws Error if the network cannot be loaded.
void attach_network(TrainConfig& config, const TrainOptions& options, const Dataset& data);

/// Errors about initial weights name the file they are from, which the trainer does not know.
std::unique_ptr<Trainer> make_trainer(const TrainConfig& config, const Dataset& data,
                                      const std::string& init);

}  // namespace halfscope
