// SPDX-License-Identifier: MIT
#include "cli/tasks/twin_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "cli/args/config_file.h"
#include "cli/args/setting.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "twin.json";
constexpr const char* kSchema = "halfscope.twin/1";
constexpr const char* kAgain = "write the folder again with save_twin() of the Python package";
constexpr int64_t kMostSteps = 1'000'000;

/// The flags that a twin may set. Files of others have no effect on its folder.
constexpr std::array kFlags{"--model",    "--data",      "--loss",       "--optimizer",
                            "--batch",    "--steps",     "--no-shuffle", "--frozen",
                            "--schedule", "--clip-norm", "--param-group"};
/// Begins a schedule whose rates are in a file.
constexpr std::string_view kRates = "file:";

Error twin_error(const TwinFolder& twin, const std::string& what) {
  return Error(fmt::format("twin '{}': {}", twin.folder, what), kAgain);
}

const Setting* row_of(const std::string& flag) {
  for (const Setting* row : settings_of(kTrain)) {
    if (row->flag == flag) return row;
  }
  return nullptr;
}

/// Returns the path of a file of the twin. Throws Error if it is missing or outside the folder.
std::string file_inside(const TwinFolder& twin, const std::string& name) {
  const fs::path path(name);
  const auto outside = [&] {
    return twin_error(twin, fmt::format("{} names '{}', which is not in the folder", kFile, name));
  };
  if (name.empty() || path.is_absolute()) throw outside();
  std::error_code failed;
  const fs::path whole = fs::path(twin.folder) / path;
  const fs::path base = fs::canonical(twin.folder, failed);
  const fs::path target = failed ? fs::path() : fs::weakly_canonical(whole, failed);
  if (failed) throw twin_error(twin, "cannot read it: " + failed.message());
  if (std::mismatch(base.begin(), base.end(), target.begin(), target.end()).first != base.end()) {
    throw outside();
  }
  if (!fs::is_regular_file(target, failed)) {
    throw twin_error(twin, fmt::format("file not found: {}", name));
  }
  return whole.lexically_normal().string();
}

void read_arguments(TwinFolder& twin, const Json& json) {
  const auto bad = [&](const std::string& what) {
    return twin_error(twin, fmt::format("{}: \"arguments\" {}", kFile, what));
  };
  if (!json.is_array()) throw bad("is not a list");
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_string()) throw bad("contains something other than texts");
    const std::string flag = json[i].get<std::string>();
    const Setting* row =
        std::find(kFlags.begin(), kFlags.end(), flag) == kFlags.end() ? nullptr : row_of(flag);
    if (row == nullptr) throw bad("has '" + flag + "', which twins do not set");
    std::string value;
    if (row->value.name != nullptr) {
      if (i + 1 == json.size() || !json[i + 1].is_string()) throw bad(flag + " has no value");
      value = json[++i].get<std::string>();
    }
    if (flag == "--model" || flag == "--data") value = file_inside(twin, value);
    if (flag == "--schedule" && value.starts_with(kRates)) {
      value = std::string(kRates) + file_inside(twin, value.substr(kRates.size()));
    }
    twin.settings.emplace_back(flag, value);
  }
  for (const char* flag : {"--model", "--data", "--loss", "--optimizer", "--batch"}) {
    const auto is_it = [&](const auto& each) { return each.first == flag; };
    if (std::none_of(twin.settings.begin(), twin.settings.end(), is_it)) {
      throw bad(fmt::format("lacks {}", flag));
    }
  }
}

void read_losses(TwinFolder& twin, const Json& json) {
  const bool usable = json.is_array() && !json.empty() && json.size() <= kMostSteps;
  if (!usable) throw twin_error(twin, fmt::format("{} has no losses", kFile));
  for (const Json& each : json) {
    const double loss = each.is_number() ? each.get<double>() : std::nan("");
    if (!std::isfinite(loss)) {
      throw twin_error(twin, fmt::format("{}: the loss of step {} is not a finite number", kFile,
                                         twin.losses.size()));
    }
    twin.losses.push_back(loss);
  }
}

/// Reads an array of objects with these keys. Throws Error if it is damaged.
void check_objects(const TwinFolder& twin, const Json& json, const char* name,
                   std::span<const char* const> texts, std::span<const char* const> numbers) {
  const auto has = [](const Json& each, const char* key, bool number) {
    return each.contains(key) && (number ? each[key].is_number() : each[key].is_string());
  };
  bool good = json.is_array();
  for (size_t i = 0; good && i < json.size(); ++i) {
    good = json[i].is_object();
    for (const char* key : texts) good = good && has(json[i], key, false);
    for (const char* key : numbers) good = good && has(json[i], key, true);
  }
  if (!good) throw twin_error(twin, fmt::format("{}: \"{}\" is damaged", kFile, name));
}

/// Reads what modules wrote, which older twins do not say.
void read_outputs(TwinFolder& twin, const Json& json) {
  check_objects(twin, json, "outputs", std::array{"module", "node"},
                std::array{"n", "norm", "max_abs"});
  for (const Json& each : json) {
    twin.outputs.push_back({.module = each["module"].get<std::string>(),
                            .node = each["node"].get<std::string>(),
                            .n = each["n"].get<int64_t>(),
                            .norm = each["norm"].get<double>(),
                            .max_abs = each["max_abs"].get<double>()});
  }
}

