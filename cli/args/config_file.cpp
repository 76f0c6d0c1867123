// SPDX-License-Identifier: MIT
#include "cli/args/config_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/args/setting.h"
#include "core/data/stored_array.h"
#include "core/json_keys.h"
#include "core/near_miss.h"
#include "core/utf8.h"

namespace halfscope {
namespace {

std::string name_of(Commands command) { return command == kTrain ? "train" : "run"; }

std::string schema_of(Commands command) { return "halfscope." + name_of(command) + "-config/1"; }

/// Returns the text with every word of more than 60 characters cut, its closing quote kept.
std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 60;
  std::string result;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", start), text.size());
    if (end - start <= kLongest) {
      result += text.substr(start, end - start);
    } else {
      const size_t closing = text.find_last_not_of("'\",:;", end - 1) + 1;
      const std::string rest = "..." + text.substr(closing, end - closing);
      size_t kept = kLongest - std::min(kLongest, rest.size());
      while (kept > 0 && !begins_character(text[start + kept])) --kept;
      result += text.substr(start, kept) + rest;
    }
    if (end < text.size()) result += text[end];
    start = end + 1;
  }
  return result;
}

/// The key says which setting it is: "--batch 0x10: not a whole number" needs no flag any more.
std::string without_flag(std::string what, const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  if (!what.starts_with(flag + " ") && !what.starts_with(flag + ": ")) return what;
  const bool value = what.find(": ") != std::string::npos;
  return value ? what.substr(flag.size() + (what[flag.size()] == ':' ? 2 : 1)) : what;
}

Error error_of_keys(const std::string& file, const std::vector<std::string>& keys,
                    const Error& error) {
  const std::string what = keys.size() == 1 ? without_flag(error.what(), keys[0]) : error.what();
  std::string names;
  for (const std::string& key : keys) names += (names.empty() ? "\"" : " and \"") + key + "\"";
  return Error(file + ": " + shortened(names + ": " + what), shortened(error.hint()), error.kind());
}

Json read_object(const std::string& file, Commands command) {
  const std::string begin =
      "halfscope " + name_of(command) + " --print-config writes one to begin with";
  const std::string text = read_json_text(file);
  Json json = parse_json(file, text);
  if (json.is_discarded()) {
    throw usage_error(file + ": not valid JSON: " + json_problem(text), kJsonHint);
  }
  if (!json.is_object()) throw usage_error(file + " is not a JSON object", begin);
  const std::string schema = schema_of(command);
  if (!json.contains("schema") || json["schema"] != schema) {
    const bool plan = json.contains("schema") && json["schema"] == "halfscope.plan/1";
    throw usage_error(file + " does not say \"schema\": \"" + schema + "\"",
                      plan ? "this is a plan: use --plan " + file : begin);
  }
  return json;
}

/// A text or number as the flag takes it.
std::string scalar_text(const Json& json) {
  if (json.is_number_integer()) return json.dump();
  if (json.is_number()) return shortest(json.get<double>());
  if (!json.is_string()) throw usage_error("must be a text or a number");
  if (json.get<std::string>().empty()) throw usage_error("the text is empty");
  return json.get<std::string>();
}

/// JSON holds nothing else, and would silently name another file.
void check_utf8(const std::string& flag, std::string_view text) {
  while (!text.empty()) {
    const size_t length = first_character(text).length;
    if (length == 0) throw usage_error(flag + ": the value is not UTF-8, which JSON files need");
    text.remove_prefix(length);
  }
}

void read_value(const Setting& setting, Settings& settings, const Json& json) {
  const SettingValue& value = setting.value;
  if (value.name == nullptr) {
    if (!json.is_boolean()) throw usage_error("must be true or false");
    if (json.get<bool>()) value.read(settings, setting.flag, "");
  } else if (value.read_json && json.is_structured()) {
    value.read_json(settings, json);
  } else if (value.many && json.is_array()) {
    for (const Json& each : json) value.read(settings, setting.flag, scalar_text(each));
  } else {
    value.read(settings, setting.flag, scalar_text(json));
  }
}

const Setting& setting_named(const std::string& file, const std::string& key, Commands command) {
  std::vector<std::string> keys;
  for (const Setting* row : settings_of(command)) {
    if (!row->is_in_files()) continue;
    if (row->key() == key) return *row;
    keys.push_back(row->key());
  }
  throw usage_error(file + ": unknown key \"" + shortened(key) + "\"",
                    did_you_mean(key, keys, "keys: " + comma_list(keys)));
}

}  // namespace

std::string read_json_text(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw usage_error(file + " is a folder, not a configuration file");
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream)
    throw Error(
        "cannot read '" + file + "'" + (std::filesystem::exists(file) ? "" : ": file not found"),
        "check the path and its permissions");
  return {std::istreambuf_iterator<char>(stream), {}};
}

Json parse_json(const std::string& file, const std::string& text) {
  constexpr int kDeepest = 32;  // what walks the JSON may be recursive
  const auto check = [&file](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) throw usage_error(file + ": the JSON is nested too deeply");
    return true;
  };
  Json json = Json::parse(text, check, false);
  if (const std::string twice = repeated_key(text); !twice.empty()) {
    throw usage_error(
        file + ": key \"" + shortened(visible_name(twice)) + "\" is given twice in one object",
        "remove one of the two");
  }
  return json;
}

Json read_json(const std::string& file) { return parse_json(file, read_json_text(file)); }

void read_config(Settings& settings, const std::set<std::string>& replaced) {
  const std::string file = settings.config;
  const Json json = read_object(file, settings.command);
  Settings unused = settings;
  for (const auto& [key, value] : json.items()) {
    if (key == "schema") continue;
    read_config_key(replaced.contains(key) ? unused : settings, file, key, value);
  }
}

void read_config_key(Settings& settings, const std::string& file, const std::string& key,
                     const Json& value) {
  const Setting& setting = setting_named(file, key, settings.command);
  if (value.is_null()) return;
  try {
    read_value(setting, settings, value);
  } catch (const Error& error) {
    throw error_of_keys(file, {key}, error);
  }
  settings.given.insert(key);
  settings.from_file.insert(key);
}

Commands config_command(const std::string& file) {
  const Json json = read_json(file);
  if (json.is_object() && json.contains("schema") && json["schema"] == schema_of(kRun)) return kRun;
  read_object(file, kTrain);  // says what is wrong with any other file
  return kTrain;
}

Json config_json(const Settings& settings) {
  Json json{{"schema", schema_of(settings.command)}};
  for (const Setting* row : settings_of(settings.command)) {
    if (!row->is_in_files()) continue;
    const SettingValue& value = row->value;
    Json printed;
    if (value.json) {
      printed = value.json(settings);
    } else if (const auto texts = value.texts(settings); !texts.empty()) {
      for (const std::string& text : texts) check_utf8(row->flag, text);
      printed = value.many ? Json(texts) : Json(texts[0]);
    }
    if (!printed.is_null()) json[row->key()] = printed;
  }
  return json;
}

Error named(const Settings& settings, const Error& error) {
  std::vector<std::string> keys;
  for (const std::string& key : error.settings()) {
    const bool from_file = settings.from_file.contains(key);
    if (settings.is_given(key) && !from_file) return error;  // what was typed caused it, too
    if (from_file) keys.push_back(key);
  }
  return keys.empty() ? error : error_of_keys(settings.config, keys, error);
}

}  // namespace halfscope
