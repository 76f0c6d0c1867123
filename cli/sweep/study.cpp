// SPDX-License-Identifier: MIT
#include "cli/sweep/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "analysis/rules/text.h"
#include "cli/args/config_file.h"
#include "cli/args/lanes.h"
#include "cli/args/setting.h"
#include "cli/sweep/trial_hash.h"
#include "cli/tasks/training.h"
#include "core/data/stored_array.h"
#include "core/json_keys.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStudySchema = "halfscope.study/1";
constexpr int64_t kMostTrials = 1'000'000;

/// An axis as the file has it.
struct Axis {
  std::string key;
  std::vector<Json> values;
};

/// "mixed_float16", "7", "true", "dynamic:65536"; of lists "conv1,conv2", of plans their name.
std::string compact(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "default";
  if (value.is_array()) {
    std::string text;
    for (const Json& each : value) text += (text.empty() ? "" : ",") + compact(each);
    return text;
  }
  if (value.is_object() && value.contains("backend") && value.contains("plan")) {
    return compact(value["backend"]) + ":" + compact(value["plan"]);
  }
  if (value.is_object() && value.contains("name")) return compact(value["name"]);
  if (value.is_number_float()) return shortest(value.get<double>());
  return value.dump();
}

/// The reader of one study file.
class StudyReader {
 public:
  explicit StudyReader(const std::string& file) : name_(file), file_(fs::absolute(file)) {}

  StudyPlan read() {
    read_file();
    base_ = default_settings(kTrain);
    base_.lanes.clear();
    base_.config = name_;  // which errors name
    read_settings();
    StudyPlan study{.file = file_, .info = info_, .threads = threads_};
    expand(study);
    add_baselines(study);
    finish(study);
    return study;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& hint = "") const {
    throw usage_error(name_ + ": " + what, hint);
  }

  void read_file() {
    if (std::error_code ignored; fs::is_directory(file_, ignored)) {
      throw usage_error(fmt::format("'{}' is a folder, not a study", name_),
                        "pass the JSON file of a study");
    }
    info_.json = read_json_text(name_);
    json_ = parse_json(name_, info_.json);
    if (json_.is_discarded()) refuse("not valid JSON: " + json_problem(info_.json), kJsonHint);
    if (!json_.is_object()) refuse("not a JSON object", "see docs/reference/sweep.md");
    if (!json_.contains("schema") || json_["schema"] != kStudySchema) {
      throw usage_error(fmt::format("{} does not say \"schema\": \"{}\"", name_, kStudySchema),
                        "see docs/reference/sweep.md for a study to begin with");
    }
    const std::vector<std::string> keys{"schema",   "name", "settings",
                                        "baseline", "axes", "tolerance"};
    for (const auto& [key, unused] : json_.items()) {
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      refuse("unknown key \"" + visible_name(key) + "\"",
             did_you_mean(key, keys, "keys: " + comma_list(keys)));
    }
    info_.version = HALFSCOPE_VERSION;
    info_.name = text_of("name", "");
    read_baseline();
    read_tolerance();
    read_axes();
  }

  std::string text_of(const char* key, const std::string& otherwise) const {
    if (!json_.contains(key)) return otherwise;
    if (!json_[key].is_string()) refuse(fmt::format("\"{}\" must be a text", key));
    return json_[key].get<std::string>();
  }

  void read_baseline() {
    if (json_.contains("baseline") && json_["baseline"].is_null()) return;
    const Json baseline = json_.contains("baseline") ? json_["baseline"] : Json("float32");
    baseline_ = plan_in(baseline, "baseline");
    info_.baseline = compact(baseline);
  }

  void read_tolerance() {
    if (!json_.contains("tolerance") || json_["tolerance"].is_null()) return;
    const Json& tolerance = json_["tolerance"];
    if (!tolerance.is_number() || !(tolerance.get<double>() >= 0.0)) {
      refuse("\"tolerance\" must be a number of at least 0", "0.05 allows a loss 5% higher");
    }
    info_.tolerance = tolerance.get<double>();
  }

