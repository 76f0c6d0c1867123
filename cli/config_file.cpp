// SPDX-License-Identifier: MIT
#include "cli/config_file.h"

#include <algorithm>
#include <set>

#include "cli/arguments.h"
#include "cli/backends.h"
#include "cli/lane_options.h"
#include "cli/network.h"
#include "core/data/npy.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

[[noreturn]] void refuse(const std::string& file, const std::string& key, const std::string& what) {
  throw usage_error(file + ": \"" + key + "\" " + what,
                    "the flag " + flag_of(key) + " takes the same; see --help");
}

/// A number as the flag takes it.
std::string scalar_text(const std::string& file, const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.dump();
  if (value.is_number()) return shortest(value.get<double>());
  refuse(file, key, "is neither a text nor a number");
}

/// A plan: its name, its JSON, or {"backend": NAME, "plan": either}.
std::string lane_text(const std::string& file, const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) refuse(file, key, "holds something that is no plan");
  if (!value.contains("plan") && value.contains("backend")) {
    refuse(file, key, "names a backend without a \"plan\"");
  }
  if (!value.contains("plan")) return value.dump();
  for (const auto& [member, unused] : value.items()) {
    if (member != "plan" && member != "backend") refuse(file, key, "has an unknown " + member);
  }
  const std::string plan = lane_text(file, key, value["plan"]);
  if (!value.contains("backend")) return plan;
  const std::string backend = scalar_text(file, key, value["backend"]);
  try {
    check_backend_name(backend);
  } catch (const Error& error) {
    throw usage_error(file + ": \"" + key + "\": " + error.what(), error.hint());
  }
  return backend + ":" + plan;
}

constexpr const char* kAverageKeys[] = {"decay", "form", "format", "compute"};

/// {"decay": X, "format": F, ...} as --ema takes it.
std::string average_words(const std::string& file, const Json& value) {
  std::string decay, options;
  for (const auto& [key, each] : value.items()) {
    const std::vector<std::string> keys{std::begin(kAverageKeys), std::end(kAverageKeys)};
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      throw usage_error(file + ": \"ema\" has an unknown key \"" + key + "\"",
                        did_you_mean(key, keys, "keys: " + comma_list(keys)));
    }
    if (each.is_null()) continue;
    const std::string text = scalar_text(file, "ema", each);
    if (key == "decay") {
      decay = text;
    } else {
      options += (options.empty() ? ":" : ",") + key + "=" + text;
    }
  }
  if (decay.empty()) refuse(file, "ema", "has no \"decay\"");
  return decay + options;
}

/// The arguments that one key stands for.
void add_words(const ConfigForm& form, const std::string& file, const std::string& key,
               const Json& value, const CLI::Option& option, std::vector<std::string>& words) {
  if (value.is_null()) return;
  if (key == form.argument) {
    words.push_back(scalar_text(file, key, value));
    return;
  }
  const std::string flag = flag_of(key);
  if (!takes_value(option)) {
    if (!value.is_boolean()) refuse(file, key, "is neither true nor false");
    if (value.get<bool>()) words.push_back(flag);
    return;
  }
  const auto text = [&](const Json& each) {
    if (key == "plan") return lane_text(file, key, each);
    if (key == "ema" && each.is_object()) return average_words(file, each);
    return scalar_text(file, key, each);
  };
  if (key == "lanes" && value.is_array()) {
    std::string list;
    for (const Json& lane : value) list += (list.empty() ? "" : ",") + lane_text(file, key, lane);
    words.insert(words.end(), {flag, list});
  } else if (key == "dimension" && value.is_object()) {
    for (const auto& [name, size] : value.items()) {
      words.insert(words.end(), {flag, name + "=" + scalar_text(file, key, size)});
    }
  } else if (value.is_array() && contains(form.lists, key)) {
    for (const Json& each : value) words.insert(words.end(), {flag, text(each)});
  } else {
    words.insert(words.end(), {flag, text(value)});
  }
}

