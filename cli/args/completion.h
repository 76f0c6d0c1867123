// SPDX-License-Identifier: MIT
// Completion scripts for shells, generated from the same tree of subcommands and flags that
// parses the command line, so that they cannot go stale.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace halfscope {

std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace halfscope
