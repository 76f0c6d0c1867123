// SPDX-License-Identifier: MIT
// A row of the table of settings, and what flags and files take from all rows.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/args/arguments.h"
#include "cli/args/settings.h"
#include "cli/terminal/output.h"

namespace halfscope {

/// Functions that read and print the value of a setting.
struct SettingValue {
  const char* name = nullptr;  ///< name in help: "N"; null for a switch
  bool many = false;           ///< may be given several times
  /// Sets the member from a text, or adds the text to it. Throws Error (usage).
  std::function<void(Settings& settings, const std::string& flag, const std::string& text)> read{};
  /// The texts that read() takes to set the same again; none if it is not set.
  std::function<std::vector<std::string>(const Settings& settings)> texts{};
  /// Reads JSON that is more than a text or a number; null if there is no such form.
  std::function<void(Settings& settings, const Json& json)> read_json{};
  /// Prints it for a configuration file; null for texts().
  std::function<Json(const Settings& settings)> json{};
};

/// Files that store a setting.
enum class Kept {
  nothing,       ///< nowhere: output files, and what the command prints
  file,          ///< in configuration files
  settings,      ///< in files, and in RunInfo::settings if it differs from the default
  always,        ///< in files, and in RunInfo::settings in any case
  lanes,         ///< in files, and in RunInfo::lane_settings if it differs from the default
  always_lanes,  ///< in files, and in RunInfo::lane_settings in any case
};

struct Setting {
  std::string flag;   ///< "--batch", or "network" for an argument without a flag
  unsigned commands;  ///< bits of Commands, and for `plan` of PlanSubject
  const char* group;  ///< heading in --help
  std::string help;
  SettingValue value;
  Kept kept = Kept::nothing;
  std::optional<Offer> offer{};         ///< values for shell completion
  std::vector<std::string> replaces{};  ///< other keys of a file that this flag replaces

  bool is_argument() const { return !flag.starts_with("--"); }
  /// "micro_batches": in files, and in Error::settings().
  std::string key() const;
  bool is_in_files() const { return kept != Kept::nothing; }
};

/// All rows, in the order of --help.
const std::vector<Setting>& setting_table();
/// Returns the rows that the command has.
std::vector<const Setting*> settings_of(Commands command);
/// Returns the row with this key, or null if the command has no such setting.
const Setting* find_setting(Commands command, const std::string& key);

/// Declares the flags of the command.
void add_settings(CLI::App& app, Commands command);
/// Returns the settings of a parsed command line. Defaults come first; the file of --config
/// replaces them, and flags replace both. Throws Error (usage); an error in the file names the file
/// and the key.
Settings read_settings(const CLI::App& app, Commands command);

/// Completes settings of which every flag and every key of a file was read: takes what the
/// network's case of the zoo says of the others, and gives the learning rate to the optimizer.
/// Throws Error (usage).
void finish_settings(Settings& settings);

/// Help text of a command for a setting of other commands.
struct Shown {
  const char* flag;
  std::string help;
};
/// Declares --config and the flags of `train` and `run` that configuration files have keys for,
/// except `left_out`. For a command that trains or runs a network first. Help lists those
/// `shown`, in their order and under `heading`; completion offers all.
void add_recording_settings(CLI::App& app, const char* heading, const std::vector<Shown>& shown,
                            const std::vector<std::string>& left_out);
/// Returns the first flag that add_recording_settings() declared and the command line has, if
/// `wanted` is true of it and the commands that take it (bits of Commands).
std::optional<std::string> given_recording_flag(
    const CLI::App& app,
    const std::function<bool(const std::string& flag, unsigned commands)>& wanted);
/// Returns what read_settings() of `train` or `run` does of the flags that add_recording_settings()
/// declared. The network is `network`, unless that is empty.
Settings read_recording_settings(const CLI::App& app, Commands command, const std::string& network);

}  // namespace halfscope
