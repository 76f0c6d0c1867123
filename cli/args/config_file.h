// SPDX-License-Identifier: MIT
// Settings in a JSON file (docs/reference/json.md, "Configuration files").
#pragma once

#include <set>
#include <string>

#include "cli/args/settings.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {

/// Reads the file `settings.config` into the settings, except for the keys in `replaced`, which are
/// only checked. Throws Error (usage) that names the file and the key.
void read_config(Settings& settings, const std::set<std::string>& replaced);

/// Reads the value of one key as configuration files have it. Throws Error (usage) that names the
/// file and the key.
void read_config_key(Settings& settings, const std::string& file, const std::string& key,
                     const Json& value);

/// Returns the command that the configuration file is for. Throws Error (usage) if it says neither
/// `train` nor `run`.
Commands config_command(const std::string& file);

/// Returns the text of a JSON file. Throws Error, of kind usage if it is a folder.
std::string read_json_text(const std::string& file);

/// Returns the JSON in the text of a file, "discarded" if it is not JSON. Throws Error (usage) that
/// names the file if it is nested too deeply or gives a key twice.
Json parse_json(const std::string& file, const std::string& text);

/// Returns both in one.
Json read_json(const std::string& file);

/// Returns the settings in the form of a configuration file. It includes defaults and the JSON of
/// every plan that is not a preset, and leaves out settings without a value. Throws Error if a plan
/// cannot be read.
Json config_json(const Settings& settings);

/// Returns the error as FILE: "KEY": TEXT if a key of the file caused it, with long values cut, and
/// unchanged otherwise.
Error named(const Settings& settings, const Error& error);

/// Calls `work` and names the keys of its errors.
template <typename Work>
auto naming_keys(const Settings& settings, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw named(settings, error);
  }
}

}  // namespace halfscope
