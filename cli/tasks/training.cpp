// SPDX-License-Identifier: MIT
#include "cli/tasks/training.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "cli/args/lanes.h"
#include "cli/args/network.h"
#include "cli/args/setting.h"
#include "cli/args/zoo_case.h"
#include "cli/tasks/run_input.h"
#include "core/data/tensor_file.h"
#include "core/error.h"
#include "core/models/loss.h"
#include "core/onnx/import.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// A setting that means nothing without another one.
struct Need {
  bool met;
  const char* key;  ///< of the setting
  const char* what;
  const char* hint;
};

void check_needs(const Settings& s) {
  const Need needs[] = {
      {!s.accumulate_grads || s.micro_batches > 1, "accumulate_grads",
       "--accumulate-grads needs more than one micro-batch", "add --micro-batches N"},
      {!s.reduction || s.ranks > 1, "reduce", "--reduce needs more than one rank", "add --ranks N"},
      {!s.evaluate_average || s.average, "eval_ema", "--eval-ema needs moving averages",
       "add --ema DECAY"},
      {s.save_ema.empty() || s.average, "save_ema", "--save-ema needs moving averages",
       "add --ema DECAY"},
      {!s.clip_format || s.clip_norm > 0.0, "clip_format", "--clip-format needs a norm to clip to",
       "add --clip-norm X"},
      {!s.clip_before_unscale || s.clip_norm > 0.0, "clip_before_unscale",
       "--clip-before-unscale needs a norm to clip to", "add --clip-norm X"},
      {!s.clip_before_unscale || !s.clip_format, "clip_before_unscale",
       "--clip-before-unscale cannot be combined with --clip-format", "leave out one of them"},
      {s.early_stop == 0 || s.eval_every > 0, "early_stop",
       "--early-stop needs evaluations to judge by", "add --eval-every N"},
      {!s.verify || !s.no_record, "no_record",
       "--verify needs the statistics that --no-record leaves out", "leave out one of them"},
      {s.checkpoint_every == 0 || !s.checkpoint.empty(), "checkpoint_every",
       "--checkpoint-every needs a file to write", "add --checkpoint FILE"},
  };
  for (const Need& need : needs) {
    if (!need.met) throw usage_error(need.what, need.hint).about({need.key});
  }
}

/// `variance` is the value of --running-variance; "" changes nothing.
void set_variance(Model& network, const std::string& variance) {
  if (variance.empty()) return;
  about({"running_variance"}, [&] {
    set_running_variance(
        network, variance == "sample" ? RunningVariance::sample : RunningVariance::population);
  });
}

/// Returns the settings that decide what a network file or a data set becomes, if they are given.
std::map<std::string, std::string> network_texts(const Settings& settings) {
  std::map<std::string, std::string> texts;
  for (const char* key :
       {"loss", "running_variance", "normalize", "dimension", "trainable", "frozen", "untie"}) {
    for (const std::string& text : find_setting(kTrain, key)->value.texts(settings)) {
      texts[key] += text + '\n';
    }
  }
  return texts;
}

/// Cases of the zoo have their losses.
void attach_zoo(TrainConfig& config, const Settings& settings) {
  if (!settings.loss.empty()) {
    throw usage_error("--loss is for networks without a loss; " + settings.model + " has one",
                      "leave it out")
        .about({"model", "loss"});
  }
  config.build = [settings](int64_t) {
    Model network = load_network(settings.model, network_options(settings));
    set_variance(network, settings.running_variance);
    return network;
  };
}

}  // namespace

TrainConfig train_config(const Settings& settings) {
  check_needs(settings);
  TrainConfig config;
  config.model = settings.model;
  config.network = network_texts(settings);
  config.optimizer = settings.optimizer;
  config.groups = settings.groups;
  config.batch = settings.batch;
  config.steps = settings.steps;
  config.schedule = settings.schedule;
  about({"schedule"}, [&] { read_rates(config.schedule); });
  config.clip_norm = settings.clip_norm;
  config.clip_before_unscale = settings.clip_before_unscale;
  config.unscale_only = settings.unscale_only;
  config.micro_batches = settings.micro_batches;
  config.ranks = settings.ranks;
  config.reduction = settings.reduction.value_or(Reduction{});
  config.sum_format = settings.accumulate_grads;
  config.state_format = settings.optimizer_state;
  config.average = settings.average;
  config.evaluate_average = settings.evaluate_average;
  config.patience = settings.early_stop;
  config.evaluate_every = settings.eval_every;
  config.errors = error_sampling(settings);
  config.checkpoint = settings.checkpoint;
  config.checkpoint_every = settings.checkpoint_every;
  config.seed = settings.seed;
  config.shuffle = !settings.no_shuffle;
  config.every = settings.no_record ? 0 : settings.every;
  config.evaluate = !settings.no_eval;
  config.lanes = lanes_of(settings);
  return config;
}

