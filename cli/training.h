// SPDX-License-Identifier: MIT
// What every command that trains does first.
#pragma once

#include <memory>
#include <string>

#include "core/train/trainer.h"

namespace halfscope {

/// Reads an .npz of finite values. Throws Error that names the tensor and the element otherwise.
NamedTensors read_initial_weights(const std::string& file);

/// Errors about initial weights name the file they are from, which the trainer does not know.
std::unique_ptr<Trainer> make_trainer(const TrainConfig& config, const Dataset& data,
                                      const std::string& init);

}  // namespace halfscope
