// SPDX-License-Identifier: MIT
#include "cli/args/setting.h"

#include <algorithm>
#include <map>

#include "cli/args/config_file.h"
#include "cli/args/lanes.h"
#include "cli/args/zoo_case.h"
#include "core/error.h"

namespace halfscope {
namespace {

/// Appends the words that set the value again, with its flag.
void add_words(const Setting& setting, const Settings& settings, std::vector<std::string>& words) {
  for (const std::string& text : setting.value.texts(settings)) {
    if (!setting.is_argument()) words.push_back(setting.flag);
    if (setting.value.name != nullptr) words.push_back(text);
  }
}

std::string list_text(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ",") + text;
  return all;
}

/// The words of all settings that are kept in one of two ways: the first only if the setting
/// differs from the default.
std::vector<std::string> words_kept(const Settings& settings, Kept changed, Kept always) {
  const Settings defaults = default_settings(settings.command);
  std::vector<std::string> words;
  for (const Setting* row : settings_of(settings.command)) {
    const bool differs = row->value.texts(settings) != row->value.texts(defaults);
    if (row->kept == always || (row->kept == changed && differs)) {
      add_words(*row, settings, words);
    }
  }
  return words;
}

/// A learning rate that was given is the optimizer's.
void fold_learning_rate(Settings& settings) {
  if (settings.learning_rate) settings.optimizer.learning_rate = *settings.learning_rate;
  settings.learning_rate.reset();
}

/// The option of a row; null where the command has none for it.
using OptionOf = std::function<const CLI::Option*(const Setting& row)>;

CLI::Option* add_option(CLI::App& app, const Setting& row) {
  // read_settings() reads the values once it knows all flags.
  const auto later = [](const CLI::results_t&) { return true; };
  const SettingValue& value = row.value;
  CLI::Option* option = value.name == nullptr ? app.add_flag(row.flag, row.help)
                                              : app.add_option(row.flag, later, row.help);
  option->group(row.group);
  if (value.name != nullptr) option->type_name(value.name)->type_size(1);
  if (value.many) option->expected(1)->take_all();
  if (row.offer) offer(option, *row.offer);
  return option;
}

void read_option(Settings& settings, const Setting& row, const CLI::Option& option) {
  if (option.count() > 1 && row.value.name != nullptr &&
      !row.value.many) {  // another command's row allows it
    throw usage_error(row.flag + " is given twice", "keep one of them");
  }
  // CLI11 gives a switch a result, too, which its read() ignores.
  for (const std::string& text : option.results()) row.value.read(settings, row.flag, text);
}

/// `network` replaces the one that is read, unless it is empty.
Settings read_rows(Commands command, const OptionOf& option_of, const std::string& network) {
  Settings settings = default_settings(command);
  std::set<std::string> replaced;  // keys of a file that the command line has in another form
  const auto has = [&](const Setting& row) {
    const CLI::Option* option = option_of(row);
    return option != nullptr && option->count() > 0;
  };
  for (const Setting* row : settings_of(command)) {
    if (!has(*row)) continue;
    settings.given.insert(row->key());
    replaced.insert(row->key());
    replaced.insert(row->replaces.begin(), row->replaces.end());
  }
  if (settings.is_given("config")) {
    settings.config = option_of(*find_setting(command, "config"))->results()[0];
    read_config(settings, replaced);
  }
  for (const Setting* row : settings_of(command)) {
    if (has(*row)) read_option(settings, *row, *option_of(*row));
  }
  if (!network.empty()) settings.model = network;
  finish_settings(settings);
  return settings;
}

bool is_for_recording(const Setting& row) {
  return (row.commands & (kTrain | kRun)) != 0 && !row.is_argument() &&
         (row.is_in_files() || row.key() == "config");
}

}  // namespace

