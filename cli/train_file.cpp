// SPDX-License-Identifier: MIT
#include "cli/train_file.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "cli/arguments.h"
#include "cli/backends.h"
#include "cli/lane_options.h"
#include "cli/network.h"
#include "core/data/npy.h"
#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

constexpr const char* kSchema = "halfscope.train-config/1";

/// What a file may set, in the order in which it is written: the training, not where its results
/// go.
constexpr const char* kKeys[] = {
    "model",
    "loss",
    "data",
    "normalize",
    "dimension",
    "init",
    "no_shuffle",
    "steps",
    "batch",
    "optimizer",
    "lr",
    "optimizer_state",
    "optimizer_compute",
    "ema",
    "eval_ema",
    "schedule",
    "clip_norm",
    "clip_format",
    "micro_batches",
    "accumulate_grads",
    "early_stop",
    "seed",
    "lanes",
    "plan",
    "backend",
    "fast",
    "fp32",
    "accumulate",
    "loss_scale",
    "every",
    "no_record",
    "eval_every",
    "no_eval",
    "errors_every",
    "compare",
    "no_errors",
};

std::vector<std::string> known_keys() { return {std::begin(kKeys), std::end(kKeys)}; }

std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

[[noreturn]] void refuse(const std::string& file, const std::string& key, const std::string& what) {
  throw usage_error(file + ": \"" + key + "\" " + what,
                    "see halfscope train --help on " + flag_of(key));
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
  if (!value.contains("plan")) return value.dump();
  for (const auto& [member, unused] : value.items()) {
    if (member != "plan" && member != "backend") refuse(file, key, "has an unknown " + member);
  }
  const std::string plan = lane_text(file, key, value["plan"]);
  return value.contains("backend") ? scalar_text(file, key, value["backend"]) + ":" + plan : plan;
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

Json average_json(const WeightAverage& average) {
  Json json{{"decay", average.decay},
            {"form", average.form == WeightAverage::Form::lerp ? "lerp" : "average"}};
  if (average.format) json["format"] = format_name(*average.format);
  if (average.compute) json["compute"] = format_name(*average.compute);
  return json;
}

/// The arguments that one key stands for.
void add_words(const std::string& file, const std::string& key, const Json& value,
               const CLI::Option& option, std::vector<std::string>& words) {
  const std::string flag = flag_of(key);
  if (value.is_null()) return;
  if (!takes_value(option)) {
    if (!value.is_boolean()) refuse(file, key, "is neither true nor false");
    if (value.get<bool>()) words.push_back(flag);
    return;
  }
  if (key == "lanes" && value.is_array()) {
    std::string list;
    for (const Json& lane : value) list += (list.empty() ? "" : ",") + lane_text(file, key, lane);
    words.insert(words.end(), {flag, list});
  } else if (key == "plan") {
    words.insert(words.end(), {flag, lane_text(file, key, value)});
  } else if (key == "ema" && value.is_object()) {
    words.insert(words.end(), {flag, average_words(file, value)});
  } else if (key == "dimension" && value.is_object()) {
    for (const auto& [name, size] : value.items()) {
      words.insert(words.end(), {flag, name + "=" + scalar_text(file, key, size)});
    }
  } else if (value.is_array() && (key == "fp32" || key == "compare" || key == "dimension")) {
    for (const Json& each : value) {
      words.insert(words.end(), {flag, scalar_text(file, key, each)});
    }
  } else {
    words.insert(words.end(), {flag, scalar_text(file, key, value)});
  }
}

TrainOptions parse_words(const std::vector<std::string>& words) {
  TrainOptions options;
  CLI::App app;
  add_train_options(app, options);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& e) {
    throw usage_error(e.what(), "halfscope train --help");
  }
  return options;
}

