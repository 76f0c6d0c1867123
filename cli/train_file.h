// SPDX-License-Identifier: MIT
// All settings of a training in one JSON file (docs/contracts.md, "Training JSON"): its keys are
// the flags of `train` without dashes at the front and with _ for the others.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <string>

#include "cli/output.h"
#include "cli/train_options.h"

namespace halfscope {

/// `body` of the settings of the file with what was given on the command line (`given`, parsed) in
/// place of its own. Errors of settings name the file and the key.
int with_train_file(const std::string& file, const CLI::App& given,
                    const std::function<int(const TrainOptions&)>& body);

/// The settings with every plan spelled out; defaults too, what is not set left out. Throws Error
/// if they cannot be trained with.
Json train_file_json(const TrainOptions& options);

}  // namespace halfscope
