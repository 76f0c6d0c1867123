// SPDX-License-Identifier: MIT
// Errors of settings from a file: which of its keys they come from. Parsers and checks know flags
// and values, not where these stood, so that the keys are found by trying and by what is quoted.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "core/error.h"

namespace halfscope {

/// "--batch" of "batch".
std::string flag_of(const std::string& key);

/// A key of a file and the arguments that it stands for.
struct ConfigKey {
  std::string key;
  std::vector<std::string> words{};
  bool used = true;  ///< the command line has nothing in its place
};

/// The arguments that stand for a file and what was given beside it.
struct ConfigWords {
  std::string file;
  std::vector<ConfigKey> keys{};     ///< all of the file
  std::vector<std::string> given{};  ///< what was typed
  std::vector<std::string> texts{};  ///< that an error may quote and that are long, longest first

  /// The used ones and what was given, `without` one of them.
  std::vector<std::string> merged(const ConfigKey* without = nullptr) const;
};

/// The texts of a file's JSON that errors shorten.
std::vector<std::string> long_texts(const Json& json);
/// `text` with all but the beginning of each of them left out.
std::string shortened(std::string text, const std::vector<std::string>& texts);

/// The error as one of these keys: FILE: "KEY" and "KEY": what it says. Without a key as it is.
Error config_error(const ConfigWords& words, const std::vector<std::string>& keys,
                   const Error& error);

/// What a check of all settings says of these words; "" if nothing is wrong with them.
using ConfigCheck = std::function<std::string(const std::vector<std::string>& words)>;

/// An error of the command, as the keys that it comes from. Where `check` finds it, too, these are
/// the keys without any one of which nothing is wrong; if there are none, those whose flag or value
/// it quotes.
Error explained(const ConfigWords& words, const Error& error, const ConfigCheck& check);

}  // namespace halfscope
