// SPDX-License-Identifier: MIT
#include "cli/args/recording.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/args/config_file.h"
#include "cli/args/network.h"
#include "cli/args/zoo_case.h"
#include "core/error.h"

namespace halfscope {
namespace {

constexpr const char* kModel = "--model";

/// The first flag that `command` has and the other one has not.
std::optional<std::string> flag_of_one(const CLI::App& app, Commands command) {
  return given_recording_flag(app, [command](const std::string& flag, unsigned commands) {
    return flag != kModel && commands == command;
  });
}

std::string value_of(const CLI::App& app, const char* flag) {
  const CLI::Option* option = app.get_option(flag);
  return option->count() == 0 ? "" : option->results().front();
}

Commands command_for(const CLI::App& app, const std::string& network) {
  if (const std::string file = value_of(app, "--config"); !file.empty()) {
    return config_command(file);
  }
  if (zoo::is_zoo(network)) return zoo_case(network).trains() ? kTrain : kRun;
  if (flag_of_one(app, kTrain)) return kTrain;
  if (flag_of_one(app, kRun)) return kRun;
  return is_network_file(network) ? kRun : kTrain;
}

/// A flag that what is done does not have.
void check_flags(const CLI::App& app, Commands command, const std::string& network) {
  const bool trains = command == kTrain;
  const std::optional<std::string> wrong = flag_of_one(app, trains ? kRun : kTrain);
  if (!wrong) return;
  const std::optional<std::string> reason =
      zoo::is_zoo(network) ? std::nullopt : flag_of_one(app, command);
  const std::string hint = reason ? "leave out " + *wrong + ", or " + *reason : "leave it out";
  throw usage_error(
      fmt::format("{} is for {}, but {} is {}{}", *wrong,
                  trains ? "running a network forward" : "training", network,
                  trains ? "trained" : "run forward", reason ? " because of " + *reason : ""),
      hint);
}

/// What diagnosing needs.
void check_diagnosable(const Settings& settings) {
  if (settings.no_record || settings.no_errors) {
    const char* key = settings.no_record ? "no_record" : "no_errors";
    throw usage_error("diagnose needs the statistics and errors that this leaves out",
                      "take it out of the file")
        .about({key});
  }
  const bool reference_alone =
      settings.command == kRun && settings.plans.empty() && !settings.is_given("lanes");
  if (reference_alone) {
    throw usage_error("there is no lane to diagnose: only float32 is given", "add --plan PLAN");
  }
}

}  // namespace

bool names_network(const std::string& text) {
  if (is_network_file(text)) return true;
  const std::vector<std::string> words = network_words();
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return word.ends_with(':') ? text.starts_with(word) : text == word;
  });
}

void add_recording_flags(CLI::App& app) {
  const std::vector<Shown> shown{
      {kModel, "Network to record, in place of NETWORK"},
      {"--data", "Data set: digits, mnist:DIR, cifar10:DIR or FILE.npz[,test=FILE.npz]"},
      {"--input", "Samples to run it on: x.npy, x.npz or NAME=x.npy"},
      {"--random-input", "Random samples from this seed to run it on"},
      {"--plan", "Plan to diagnose beside float32, a preset or a file"},
      {"--lanes", "Plans to record, float32 among them, separated by commas"},
      {"--loss", "What an ONNX file is trained for: cross-entropy, mse or an output"},
      {"--optimizer", "sgd, adam, adamw or rmsprop, with options after a colon"},
      {"--steps", "Optimizer steps to train"},
      {"--batch", "Samples at once"},
      {"--config", "Read these settings from a file of `train` or `run`"}};
  add_recording_settings(app, "Network to record first", shown, {"--no-record", "--no-errors"});
}

Settings recording_settings(const CLI::App& app, const std::string& network) {
  const std::string model = value_of(app, kModel);
  if (!model.empty() && !network.empty()) {
    throw usage_error(network + " and --model both name a network", "leave out one of them");
  }
  const std::string named = network.empty() ? model : network;
  const Commands command = command_for(app, named);
  check_flags(app, command, named.empty() ? "the network of --config" : named);
  Settings settings = read_recording_settings(app, command, named);
  if (settings.model.empty()) {
    throw usage_error("the configuration file names no network", "add NETWORK")
        .about({"model", "network"});
  }
  naming_keys(settings, [&] {
    if (zoo::is_zoo(settings.model)) take_case_plan(settings);
    check_diagnosable(settings);
  });
  return settings;
}

void check_no_recording_flags(const CLI::App& app, const std::string& file) {
  const auto any = [](const std::string&, unsigned) { return true; };
  if (const std::optional<std::string> flag = given_recording_flag(app, any)) {
    throw usage_error(fmt::format("{} is for recording, but {} is recorded already", *flag, file),
                      "leave it out, or name a network in place of the run file");
  }
}

}  // namespace halfscope
