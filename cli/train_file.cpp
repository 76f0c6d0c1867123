// SPDX-License-Identifier: MIT
#include "cli/train_file.h"

#include "cli/config_file.h"
#include "cli/network.h"
#include "core/train/lane_setup.h"

namespace halfscope {
namespace {

/// The training, not where its results go.
const ConfigForm& train_form() {
  static const ConfigForm train{
      .command = "train",
      .schema = "halfscope.train-config/1",
      .keys = {"model",
               "loss",
               "running_variance",
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
               "no_errors"},
      .lists = {"fp32", "compare", "dimension"},
      .argument = "",
      .replaces = {{"--plan", {"--lanes"}}, {"--lanes", {"--plan"}}, {"--optimizer", {"--lr"}}}};
  return train;
}

Json average_json(const WeightAverage& average) {
  Json json{{"decay", average.decay},
            {"form", average.form == WeightAverage::Form::lerp ? "lerp" : "average"}};
  if (average.format) json["format"] = format_name(*average.format);
  if (average.compute) json["compute"] = format_name(*average.compute);
  return json;
}

}  // namespace

int with_train_file(const std::string& file, const CLI::App& given,
                    const std::function<int(const TrainOptions&)>& body) {
  const auto check = [](const TrainOptions& options) {
    const TrainConfig config = train_config(options);
    lane_pairs(config.errors, config.lanes);
    parse_dimensions(options.dimensions);
  };
  return with_settings<TrainOptions>(train_form(), file, given, TrainOptions(), add_train_options,
                                     check, body);
}

Json train_file_json(const TrainOptions& options) {
  const TrainConfig config = train_config(options);
  ConfigJson set;
  Json& json = set.json;
  json["schema"] = train_form().schema;
  set.text("model", options.model);
  set.text("loss", options.loss);
  set.text("running_variance", options.running_variance);
  set.text("data", options.data);
  set.text("normalize", options.normalize);
  set.list("dimension", options.dimensions);
  set.text("init", options.init);
  json["no_shuffle"] = options.no_shuffle;
  json["steps"] = options.steps;
  json["batch"] = options.batch;
  json["optimizer"] = optimizer_text(config.optimizer);
  set.text("optimizer_state", options.state_format);
  set.text("optimizer_compute", options.compute_format);
  if (config.average) json["ema"] = average_json(*config.average);
  json["eval_ema"] = options.eval_ema;
  json["schedule"] = schedule_text(config.schedule);
  json["clip_norm"] = options.clip_norm;
  set.text("clip_format", options.clip_format);
  json["micro_batches"] = options.micro_batches;
  set.text("accumulate_grads", options.accumulate_grads);
  set.number("early_stop", options.early_stop);
  json["seed"] = options.seed;
  json["lanes"] = lanes_json(options);
  json["backend"] = options.backend;
  json["fast"] = options.fast;
  set.list("fp32", options.fp32);
  set.text("accumulate", options.accumulate);
  set.text("loss_scale", options.loss_scale);
  json["every"] = options.every;
  json["no_record"] = options.no_record;
  set.number("eval_every", options.eval_every);
  json["no_eval"] = options.no_eval;
  set.number("errors_every", options.errors_every);
  set.list("compare", options.compare);
  json["no_errors"] = options.no_errors;
  return json;
}

}  // namespace halfscope
