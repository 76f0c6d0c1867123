// SPDX-License-Identifier: MIT
// Settings in a JSON file (docs/contracts.md, "Training JSON", "Run JSON").
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

/// The settings as such a file: defaults too, plans spelled out that are no presets; what is not
/// set is left out. Throws Error if a plan cannot be read.
Json config_json(const Settings& settings);

/// The error with the file and its keys that caused it in front, if it names any of them:
/// FILE: "KEY": what it says, with long values cut.
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