/// What the command line does not take as a value, either.
void check_words(const std::string& file, const ConfigKey& key) {
  for (const std::string& word : key.words) {
    if (word.empty()) refuse(file, key.key, "is empty");
    if (word.starts_with("--") && word != flag_of(key.key)) {
      refuse(file, key.key, "holds a flag: " + word);
    }
  }
}

Json read_object(const ConfigForm& form, const std::string& file) {
  const std::string begin =
      std::string("halfscope ") + form.command + " --print-config writes one to begin with";
  const std::vector<uint8_t> bytes = read_file(file);
  const Json json = Json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (!json.is_object()) {
    throw usage_error(file + " is not a JSON object", begin);
  }
  if (!json.contains("schema") || json["schema"] != form.schema) {
    throw usage_error(file + " does not say \"schema\": \"" + form.schema + "\"",
                      json.contains("schema") && json["schema"] == "halfscope.plan/1"
                          ? "this is a plan: use --plan " + file
                          : begin);
  }
  return json;
}

/// The flags that were given, with those that they stand in for, and the words that they were.
struct Typed {
  std::set<std::string> flags;
  std::vector<std::string> words;
};

Typed typed_words(const ConfigForm& form, const CLI::App& given) {
  Typed typed;
  for (const CLI::Option* option : positionals_of(given)) {
    if (option->count() == 0) continue;
    typed.flags.insert(flag_of(form.argument));
    typed.words.push_back(option->results()[0]);
  }
  for (const CLI::Option* option : flags_of(given)) {
    const std::string flag = long_name(*option);
    if (option->count() == 0) continue;
    typed.flags.insert(flag);
    if (!takes_value(*option)) {
      typed.words.push_back(flag);
      continue;
    }
    for (const std::string& text : option->results()) {
      typed.words.insert(typed.words.end(), {flag, text});
    }
  }
  for (const auto& [flag, others] : form.replaces) {
    if (typed.flags.contains(flag)) typed.flags.insert(others.begin(), others.end());
  }
  return typed;
}

}  // namespace

ConfigWords read_config(const ConfigForm& form, const std::string& file, const CLI::App& flags,
                        const CLI::App& given) {
  const Json json = read_object(form, file);
  Typed typed = typed_words(form, given);
  ConfigWords words{.file = file, .texts = long_texts(json)};
  try {
    for (const auto& [key, value] : json.items()) {
      if (key == "schema") continue;
      if (!contains(form.keys, key)) {
        throw usage_error(file + ": unknown key \"" + key + "\"",
                          did_you_mean(key, form.keys, "keys: " + comma_list(form.keys)));
      }
      const CLI::Option& option = *flags.get_option(key == form.argument ? key : flag_of(key));
      words.keys.push_back({.key = key, .used = !typed.flags.contains(flag_of(key))});
      add_words(form, file, key, value, option, words.keys.back().words);
      check_words(file, words.keys.back());
    }
  } catch (const Error& e) {
    throw Error(shortened(e.what(), words.texts), shortened(e.hint(), words.texts), e.kind());
  }
  words.given = std::move(typed.words);
  return words;
}

void add_config_flags(CLI::App& sub, std::string& file, bool& print) {
  offer(sub.add_option("--config", file,
                       "Settings from a JSON file; flags that are given go before it")
            ->type_name("FILE")
            ->group(group::kOther),
        {.files = "*.json"});
  sub.add_flag("--print-config", print, "Print all settings as such a file and do nothing else")
      ->group(group::kOther);
}

Json lanes_json(const TrainOptions& options) {
  Json lanes = Json::array();
  for (const std::string& name : lane_names(options)) {
    const LaneRequest lane = parse_lane(name);
    Json plan = lane.plan;
    if (is_inline_plan(lane.plan)) {
      plan = Json::parse(plan_to_json(plan_from_json(lane.plan)));
    } else if (!preset_plan(lane.plan)) {
      plan = Json::parse(plan_to_json(network_plan(
          lane.plan, options.model, {.dimensions = parse_dimensions(options.dimensions)})));
    }
    if (!lane.backend.empty()) plan = {{"backend", lane.backend}, {"plan", plan}};
    lanes.push_back(std::move(plan));
  }
  return lanes;
}

}  // namespace halfscope
