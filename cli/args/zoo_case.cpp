// SPDX-License-Identifier: MIT
#include "cli/args/zoo_case.h"

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include "cli/args/lanes.h"
#include "cli/args/setting.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

std::string after_prefix(const std::string& spec) { return spec.substr(zoo::kPrefix.size()); }

/// The settings of a case as keys and texts of the table.
std::vector<std::pair<std::string, std::string>> settings_of_case(const std::string& spec,
                                                                  Commands command) {
  if (command == kRun) return {{"data", spec}};
  const TrainConfig& train = zoo_setup(spec).train;
  std::vector<std::pair<std::string, std::string>> all{
      {"data", spec},
      {"steps", std::to_string(train.steps)},
      {"batch", std::to_string(train.batch)},
      {"optimizer", optimizer_text(train.optimizer)},
      {"micro_batches", std::to_string(train.micro_batches)},
      {"ranks", std::to_string(train.ranks)}};
  if (!train.shuffle) all.emplace_back("no_shuffle", "");
  if (train.schedule != Schedule{}) {
    all.emplace_back("schedule", schedule_text(train.schedule));
  }
  if (train.average) all.emplace_back("ema", weight_average_text(*train.average));
  return all;
}

}  // namespace

const zoo::Case& zoo_case(const std::string& spec) { return zoo::find_case(after_prefix(spec)); }

const zoo::Setup& zoo_setup(const std::string& spec) {
  static std::map<std::string, std::unique_ptr<const zoo::Setup>> built;
  std::unique_ptr<const zoo::Setup>& setup = built[spec];
  if (!setup) setup = std::make_unique<const zoo::Setup>(zoo_case(spec).make());
  return *setup;
}

Model zoo_network(const std::string& spec) {
  Model network = zoo_setup(spec).model;
  network.name = spec;
  return network;
}

Dataset zoo_data(const std::string& spec) {
  Dataset data = zoo_setup(spec).data;
  data.name = spec;
  return data;
}

Dataset load_data(const std::string& spec) {
  return zoo::is_zoo(spec) ? zoo_data(spec) : load_dataset(spec);
}

void take_case_settings(Settings& settings) {
  const bool trains = settings.command == kTrain;
  if ((!trains && settings.command != kRun) || !zoo::is_zoo(settings.model)) return;
  const zoo::Case& which = zoo_case(settings.model);
  if (which.trains() != trains) {
    throw usage_error(
        settings.model + (trains ? " is run forward, not trained" : " is trained"),
        trains ? "halfscope run " + settings.model : "halfscope train --model " + settings.model)
        .about({"model", "network"});
  }
  for (const auto& [key, text] : settings_of_case(settings.model, settings.command)) {
    const Setting& row = *find_setting(settings.command, key);
    const auto replaced = [&](const std::string& other) { return settings.is_given(other); };
    // A learning rate of its own changes the case's optimizer and does not replace it.
    const bool other =
        key == "data" && std::any_of(row.replaces.begin(), row.replaces.end(), replaced);
    if (!settings.is_given(key) && !other) row.value.read(settings, row.flag, text);
  }
}

std::string plan_of_case(const zoo::Case& which) {
  return which.right.empty() ? which.plain.front() : which.right.front();
}

void take_case_plan(Settings& settings) {
  if (settings.is_given("lanes") || settings.is_given("plan")) return;
  const zoo::Case& which = zoo_case(settings.model);
  const std::vector<std::string> words = lane_words(which, plan_of_case(which));
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    for (const Setting* row : settings_of(settings.command)) {
      if (row->flag != words[i] || settings.is_given(row->key())) continue;
      row->value.read(settings, row->flag, words[i + 1]);
    }
  }
}

Plan zoo_plan_of(const std::string& spec) {
  const std::string name = after_prefix(spec);
  if (std::optional<Plan> plan = zoo::zoo_plan(name)) return *plan;
  const std::vector<std::string> names = zoo::zoo_plan_names();
  throw usage_error("the zoo has no plan '" + name + "'",
                    did_you_mean(name, names, "plans of the zoo: " + comma_list(names)));
}

std::vector<std::string> lane_words(const zoo::Case& which, const std::string& plan) {
  std::istringstream stream(plan);
  std::string name, word;
  stream >> name;
  std::vector<std::string> words{"--plan", preset_plan(name) ? name : "zoo:" + name};
  while (stream >> word) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    static const std::map<std::string, std::string> kFlags{
        {"accumulate", "--accumulate"}, {"compute", "--optimizer-compute"}, {"average", "--ema"},
        {"sum", "--accumulate-grads"},  {"state", "--optimizer-state"},     {"reduce", "--reduce"},
        {"scale", "--loss-scale"},      {"schedule", "--schedule"}};
    words.push_back(kFlags.at(key));
    if (key != "average" && key != "schedule") {
      words.push_back(value);
      continue;
    }
    const TrainConfig& train = zoo_setup(std::string(zoo::kPrefix) + which.id).train;
    if (key == "schedule") {
      Schedule schedule = train.schedule;
      schedule.format = stored_format("--schedule", value);
      words.push_back(schedule_text(schedule));
      continue;
    }
    WeightAverage average = train.average.value();
    average.format = average.compute = stored_format("--ema", value);
    words.push_back(weight_average_text(average));
  }
  return words;
}

}  // namespace halfscope