  /// {"from": 1, "to": 20, "step": 1}
  std::vector<Json> range_in(const std::string& key, const Json& json) const {
    const std::vector<std::string> keys{"from", "to", "step"};
    const std::string where = "axis \"" + key + "\": ";
    for (const auto& [name, value] : json.items()) {
      if (std::find(keys.begin(), keys.end(), name) == keys.end()) {
        refuse(where + "unknown key \"" + visible_name(name) + "\"",
               did_you_mean(name, keys, "keys: " + comma_list(keys)));
      }
      if (!value.is_number_integer()) refuse(where + "\"" + name + "\" must be a whole number");
      constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
      if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{kMost}) {
        refuse(fmt::format("{}\"{}\" must be at most {}", where, name, kMost));
      }
    }
    if (!json.contains("from") || !json.contains("to")) {
      refuse(where + "a range needs \"from\" and \"to\"", "write {\"from\": 1, \"to\": 20}");
    }
    const auto from = json["from"].get<int64_t>(), to = json["to"].get<int64_t>();
    const int64_t step = json.contains("step") ? json["step"].get<int64_t>() : 1;
    if (step < 1) refuse(where + "\"step\" must be at least 1");
    if (to < from) return {};
    // The distance of two int64 may need all bits.
    const uint64_t distance = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
    const uint64_t steps = distance / static_cast<uint64_t>(step);
    if (steps >= static_cast<uint64_t>(kMostTrials)) {
      refuse(where + "more than a million values", "divide the study");
    }
    std::vector<Json> values{from};
    for (int64_t value = from; values.size() <= steps;) values.emplace_back(value += step);
    return values;
  }

  void read_axes() {
    if (!json_.contains("axes") || !json_["axes"].is_object()) {
      refuse(
          "\"axes\" must be an object of lists",
          "write \"axes\": {\"plan\": [\"mixed_float16\"], \"seed\": {\"from\": 1, \"to\": 20}}");
    }
    int64_t trials = 1;
    for (const auto& [key, json] : json_["axes"].items()) {
      if (!json.is_array() && !json.is_object()) {
        refuse("axis \"" + visible_name(key) + "\" must be a list of values or a range",
               "write [1, 2, 3] or {\"from\": 1, \"to\": 20}");
      }
      Axis axis{key, json.is_object() ? range_in(key, json)
                                      : std::vector<Json>(json.begin(), json.end())};
      if (axis.values.empty()) {
        refuse("axis \"" + visible_name(key) + "\" has no values", "add one, or remove the axis");
      }
      if (key == "lanes" || key == "threads") {
        refuse("\"" + key + "\" cannot be an axis",
               key == "lanes" ? "a trial has one lane: use the axis \"plan\""
                              : "put it into \"settings\"");
      }
      StudyAxis texts{key};
      for (const Json& value : axis.values) texts.values.push_back(compact(value));
      info_.axes.push_back(std::move(texts));
      trials *= static_cast<int64_t>(axis.values.size());
      if (trials > kMostTrials) refuse("more than a million trials", "divide the study");
      axes_.push_back(std::move(axis));
    }
    if (!json_["axes"].contains("plan")) {
      refuse("the axis \"plan\" is missing", "add \"plan\": [\"mixed_float16\"]");
    }
  }

  /// Names of files are relative to the study file.
  std::string resolved(const std::string& path) const {
    return (file_.parent_path() / path).lexically_normal().string();
  }

  LaneRequest plan_in(const Json& json, const std::string& key) const {
    try {
      return lane_from_json(json);
    } catch (const Error& error) {
      throw error.with_text(fmt::format("{}: \"{}\": {}", name_, key, error.what()));
    }
  }

  void read_settings() {
    const Json settings = json_.contains("settings") ? json_["settings"] : Json::object();
    if (!settings.is_object()) refuse("\"settings\" must be an object");
    for (const auto& [key, value] : settings.items()) {
      if (key == "plan" || key == "lanes") {
        refuse("\"" + key + "\" cannot be among the settings", "use the axis \"plan\"");
      }
      if (std::any_of(axes_.begin(), axes_.end(),
                      [&](const Axis& axis) { return axis.key == key; })) {
        refuse("\"" + key + "\" is a setting and an axis", "keep one of them");
      }
      if (key == "threads") {
        if (!value.is_number_integer() || value.get<int64_t>() < 1 ||
            value.get<int64_t>() > kMostThreads) {
          refuse(fmt::format("\"threads\" must be a whole number from 1 to {}", kMostThreads));
        }
        threads_ = value.get<int>();
        continue;
      }
      read_config_key(base_, name_, key, value);
    }
  }

  /// Sets one value of an axis.
  void set_value(Settings& settings, const Axis& axis, const Json& value) const {
    if (axis.key == "plan") {
      settings.lanes = {plan_in(value, "plan")};
    } else {
      read_config_key(settings, name_, axis.key, value);
    }
  }

  /// Fills in what no axis changes any more.
  void complete(Settings& settings) const {
    finish_settings(settings);
    if (!settings.is_given("every") && !settings.no_record) {
      settings.every = static_cast<int>(
          std::max<int64_t>(1, std::min<int64_t>(settings.steps / kStudyRecordedSteps, 1 << 30)));
    }
    change_paths(settings, [this](const std::string& path) { return resolved(path); });
    settings.plans.clear();
    settings.given.insert("lanes");
    settings.from_file.insert("plan");
  }

  /// Throws Error where the settings do not fit together. Trials of a known kind do.
  void check(const StudyTrial& trial) {
    if (!checked_.insert(trial.kind).second) return;
    try {
      train_config(trial.settings);
    } catch (const Error& error) {
      throw named_in_study(trial, error);
    }
  }

  bool is_full(const Settings& settings) {
    const auto [found, is_new] = full_.emplace(TrialHasher::kind(settings), false);
    if (is_new) {
      found->second = naming_keys(
          settings, [&] { return is_full_precision(plan_of(settings.lanes.at(0), settings)); });
    }
    return found->second;
  }

  /// Settings that a lane does not follow make no other training.
  std::string hash_of(const Settings& settings) {
    return hasher_.hash(is_full(settings) ? full_precision_settings(settings) : settings);
  }

  void add(StudyPlan& study, Settings settings, std::vector<int> places) {
    StudyTrial trial;
    trial.settings = std::move(settings);
    trial.kind = TrialHasher::kind(trial.settings);
    check(trial);
    trial.spec.hash = hash_of(trial.settings);
    trial.spec.places = std::move(places);
    study.trials.push_back(std::move(trial));
  }

  void expand(StudyPlan& study) {
    std::vector<int> places(axes_.size(), 0);
    // settings[i] has the values of the first i axes.
    std::vector<Settings> settings(axes_.size() + 1, base_);
    size_t changed = 0;
    while (true) {
      for (size_t axis = changed; axis < axes_.size(); ++axis) {
        settings[axis + 1] = settings[axis];
        set_value(settings[axis + 1], axes_[axis],
                  axes_[axis].values[static_cast<size_t>(places[axis])]);
      }
      Settings complete_settings = settings.back();
      complete(complete_settings);
      add(study, std::move(complete_settings), places);
      changed = axes_.size();
      while (changed > 0) {
        --changed;
        if (++places[changed] < static_cast<int>(axes_[changed].values.size())) break;
        places[changed] = 0;
        if (changed == 0) return check_different(study);
      }
    }
  }

  std::string words(const StudyPlan& study, const StudyTrial& trial) const {
    std::string text;
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      text +=
          fmt::format("{}{} {}", text.empty() ? "" : ", ", axes_[axis].key,
                      study.info.axes[axis].values[static_cast<size_t>(trial.spec.places[axis])]);
    }
    return text;
  }

  void check_different(const StudyPlan& study) const {
    std::map<std::string, size_t> seen;
    for (size_t i = 0; i < study.trials.size(); ++i) {
      const auto [found, is_new] = seen.emplace(study.trials[i].spec.hash, i);
      if (is_new) continue;
      refuse(fmt::format("two trials are the same training: {}; and {}",
                         words(study, study.trials[found->second]), words(study, study.trials[i])),
             "remove the value that changes nothing");
    }
  }

  Settings baseline_of(const Settings& trial) {
    Settings settings = trial;
    settings.lanes = {*baseline_};
    change_paths(settings, [this](const std::string& path) { return resolved(path); });
    return is_full(settings) ? full_precision_settings(settings) : settings;
  }

  /// Returns whether the setting of an axis is gone from a baseline.
  bool is_stripped(const Axis& axis, const Settings& trial, const Settings& baseline) const {
    const Setting* row = find_setting(kTrain, axis.key);
    if (row == nullptr) return false;
    const auto now = row->value.texts(baseline);
    return now != row->value.texts(trial) && now == row->value.texts(defaults_);
  }

  /// Returns whether a trial has the same baseline as those that differ from it in one axis alone.
  bool is_shared(size_t axis, size_t trial, const StudyPlan& study,
                 const std::vector<size_t>& bases) const {
    size_t stride = 1;
    for (size_t i = axis + 1; i < axes_.size(); ++i) stride *= axes_[i].values.size();
    const auto place = static_cast<size_t>(study.trials[trial].spec.places[axis]);
    const size_t first = trial - place * stride;
    for (size_t value = 0; value < axes_[axis].values.size(); ++value) {
      if (bases[first + value * stride] != bases[trial]) return false;
    }
    return true;
  }

  /// Returns the places of a trial's baseline. Axes that do not change it have none. Others keep
  /// the trial's place: it keeps baselines apart even where two values share one of them.
  std::vector<int> places_of_base(size_t trial, const StudyPlan& study,
                                  const std::vector<size_t>& bases) const {
    std::vector<int> places = study.trials[trial].spec.places;
    const Settings& settings = study.trials[trial].settings;
    const Settings& baseline = study.trials[bases[trial]].settings;
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      const bool applies =
          axes_[axis].key != "plan" &&
          (axes_[axis].values.size() > 1 ? !is_shared(axis, trial, study, bases)
                                         : !is_stripped(axes_[axis], settings, baseline));
      if (!applies) places[axis] = -1;
    }
    return places;
  }

  void add_baselines(StudyPlan& study) {
    if (!baseline_) return;
    const size_t trials = study.trials.size();
    std::map<std::string, size_t> known;
    for (size_t i = 0; i < trials; ++i) known.emplace(study.trials[i].spec.hash, i);
    std::vector<size_t> bases;            // by trial
    std::vector<size_t> first_with_base;  // by baseline that is added here
    for (size_t i = 0; i < trials; ++i) {
      const Settings settings = baseline_of(study.trials[i].settings);
      const auto [found, is_new] = known.emplace(hash_of(settings), study.trials.size());
      bases.push_back(found->second);
      if (bases[i] != i) study.trials[i].spec.base = static_cast<int>(bases[i]);
      if (!is_new) continue;
      add(study, settings, {});
      study.trials.back().spec.baseline = true;
      first_with_base.push_back(i);
    }
    for (size_t i = 0; i < first_with_base.size(); ++i) {
      study.trials[trials + i].spec.places = places_of_base(first_with_base[i], study, bases);
    }
  }

  static void finish(StudyPlan& study) {
    for (StudyTrial& trial : study.trials) {
      trial.spec.run = "trials/" + trial.spec.hash + ".hscope";
      trial.spec.command = "halfscope train";
      for (const auto& words :
           {settings_words(trial.settings), lane_settings_words(trial.settings)}) {
        for (const std::string& word : words) trial.spec.command += " " + shell_quoted(word);
      }
      trial.spec.command += " --out " + trial.spec.run;
    }
  }

  static constexpr int64_t kMostThreads = 1024;

  std::string name_;  ///< as it was given
  fs::path file_;
  Json json_;
  StudyInfo info_;
  std::vector<Axis> axes_;
  Settings base_;
  const Settings defaults_ = default_settings(kTrain);
  int threads_ = 1;
  std::optional<LaneRequest> baseline_;
  TrialHasher hasher_;
  std::set<std::string> checked_;     // kinds
  std::map<std::string, bool> full_;  // by kind: whether its plan is in full precision
};

}  // namespace

std::vector<TrialSpec> StudyPlan::specs() const {
  std::vector<TrialSpec> all;
  for (const StudyTrial& trial : trials) all.push_back(trial.spec);
  return all;
}

Error named_in_study(const StudyTrial& trial, const Error& error) {
  std::vector<std::string> keys = error.settings();
  std::replace(keys.begin(), keys.end(), std::string("lanes"), std::string("plan"));
  return named(trial.settings, error.about(keys));
}

StudyPlan read_study(const std::string& file) { return StudyReader(file).read(); }

}  // namespace halfscope
