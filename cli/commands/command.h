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

/// A command line and the action that it selects.
struct Invocation {
  std::string line;             ///< the command line, quoted for a shell
  std::function<int()> action;  ///< returns the exit code; set by the command that was typed
};

#define HALFSCOPE_COMMAND(name, heading) void add_##name(CLI::App& app, Invocation& call);
#include "cli/commands/list.inc"
#undef HALFSCOPE_COMMAND

/// Adds all commands, in the order of --help.
void add_commands(CLI::App& app, Invocation& call);
/// Returns the current name of a command: "diagnose" for the old "recommend".
std::string command_name(const std::string& name);

/// Runs `train` or `run` with these settings, which `command_line` repeats. Calls `started` once
/// all settings and files are checked, before any output. Returns the exit code.
int train(
    const Settings& settings, const std::string& command_line,
    const std::function<void()>& started = [] {});
int run_network(
    const Settings& settings, const std::string& command_line,
    const std::function<void()>& started = [] {});

inline constexpr const char* kVersion = HALFSCOPE_VERSION;

/// Returns exit code 1 if a finding reaches `threshold` ("info", "warning", "error"), else 0; for
/// "" always 0. Throws Error (usage) for another word.
int exit_code(std::span<const Finding> findings, const std::string& threshold);

}  // namespace halfscope
