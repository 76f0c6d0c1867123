// SPDX-License-Identifier: MIT
// Settings of a command in a JSON file (docs/contracts.md, "Training JSON", "Run JSON"): its keys
// are the flags of the command without dashes at the front and with _ for the others.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/config_errors.h"
#include "cli/output.h"
#include "cli/train_options.h"
#include "core/error.h"

namespace halfscope {

/// What the files of one command look like.
struct ConfigForm {
  const char* command;             ///< "train"
  const char* schema;              ///< "halfscope.train-config/1"
  std::vector<std::string> keys;   ///< what a file may set
  std::vector<std::string> lists;  ///< those that may be arrays: flags that may be repeated
  std::string argument;            ///< the key that is a positional argument; empty without one
  /// A flag that is given, and those of the file that it stands in for beside its own.
  std::vector<std::pair<std::string, std::vector<std::string>>> replaces;
};

/// `flags` declares the command's flags, `given` has parsed the command line. Throws Error naming
/// the file and the key.
ConfigWords read_config(const ConfigForm& form, const std::string& file, const CLI::App& flags,
                        const CLI::App& given);

/// Parses words with the flags that `add` declares.
template <class Options, class Add>
Options parse_words(const ConfigForm& form, const std::vector<std::string>& words,
                    const Options& defaults, const Add& add) {
  Options options = defaults;
  CLI::App app;
  add(app, options);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& e) {
    throw usage_error(e.what(), std::string("halfscope ") + form.command + " --help");
  }
  return options;
}

/// `body` of the settings of a file with what was given on the command line (`given`) in place of
/// its own. Errors of the settings name the file and the key, those that `body` throws, too;
/// `check` throws what can be wrong without any work.
template <class Options, class Add>
int with_settings(const ConfigForm& form, const std::string& file, const CLI::App& given,
                  const Options& defaults, const Add& add,
                  const std::function<void(const Options&)>& check,
                  const std::function<int(const Options&)>& body) {
  Options unused = defaults;
  CLI::App flags;
  add(flags, unused);
  const ConfigWords words = read_config(form, file, flags, given);
  const auto parsed = [&](const std::vector<std::string>& some) {
    return parse_words(form, some, defaults, add);
  };
  for (const ConfigKey& key : words.keys) {
    try {
      parsed(key.words);
    } catch (const Error& e) {
      throw config_error(words, {key.key}, e);
    }
  }
  const Options options = parsed(words.merged());
  try {
    return body(options);
  } catch (const Error& e) {
    throw explained(words, e, [&](const std::vector<std::string>& some) -> std::string {
      try {
        check(parsed(some));
        return "";
      } catch (const Error& other) {
        return other.what();
      }
    });
  }
}

/// The flags --config and --print-config.
void add_config_flags(CLI::App& sub, std::string& file, bool& print);

/// Settings as such a file: what is not set is left out.
struct ConfigJson {
  Json json;

  void text(const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value;
  }
  void number(const char* key, int64_t value) {
    if (value != 0) json[key] = value;
  }
  void list(const char* key, const std::vector<std::string>& values) {
    if (!values.empty()) json[key] = values;
  }
};

/// The lanes with every plan spelled out that is no preset.
Json lanes_json(const TrainOptions& options);

}  // namespace halfscope
