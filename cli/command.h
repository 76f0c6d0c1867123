// SPDX-License-Identifier: MIT
// A subcommand is one file that adds itself to the command line and sets `command` to what it
// does; main() runs it. Commands return the exit code and throw Error.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>

#include "analysis/finding.h"
#include "analysis/rules/text.h"  // shell_quoted

namespace halfscope {

using Command = std::function<int()>;

/// `command_line` goes into the run file, so that a report can say how to reproduce it.
void add_train(CLI::App& app, Command& command, const std::string& command_line);
void add_run(CLI::App& app, Command& command, const std::string& command_line);
void add_recommend(CLI::App& app, Command& command);
void add_report(CLI::App& app, Command& command);
void add_export(CLI::App& app, Command& command);
void add_convert(CLI::App& app, Command& command);
void add_runs(CLI::App& app, Command& command);
void add_view(CLI::App& app, Command& command);
void add_mma_check(CLI::App& app, Command& command);
void add_fprev(CLI::App& app, Command& command);
void add_doctor(CLI::App& app, Command& command);
void add_completion(CLI::App& app, Command& command);

inline constexpr const char* kVersion = HALFSCOPE_VERSION;

/// Exit code 1 if a finding reaches `threshold` ("info", "warning", "error"), else 0; "" never
/// fails. Throws Error (usage) for another word.
int exit_code(std::span<const Finding> findings, const std::string& threshold);

/// Throws Error (usage) if two of the files, empty names left aside, are one and the same.
void check_distinct(std::span<const std::string> files);
void check_distinct(std::initializer_list<std::string> files);

/// `stem` + `ending`, or the first of "stem2", "stem3" ... that is no file yet: for commands that
/// are suggested to the user.
std::string free_name(const std::string& stem, const std::string& ending);

}  // namespace halfscope