bool resumes_own_checkpoint(const Settings& settings) {
  namespace fs = std::filesystem;
  return !settings.resume.empty() && !settings.checkpoint.empty() &&
         fs::weakly_canonical(settings.resume) == fs::weakly_canonical(settings.checkpoint);
}

namespace {

/// Returns an ONNX file and those beside it that have its weights; nothing for other networks.
std::vector<std::string> network_files(const Settings& settings) {
  if (!is_network_file(settings.model)) return {};
  std::vector<std::string> files{settings.model};
  if (!settings.force) return files;  // an existing file is refused as an output anyway
  check_network_exists(settings.model);
  about({"model", "network"}, [&] {
    for (const std::filesystem::path& file : external_files(settings.model)) {
      files.push_back(file.string());
    }
  });
  return files;
}

}  // namespace

std::vector<std::string> input_files(const Settings& settings) {
  std::vector<std::string> files;
  for (const LaneRequest& lane : lane_requests(settings)) {
    if (lane.spelled_out || preset_plan(lane.plan) || needs_network(lane.plan) ||
        zoo::is_zoo(lane.plan)) {
      continue;
    }
    files.push_back(lane.plan);
  }
  files.insert(files.end(),
               {settings.init, settings.config, settings.schedule.file, settings.labels});
  for (const std::string& file : input_array_files(settings.inputs)) files.push_back(file);
  for (const std::string& file : network_files(settings)) files.push_back(file);
  for (const std::string& file : dataset_inputs(settings.data)) files.push_back(file);
  // A checkpoint may be resumed and written again.
  if (!settings.resume.empty() && !resumes_own_checkpoint(settings)) {
    files.push_back(settings.resume);
  }
  return files;
}

NamedTensors read_initial_weights(const Settings& settings) {
  const std::string& file = settings.init;
  if (file.empty()) return {};
  return about({"init"}, [&] {
    NamedTensors weights = read_tensors(file);
    for (const auto& [path, tensor] : weights) {
      for (size_t i = 0; i < tensor.data.size(); ++i) {
        if (std::isfinite(tensor.data[i])) continue;
        throw usage_error(fmt::format("initial weights {}: {}{} is {}", file, path,
                                      position_text(tensor.shape, i), tensor.data[i]),
                          "initial weights must be finite");
      }
    }
    turn_weights(weights, settings);
    return weights;
  });
}

Dataset load_training_data(const Settings& settings) {
  Dataset data = about({"data"}, [&] { return load_data(settings.data); });
  if (!settings.normalize.empty()) {
    about({"normalize"}, [&] { normalize_images(data, settings.normalize); });
  }
  return data;
}

void attach_network(TrainConfig& config, const Settings& settings, const Dataset& data,
                    NetworkSummary* summary) {
  if (zoo::is_zoo(settings.model)) return attach_zoo(config, settings);
  const bool file = is_network_file(settings.model);
  NetworkOptions wanted = network_options(settings);
  if (!file && settings.loss.empty() && !data.sample_shape.empty() && !wanted.asks_for_file() &&
      settings.running_variance.empty()) {
    return;
  }
  if (file && settings.loss.empty()) {
    throw usage_error("'" + settings.model + "' has no loss to train for",
                      "add --loss cross-entropy, --loss mse, --loss bce or --loss OUTPUT")
        .about({"model"});
  }
  describe_samples(data, wanted);
  LossSpec loss = about({"loss"}, [&] {
    return parse_loss(settings.loss.empty() ? "cross-entropy" : settings.loss);
  });
  loss.label_shape = wanted.label_shape;
  config.build = [model = settings.model, wanted, loss, file, summary,
                  variance = settings.running_variance](int64_t batch) {
    NetworkOptions sized = wanted;
    sized.batch = batch;
    sized.trains = true;
    Model network = about({"model"}, [&] {
      if (!file) return load_network(model, sized);
      OnnxImport import = load_network_file(model, sized);
      if (summary != nullptr) *summary = summary_of(import, model, samples_at_once(import, true));
      return std::move(import.model);
    });
    about({"loss"}, [&] {
      for (const std::string& note : add_loss(network, loss)) {
        if (!sized.quiet) tell_once(model, note);
        if (summary != nullptr) summary->notes.push_back(note);
      }
    });
    set_variance(network, variance);
    return network;
  };
}

std::unique_ptr<Trainer> make_trainer(const TrainConfig& config, const Dataset& data,
                                      const std::string& init) {
  try {
    return std::make_unique<Trainer>(config, data);
  } catch (const Error& e) {
    const std::string start = "initial weights: ", what = e.what();
    if (init.empty() || !what.starts_with(start)) throw;
    throw e.with_text(fmt::format("initial weights {}: {}", init, what.substr(start.size())));
  }
}

}  // namespace halfscope
