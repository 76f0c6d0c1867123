// SPDX-License-Identifier: MIT
#include "cli/sweep/trial_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "cli/args/config_file.h"
#include "cli/args/network.h"
#include "cli/args/tf_amp.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/models/zoo/zoo.h"
#include "core/numeric/formats/rng.h"
#include "core/onnx/import.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

/// Returns `start` extended by a file's bytes: the hash of everything so far.
uint64_t hash_file(const fs::path& file, uint64_t start) {
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::array<char, 1U << 16U> part{};
  uint64_t hash = start;
  while (stream) {
    stream.read(part.data(), part.size());
    hash = fnv1a({part.data(), static_cast<size_t>(stream.gcount())}, hash);
  }
  if (stream.eof()) return hash;
  const std::error_code reason(errno == 0 ? ENOENT : errno, std::generic_category());
  throw Error(fmt::format("cannot read '{}': {}", file.string(), reason.message()),
              "check the path and its permissions");
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string changed_data(const std::string& spec,
                         const std::function<std::string(const std::string&)>& change) {
  if (zoo::is_zoo(spec)) return spec;
  const std::vector<std::string> files = dataset_files(spec);
  if (files.empty()) {
    const size_t colon = spec.find(':');
    if (colon == spec.npos || colon + 1 == spec.size()) return spec;
    return spec.substr(0, colon + 1) + change(spec.substr(colon + 1));
  }
  std::string result;
  size_t from = 0;
  for (const std::string& file : files) {
    const size_t at = spec.find(file, from);
    result += spec.substr(from, at - from) + change(file);
    from = at + file.size();
  }
  return result + spec.substr(from);
}

bool exists(const std::string& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

/// Returns whether a lane's plan is the name of a file, as it is or as `changed`.
bool is_plan_file(const LaneRequest& lane, const std::string& changed) {
  const std::string& plan = lane.plan;
  if (lane.spelled_out || zoo::is_zoo(plan) || plan == kAsExported || is_tf_amp(plan)) return false;
  if (needs_network(plan) || preset_plan(plan)) return false;
  // A name that is misspelt stays as it is, for the error that says so.
  return plan.find('/') != plan.npos || plan.ends_with(".json") || exists(plan) || exists(changed);
}

}  // namespace

void change_paths(Settings& settings,
                  const std::function<std::string(const std::string&)>& change) {
  for (LaneRequest& lane : settings.lanes) {
    const std::string changed = change(lane.plan);
    if (is_plan_file(lane, changed)) lane.plan = changed;
  }
  if (is_network_file(settings.model)) settings.model = change(settings.model);
  for (std::string* file : {&settings.init, &settings.schedule.file}) {
    if (!file->empty()) *file = change(*file);
  }
  settings.data = changed_data(settings.data, change);
}

std::string TrialHasher::contents(const std::string& path) {
  std::string& known = contents_[path];
  if (!known.empty()) return known;
  uint64_t hash = fnv1a("");
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    for (const fs::path& file : files_in(path)) {
      hash = hash_file(file, fnv1a(file.filename().string() + '\n', hash));
    }
  } else {
    hash = hash_file(path, hash);
    if (is_network_file(path)) {
      for (const fs::path& file : external_files(path)) {
        hash = hash_file(file, fnv1a(fmt::format("{}\n", fs::file_size(file)), hash));
      }
    }
  }
  return known = fmt::format("{:016x}", hash);
}

std::string TrialHasher::kind(const Settings& settings) {
  Settings seedless = settings;
  seedless.seed = 0;
  std::string text;
  for (const auto& words : {settings_words(seedless), lane_settings_words(seedless)}) {
    for (const std::string& word : words) text += word + '\n';
  }
  return text;
}

const std::string& TrialHasher::canonical(const Settings& settings) {
  std::string& text = canonical_[kind(settings)];
  if (!text.empty()) return text;
  Json json = config_json(settings);
  json.erase("seed");
  Settings named = settings;
  named.lanes.clear();  // plans are in the JSON with all they say
  change_paths(named, [this](const std::string& path) { return contents(path); });
  const std::string rates =
      named.schedule.file.empty() ? std::string() : schedule_text(named.schedule);
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, std::string>>{{"model", named.model},
                                                                  {"data", named.data},
                                                                  {"init", named.init},
                                                                  {"schedule", rates}}) {
    if (!value.empty()) json[key] = value;
  }
  for (Json& lane : json["lanes"]) {
    Json& plan = lane.is_object() && lane.contains("plan") ? lane["plan"] : lane;
    if (plan.is_object()) plan.erase("name");
  }
  return text = HALFSCOPE_VERSION + json.dump();
}

std::string TrialHasher::hash(const Settings& settings) {
  // Mixed once more, or the hashes of neighbouring seeds would look alike.
  return fmt::format(
      "{:016x}", splitmix64(fnv1a(fmt::format("{} seed {}", canonical(settings), settings.seed))));
}

}  // namespace halfscope
