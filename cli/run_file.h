// SPDX-License-Identifier: MIT
// All settings of `run` in one JSON file (docs/contracts.md, "Run JSON").
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <string>

#include "cli/output.h"
#include "cli/run_options.h"

namespace halfscope {

/// `body` of the settings of the file with what was given on the command line (`given`, parsed) in
/// place of its own. Errors of settings name the file and the key.
int with_run_file(const std::string& file, const CLI::App& given,
                  const std::function<int(const RunOptions&)>& body);

/// The settings with every plan spelled out; defaults too, what is not set left out. Throws Error
/// if they cannot be run with.
Json run_file_json(const RunOptions& options);

}  // namespace halfscope
