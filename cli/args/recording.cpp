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

/// Returns the first given flag that only `command` has.
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

/// Throws Error (usage) if a flag is given that `command` does not have.
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

/// Throws Error (usage) if these settings record too little to diagnose.
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
    throw usage_error("nothing to diagnose: float32 is the only lane",
                      "add a plan, for example --plan mixed_float16");
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
      {kModel, "Network to record (same as NETWORK)"},
      {"--data",
       "Data set: digits, shapes, mnist:DIR, cifar10:DIR, text:FILE[,sequence=N] or "
       "FILE.npz[,test=FILE.npz]"},
      {"--input", "Samples to run on: x.npy, x.npz or NAME=x.npy (repeatable)"},
      {"--random-input", "Random samples to run on, drawn from this seed"},
      {"--plan", "Plan to diagnose (see `help plans`)"},
      {"--lanes", "Plans to record, including float32, separated by commas"},
      {"--loss",
       "Loss to train an ONNX file with: cross-entropy, mse, bce, detection or an output"},
      {"--optimizer", "Optimizer (see `help optimizers`)"},
      {"--steps", "Optimizer steps to train"},
      {"--batch", "Samples per batch"},
      {"--config", "Read these settings from a file (--config of train or run)"}};
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
    throw usage_error("the configuration file names no network", "add --model NAME")
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