/// Reads the gradients of the first step, which older twins do not say.
void read_gradients(TwinFolder& twin, const Json& json) {
  check_objects(twin, json, "gradients", std::array{"parameter"}, std::array{"norm", "moved"});
  for (const Json& each : json) {
    twin.gradients.push_back({.parameter = each["parameter"].get<std::string>(),
                              .norm = each["norm"].get<double>(),
                              .moved = each["moved"].get<double>()});
  }
}

/// Reads losses of PyTorch's training from moved weights, which older twins do not have. A loss
/// that is not finite is null.
void read_moved_losses(TwinFolder& twin, const Json& json) {
  const auto bad = [&] {
    return twin_error(twin, fmt::format("{}: \"moved_losses\" is damaged", kFile));
  };
  if (!json.is_array()) throw bad();
  for (const Json& row : json) {
    if (!row.is_array() || row.size() != twin.losses.size()) throw bad();
    std::vector<double>& losses = twin.moved_losses.emplace_back();
    for (const Json& each : row) {
      if (!each.is_number() && !each.is_null()) throw bad();
      losses.push_back(each.is_null() ? std::nan("") : each.get<double>());
    }
  }
}

/// Returns names of modules, which older twins do not have.
std::vector<std::string> read_modules(const TwinFolder& twin, const Json& json, const char* key) {
  if (!json.contains(key)) return {};
  const Json& list = json[key];
  bool good = list.is_array();
  for (size_t i = 0; good && i < list.size(); ++i) good = list[i].is_string();
  if (!good) throw twin_error(twin, fmt::format("{}: \"{}\" is damaged", kFile, key));
  return list.get<std::vector<std::string>>();
}

/// Sets what the twin sets, except `--steps` if `settings` has its own.
void add_to(Settings& settings, const TwinFolder& twin) {
  for (const auto& [flag, value] : twin.settings) {
    const Setting* row = row_of(flag);
    if (flag == "--steps" && settings.is_given("steps")) continue;
    try {
      row->value.read(settings, flag, value);
    } catch (const Error& error) {
      throw twin_error(twin, error.what());
    }
  }
  for (const auto& [flag, value] : twin.settings) settings.given.insert(row_of(flag)->key());
}

}  // namespace

std::string TwinFolder::file() const { return (fs::path(folder) / kFile).string(); }

bool is_twin_folder(const std::string& name) {
  std::error_code ignored;
  return fs::is_directory(name, ignored);
}

TwinFolder read_twin(const std::string& folder) {
  TwinFolder twin{.folder = folder};
  const std::string file = TwinFolder{.folder = folder}.file();
  std::error_code failed;
  if (!fs::exists(file, failed)) {
    throw usage_error(
        fmt::format("'{}' is a folder without a {}, so it is not a twin", folder, kFile),
        "name a run file, a network, or a folder that save_twin() wrote");
  }
  const Json json = read_json(file);
  if (!json.is_object()) throw twin_error(twin, fmt::format("{} is not a JSON object", kFile));
  if (!json.contains("schema") || json["schema"] != kSchema) {
    throw twin_error(twin, fmt::format("{} does not say \"schema\": \"{}\"", kFile, kSchema));
  }
  for (const char* key : {"arguments", "losses"}) {
    if (!json.contains(key)) throw twin_error(twin, fmt::format("{} lacks \"{}\"", kFile, key));
  }
  read_arguments(twin, json["arguments"]);
  read_losses(twin, json["losses"]);
  if (json.contains("outputs")) read_outputs(twin, json["outputs"]);
  if (json.contains("gradients")) read_gradients(twin, json["gradients"]);
  if (json.contains("moved_losses")) read_moved_losses(twin, json["moved_losses"]);
  twin.lost_casts = read_modules(twin, json, "lost_casts");
  twin.autocast_off = read_modules(twin, json, "autocast_off");
  return twin;
}

Settings own_settings(const TwinFolder& twin, int64_t steps) {
  Settings settings = default_settings(kTrain);
  add_to(settings, twin);
  settings.steps = std::min(steps, static_cast<int64_t>(twin.losses.size()));
  return settings;
}

Settings twin_settings(const CLI::App& app, const TwinFolder& twin) {
  const auto refuse = [&](const std::string& flag) {
    return usage_error(fmt::format("{} does not go with the twin '{}', which has its own settings",
                                   flag, twin.folder),
                       "leave it out");
  };
  const auto other = [&](const std::string& flag, unsigned commands) {
    const bool own = std::find(kFlags.begin(), kFlags.end(), flag) != kFlags.end();
    const bool sets = std::any_of(twin.settings.begin(), twin.settings.end(),
                                  [&](const auto& each) { return each.first == flag; });
    const bool open = flag == "--steps" || flag == "--frozen" || (flag == "--clip-norm" && !sets);
    return commands == kRun || flag == "--config" || flag == "--lr" || (own && !open);
  };
  if (const std::optional<std::string> flag = given_recording_flag(app, other)) {
    throw refuse(*flag);
  }
  Settings settings = read_recording_settings(app, kTrain, "");
  add_to(settings, twin);
  for (const auto& [flag, parts] : {std::pair{"--micro-batches", settings.micro_batches},
                                    std::pair{"--ranks", settings.ranks}}) {
    if (parts <= 1) continue;
    throw usage_error(
        fmt::format("{} does not go with the twin '{}': its network takes all {} samples of a "
                    "batch at once",
                    flag, twin.folder, settings.batch),
        "leave it out, or export the network with an open batch and train it with --model");
  }
  return settings;
}

}  // namespace halfscope
