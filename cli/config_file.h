// SPDX-License-Identifier: MIT
// Settings of a command in a JSON file (docs/contracts.md, "Training JSON", "Run JSON"): its keys
// are the flags of the command without dashes at the front and with _ for the others.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

/// The arguments that stand for a file.
struct ConfigWords {
  std::vector<std::string> own;     ///< all of the file
  std::vector<std::string> merged;  ///< with what was given in place of its own
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

/// The settings of a file with what was given on the command line (`given`) in place of its own.
template <class Options, class Add>
Options settings_from(const ConfigForm& form, const std::string& file, const CLI::App& given,
                      const Options& defaults, const Add& add) {
  Options unused = defaults;
  CLI::App flags;
  add(flags, unused);
  const ConfigWords words = read_config(form, file, flags, given);
  try {
    parse_words(form, words.own, defaults, add);
  } catch (const Error& e) {
    throw Error(file + ": " + e.what(), e.hint(), e.kind());
  }
  return parse_words(form, words.merged, defaults, add);
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
