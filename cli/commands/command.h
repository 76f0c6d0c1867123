// SPDX-License-Identifier: MIT
// A command is a file in this folder and a line in list.inc. The file adds the command's flags to
// the command line and says what it does; main() runs it. Commands return the exit code and throw
// Error.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <span>
#include <string>

#include "analysis/finding.h"
#include "analysis/rules/text.h"  // shell_quoted
#include "cli/args/settings.h"

namespace halfscope {

/// What was typed, and what is to be done about it.
struct Invocation {
  std::string line;             ///< the words as a shell would take them again
  std::function<int()> action;  ///< returns the exit code; set by the command that was typed
};

#define HALFSCOPE_COMMAND(name, heading) void add_##name(CLI::App& app, Invocation& call);
#include "cli/commands/list.inc"
#undef HALFSCOPE_COMMAND

/// Adds all commands, in the order of --help.
void add_commands(CLI::App& app, Invocation& call);
/// "diagnose" of "recommend": the command that an old name stands for, or the name itself.
std::string command_name(const std::string& name);

/// Does what `train` or `run` does with these settings, which `command_line` repeats. Returns the
/// exit code.
int train(const Settings& settings, const std::string& command_line);
int run_network(const Settings& settings, const std::string& command_line);

inline constexpr const char* kVersion = HALFSCOPE_VERSION;

/// Exit code 1 if a finding reaches `threshold` ("info", "warning", "error"), else 0; "" never
/// fails. Throws Error (usage) for another word.
int exit_code(std::span<const Finding> findings, const std::string& threshold);

}  // namespace halfscope