std::string Setting::key() const {
  std::string key = flag.substr(is_argument() ? 0 : 2);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::vector<const Setting*> settings_of(Commands command) {
  std::vector<const Setting*> rows;
  for (const Setting& row : setting_table()) {
    if ((row.commands & command) != 0) rows.push_back(&row);
  }
  return rows;
}

const Setting* find_setting(Commands command, const std::string& key) {
  for (const Setting* row : settings_of(command)) {
    if (row->key() == key) return row;
  }
  return nullptr;
}

Settings default_settings(Commands command) {
  Settings settings{.command = command};
  if (command == kTrain) {
    settings.model = "lenet";
    settings.data = "digits";
    settings.batch = 128;
    settings.lanes = {parse_lane("float32"), parse_lane("mixed_float16")};
    settings.out = "run.hscope";
  } else if (command == kRun) {
    settings.lanes = {parse_lane("float32")};
  } else if (command == kCost) {
    settings.lanes = {parse_lane("float32"), parse_lane("mixed_float16")};
  }
  return settings;
}

void add_settings(CLI::App& app, Commands command) {
  const Settings defaults = default_settings(command);
  for (const Setting* row : settings_of(command)) {
    CLI::Option* option = add_option(app, *row);
    if (row->value.name != nullptr) option->default_str(list_text(row->value.texts(defaults)));
  }
}

void finish_settings(Settings& settings) {
  take_case_settings(settings);
  fold_learning_rate(settings);
}

Settings read_settings(const CLI::App& app, Commands command) {
  const auto option_of = [&app](const Setting& row) { return app.get_option(row.flag); };
  return read_rows(command, option_of, "");
}

void add_recording_settings(CLI::App& app, const char* heading, const std::vector<Shown>& shown,
                            const std::vector<std::string>& left_out) {
  const auto add = [&](const Setting& row) {
    if (CLI::Option* option = app.get_option_no_throw(row.flag)) {
      if (row.value.many) option->expected(1)->take_all();
      return option;
    }
    return add_option(app, row)->group(group::kElsewhere);
  };
  for (const Shown& each : shown) {
    for (const Setting& row : setting_table()) {
      if (!is_for_recording(row) || row.flag != each.flag) continue;
      add(row)->description(each.help)->group(heading);
    }
  }
  for (const Setting& row : setting_table()) {
    const bool out = std::find(left_out.begin(), left_out.end(), row.flag) != left_out.end();
    if (is_for_recording(row) && !out) add(row);
  }
}

std::optional<std::string> given_recording_flag(
    const CLI::App& app,
    const std::function<bool(const std::string& flag, unsigned commands)>& wanted) {
  std::map<std::string, unsigned> commands;
  for (const Setting& row : setting_table()) {
    if (is_for_recording(row)) commands[row.flag] |= row.commands & (kTrain | kRun);
  }
  for (const CLI::Option* option : app.parse_order()) {
    if (option->get_lnames().empty()) continue;
    const auto found = commands.find(long_name(*option));
    if (found != commands.end() && wanted(found->first, found->second)) return found->first;
  }
  return std::nullopt;
}

Settings read_recording_settings(const CLI::App& app, Commands command,
                                 const std::string& network) {
  const auto option_of = [&app](const Setting& row) -> const CLI::Option* {
    return is_for_recording(row) ? app.get_option_no_throw(row.flag) : nullptr;
  };
  return read_rows(command, option_of, network);
}

std::vector<std::string> settings_words(const Settings& settings) {
  return words_kept(settings, Kept::settings, Kept::always);
}

std::vector<std::string> lane_settings_words(const Settings& settings) {
  Settings all = settings;
  all.lanes = lane_requests(settings);
  return words_kept(all, Kept::lanes, Kept::always_lanes);
}

Settings parse_settings(Commands command, const std::vector<std::string>& words) {
  Settings settings = default_settings(command);
  const auto refuse = [](const std::string& what) {
    return Error("cannot repeat this run: " + what,
                 "it was recorded by another version of HalfScope: record it again");
  };
  for (size_t i = 0; i < words.size(); ++i) {
    const bool flag = words[i].starts_with("--");
    const Setting* row = nullptr;
    for (const Setting* each : settings_of(command)) {
      if (flag ? each->flag == words[i] : each->is_argument()) row = each;
    }
    if (row == nullptr) throw refuse("unknown setting '" + words[i] + "'");
    const bool next = flag && row->value.name != nullptr;
    if (next && i + 1 == words.size()) throw refuse(words[i] + " has no value");
    const std::string text = row->value.name == nullptr ? "" : words[next ? i + 1 : i];
    row->value.read(settings, row->flag, text);
    settings.given.insert(row->key());
    i += next ? 1 : 0;
  }
  fold_learning_rate(settings);
  return settings;
}

}  // namespace halfscope
