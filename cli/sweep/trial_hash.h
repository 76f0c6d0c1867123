// SPDX-License-Identifier: MIT
// The hash of a trial: what makes two trainings the same. It covers every setting with its default,
// the contents of all files that the training reads, and the program's version; neither names of
// files nor the order of keys.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "cli/args/settings.h"

namespace halfscope {

/// Replaces every file and folder that the settings of a training read: plans, network, initial
/// weights, data. `change` gets a name and returns the new one; of plans it gets the names of
/// presets, too.
void change_paths(Settings& settings, const std::function<std::string(const std::string&)>& change);

class TrialHasher {
 public:
  /// Returns the hash in 16 hexadecimal digits. Throws Error if a file cannot be read.
  std::string hash(const Settings& settings);
  /// Returns a text that only trainings with the same settings have, apart from the seed.
  static std::string kind(const Settings& settings);

 private:
  std::string contents(const std::string& path);
  const std::string& canonical(const Settings& settings);

  std::map<std::string, std::string> contents_;   // by path
  std::map<std::string, std::string> canonical_;  // by kind
};

}  // namespace halfscope