Json read_object(const std::string& file) {
  const std::vector<uint8_t> bytes = read_file(file);
  const Json json = Json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (!json.is_object()) {
    throw usage_error(file + " is not a JSON object",
                      "halfscope train --print-config writes one to begin with");
  }
  if (!json.contains("schema") || json["schema"] != kSchema) {
    throw usage_error(file + " does not say \"schema\": \"" + kSchema + "\"",
                      json.contains("schema") && json["schema"] == "halfscope.plan/1"
                          ? "this is a plan: use --plan " + file
                          : "halfscope train --print-config writes one to begin with");
  }
  return json;
}

}  // namespace

TrainOptions read_train_file(const std::string& file, const CLI::App& given) {
  const Json json = read_object(file);
  TrainOptions unused;
  CLI::App flags;
  add_train_options(flags, unused);
  std::set<std::string> typed;
  std::vector<std::string> typed_words;
  for (const CLI::Option* option : flags_of(given)) {
    const std::string flag = long_name(*option);
    if (option->count() == 0) continue;
    typed.insert(flag);
    if (!takes_value(*option)) typed_words.push_back(flag);
    for (const std::string& text :
         takes_value(*option) ? option->results() : std::vector<std::string>{}) {
      typed_words.insert(typed_words.end(), {flag, text});
    }
  }
  // Flags that say the same in another way.
  if (typed.contains("--plan")) typed.insert("--lanes");
  if (typed.contains("--lanes")) typed.insert("--plan");
  if (typed.contains("--optimizer")) typed.insert("--lr");
  std::vector<std::string> words, all;
  for (const auto& [key, value] : json.items()) {
    if (key == "schema") continue;
    const std::vector<std::string> keys = known_keys();
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      throw usage_error(file + ": unknown key \"" + key + "\"",
                        did_you_mean(key, keys, "keys: " + comma_list(keys)));
    }
    const CLI::Option& option = *flags.get_option(flag_of(key));
    add_words(file, key, value, option, words);
    if (!typed.contains(flag_of(key))) add_words(file, key, value, option, all);
  }
  try {
    parse_words(words);
  } catch (const Error& e) {
    throw Error(file + ": " + e.what(), e.hint(), e.kind());
  }
  all.insert(all.end(), typed_words.begin(), typed_words.end());
  return parse_words(all);
}

Json train_file_json(const TrainOptions& options) {
  const TrainConfig config = train_config(options);
  Json json;
  json["schema"] = kSchema;
  const auto text = [&json](const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value;
  };
  const auto number = [&json](const char* key, auto value) {
    if (value != 0) json[key] = value;
  };
  const auto list = [&json](const char* key, const std::vector<std::string>& values) {
    if (!values.empty()) json[key] = values;
  };
  text("model", options.model);
  text("loss", options.loss);
  text("data", options.data);
  text("normalize", options.normalize);
  list("dimension", options.dimensions);
  text("init", options.init);
  json["no_shuffle"] = options.no_shuffle;
  json["steps"] = options.steps;
  json["batch"] = options.batch;
  json["optimizer"] = optimizer_text(config.optimizer);
  text("optimizer_state", options.state_format);
  text("optimizer_compute", options.compute_format);
  if (config.average) json["ema"] = average_json(*config.average);
  json["eval_ema"] = options.eval_ema;
  json["schedule"] = schedule_text(config.schedule);
  json["clip_norm"] = options.clip_norm;
  text("clip_format", options.clip_format);
  json["micro_batches"] = options.micro_batches;
  text("accumulate_grads", options.accumulate_grads);
  number("early_stop", options.early_stop);
  json["seed"] = options.seed;
  json["lanes"] = Json::array();
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
    json["lanes"].push_back(std::move(plan));
  }
  json["backend"] = options.backend;
  json["fast"] = options.fast;
  list("fp32", options.fp32);
  text("accumulate", options.accumulate);
  text("loss_scale", options.loss_scale);
  json["every"] = options.every;
  json["no_record"] = options.no_record;
  number("eval_every", options.eval_every);
  json["no_eval"] = options.no_eval;
  number("errors_every", options.errors_every);
  list("compare", options.compare);
  json["no_errors"] = options.no_errors;
  return json;
}

}  // namespace halfscope
