// SPDX-License-Identifier: MIT
// Flags of a command that first records a network: those of `train` and `run`, and the choice
// between the two.
#pragma once

#include <string>

#include "cli/args/setting.h"

namespace halfscope {

/// Returns whether the text names a network rather than a run file: a built-in one, a case of the
/// zoo or a file *.onnx.
bool names_network(const std::string& text);

/// Declares the flags; see add_recording_settings().
void add_recording_flags(CLI::App& app);

/// Returns the settings with which the network is recorded: a case of the zoo as it is meant, under
/// its plan unless lanes are given; a file *.onnx forward, a built-in network in training, unless a
/// flag is given that only the other one has; with --config as the file says. `network` may be
/// empty if --model or that file names one. Throws Error (usage).
Settings recording_settings(const CLI::App& app, const std::string& network);

/// Throws Error (usage) if any of the flags is given: `file` is recorded already.
void check_no_recording_flags(const CLI::App& app, const std::string& file);

}  // namespace halfscope
