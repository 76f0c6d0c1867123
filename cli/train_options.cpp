// SPDX-License-Identifier: MIT
#include "cli/train_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "cli/arguments.h"
#include "cli/backends.h"
#include "cli/config_file.h"
#include "cli/lane_options.h"
#include "cli/network.h"
#include "cli/output.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"
#include "gpu/backends.h"

namespace halfscope {
namespace {

std::optional<FloatFormat> sum_format_of(const TrainOptions& options) {
  if (!options.accumulate_grads.empty() && options.micro_batches == 1) {
    throw usage_error("--accumulate-grads needs more than one micro-batch",
                      "add --micro-batches N");
  }
  return stored_format("--accumulate-grads", options.accumulate_grads);
}

void add_network_options(CLI::App& sub, TrainOptions& options) {
  const char* kGroup = "Network and data";
  offer(sub.add_option("--model", options.model,
                       "lenet, lenet-hot, resnet20, mlp:A-B-...-Z or a file *.onnx")
            ->capture_default_str()
            ->type_name("NAME")
            ->group(kGroup),
        {.words = network_words(), .files = "*.onnx"});
  offer(
      sub.add_option("--loss", options.loss,
                     "cross-entropy or mse of the first output, or after a colon of another one; "
                     "or an output that is the loss; default for built-in networks: cross-entropy")
          ->type_name("LOSS")
          ->group(kGroup),
      {.words = {"cross-entropy", "mse"}});
  offer(sub.add_option("--data", options.data,
                       "digits (embedded), mnist:DIR, cifar10:DIR or FILE.npz[,test=FILE.npz] with "
                       "arrays by the names of inputs")
            ->capture_default_str()
            ->type_name("SPEC")
            ->group(kGroup),
        {.words = {"digits", "mnist:", "cifar10:"}, .folders_after = {"mnist:", "cifar10:"}});
  offer(sub.add_option("--running-variance", options.running_variance,
                       "Variance of a batch that running variances take: sample (as PyTorch) or "
                       "population (as ONNX); default: population in files of networks in training")
            ->type_name("WHICH")
            ->group(kGroup),
        {.words = {"sample", "population"}});
  add_normalize_option(sub, options.normalize);
  add_dimension_option(sub, options.dimensions);
  offer(sub.add_option("--init", options.init, "Initial weights, an .npz by variable path")
            ->type_name("FILE")
            ->group(kGroup),
        {.files = "*.npz"});
  sub.add_flag("--no-shuffle", options.no_shuffle, "Take samples in file order")->group(kGroup);
}

/// Precision of what comes after the gradients.
void add_update_format_options(CLI::App& sub, TrainOptions& options) {
  const char* kGroup = "Training";
  offer(sub.add_option("--optimizer-compute", options.compute_format,
                       "Format that every operation of the optimizer is rounded to, in lanes that "
                       "are no references; default: fp32")
            ->type_name("FORMAT")
            ->group(kGroup),
        {.words = format_names()});
  offer(sub.add_option("--clip-format", options.clip_format,
                       "Format that gradients are unscaled and clipped in, with --clip-norm, in "
                       "lanes that are no references; default: fp32")
            ->type_name("FORMAT")
            ->group(kGroup),
        {.words = format_names()});
  sub.add_option("--ema", options.ema,
                 "Keep moving averages of the weights with this decay; options after a colon: "
                 "0.999:format=bf16,compute=bf16,form=average")
      ->type_name("DECAY")
      ->group(kGroup);
}

void add_training_options(CLI::App& sub, TrainOptions& options) {
  const char* kGroup = "Training";
  add_integer(sub, "--steps", options.steps, 1, kMostCounted, "Optimizer steps")
      ->default_str(std::to_string(options.steps))
      ->group(kGroup);
  add_integer(sub, "--batch", options.batch, 1, kMostCounted, "Samples per step")
      ->default_str(std::to_string(options.batch))
      ->group(kGroup);
  offer(sub.add_option("--optimizer", options.optimizer,
                       "sgd, adam, adamw or rmsprop; options after a colon: "
                       "sgd:momentum=0.9,weight_decay=1e-4")
            ->capture_default_str()
            ->type_name("NAME")
            ->group(kGroup),
        {.words = {"sgd", "adam", "adamw", "rmsprop"}});
  add_number(sub, "--lr", options.learning_rate, 0.0, 3.4e38,
             "Learning rate; default 0.1 for sgd, 0.01 for rmsprop, 0.001 for adam and adamw")
      ->each([&options](const std::string&) { options.rate_given = true; })
      ->group(kGroup);
  offer(sub.add_option("--schedule", options.schedule,
                       "Learning rate over the steps: constant, step:every=N,gamma=G, cosine or "
                       "linear, each with warmup=N")
            ->capture_default_str()
            ->type_name("S")
            ->group(kGroup),
        {.words = {"constant", "step:every=", "cosine", "linear"}});
  add_number(sub, "--clip-norm", options.clip_norm, 0.0, 3.4e38,
             "Scale gradients down to this 2-norm; default: no clipping")
      ->group(kGroup);
  add_integer(sub, "--micro-batches", options.micro_batches, 1, kMostCounted,
              "Work off each batch in so many parts and sum their gradients")
      ->default_str(std::to_string(options.micro_batches))
      ->group(kGroup);
  offer(sub.add_option("--accumulate-grads", options.accumulate_grads,
                       "Format of those sums, with --micro-batches; default: that of the variables")
            ->type_name("FORMAT")
            ->group(kGroup),
        {.words = format_names()});
  offer(
      sub.add_option("--optimizer-state", options.state_format,
                     "Format that the optimizer keeps its state in; default: that of the variable")
          ->type_name("FORMAT")
          ->group(kGroup),
      {.words = format_names()});
  add_update_format_options(sub, options);
  add_integer(sub, "--early-stop", options.early_stop, 1, kMostCounted,
              "Stop after so many evaluations in a row without a better loss in any lane; needs "
              "--eval-every")
      ->group(kGroup);
  add_integer(sub, "--seed", options.seed, 0, 4294967295, "Initial weights and shuffling")
      ->default_str(std::to_string(options.seed))
      ->group(kGroup);
}

/// Those of lanes that only trainings have.
void add_plan_options(CLI::App& sub, TrainOptions& options) {
  const char* kGroup = "Lanes";
  offer(sub.add_option("--plan", options.plan, "Short for --lanes float32,PLAN")
            ->type_name("PLAN")
            ->group(kGroup),
        {.words = plan_words(), .files = "*.json"});
  offer(sub.add_option("--loss-scale", options.loss_scale,
                       "dynamic, dynamic:INIT, static:X or none; default: dynamic for formats "
                       "with fewer than 8 exponent bits, scaled operands aside")
            ->type_name("S")
            ->group(kGroup),
        {.words = {"dynamic", "dynamic:", "static:", "none"}});
}

void add_recording_options(CLI::App& sub, TrainOptions& options) {
  const char* kGroup = "Recording";
  add_integer(sub, "--every", options.every, 1, 1'000'000'000, "Record statistics every N steps")
      ->default_str(std::to_string(options.every))
      ->group(kGroup);
  sub.add_flag("--no-record", options.no_record, "No statistics, steps only")->group(kGroup);
  add_integer(sub, "--eval-every", options.eval_every, 1, kMostCounted,
              "Evaluate on the test part every N steps, too")
      ->group(kGroup);
  sub.add_flag("--no-eval", options.no_eval, "No evaluation on the test part at the end")
      ->group(kGroup);
  sub.add_flag("--eval-ema", options.eval_ema,
               "Evaluate the moving averages of --ema in place of the weights")
      ->group(kGroup);
  add_comparison_options(sub, options, "steps");
}

void add_output_options(CLI::App& sub, TrainOptions& options) {
  add_output(sub, "--out", options.out, "*.hscope", "Run file")->capture_default_str();
  add_output(sub, "--save-weights", options.save_weights, "*.npz",
             "Write the last lane's weights after the last step");
  add_output(sub, "--save-ema", options.save_ema, "*.npz",
             "Write the last lane's moving averages under the paths of the weights");
  add_output(sub, "--checkpoint", options.checkpoint, "*.npz",
             "Write what it takes to go on here, at the end and on Ctrl-C");
  add_integer(sub, "--checkpoint-every", options.checkpoint_every, 1, kMostCounted,
              "Every N steps, too; needs --checkpoint")
      ->group(group::kOutput);
  offer(sub.add_option("--resume", options.resume, "Go on from this checkpoint, with the same bits")
            ->type_name("FILE")
            ->group(group::kOther),
        {.files = "*.npz"});
  sub.add_flag("--verify", options.verify,
               "Prove the advice by training it beside fp32, its noise twins and the original")
      ->group(group::kOther);
  add_force(sub, options.force);
  sub.add_flag("--json", options.json, "Print the closing summary as JSON")->group(group::kOutput);
  sub.add_flag("--quiet", options.quiet, "No progress line, no closing table")
      ->group(group::kOutput);
  add_integer(sub, "--threads", options.threads, 1, 1024,
              "Results do not depend on it; default: all cores")
      ->group(group::kOther);
}

}  // namespace

std::optional<FloatFormat> stored_format(const char* flag, const std::string& text) {
  if (text.empty()) return std::nullopt;
  const std::optional<FloatFormat> format = parse_format(text);
  if (!format) {
    throw usage_error(std::string(flag) + ": unknown format " + text, format_hint(text));
  }
  if (format->flush_in && !format->flush_out) {
    throw usage_error(std::string(flag) + " " + text + " flushes operands only",
                      "tensors are flushed where they are written: use :ftz or :ftz-out");
  }
  return format;
}

void add_train_options(CLI::App& sub, TrainOptions& options) {
  add_config_flags(sub, options.config, options.print_config);
  add_network_options(sub, options);
  add_training_options(sub, options);
  add_lane_options(sub, options);
  add_plan_options(sub, options);
  add_recording_options(sub, options);
  add_output_options(sub, options);
}

TrainConfig train_config(const TrainOptions& options) {
  TrainConfig config;
  config.model = options.model;
  config.optimizer = parse_optimizer(options.optimizer);
  if (options.rate_given) config.optimizer.learning_rate = options.learning_rate;
  config.batch = options.batch;
  config.steps = options.steps;
  config.schedule = parse_schedule(options.schedule);
  config.clip_norm = options.clip_norm;
  config.micro_batches = options.micro_batches;
  config.sum_format = sum_format_of(options);
  config.state_format = stored_format("--optimizer-state", options.state_format);
  if (!options.ema.empty()) config.average = parse_weight_average(options.ema);
  config.evaluate_average = options.eval_ema;
  for (const char* flag : {options.eval_ema ? "--eval-ema" : nullptr,
                           options.save_ema.empty() ? nullptr : "--save-ema"}) {
    if (flag == nullptr || config.average) continue;
    throw usage_error(std::string(flag) + " needs moving averages", "add --ema DECAY");
  }
  if (!options.clip_format.empty() && options.clip_norm == 0.0) {
    throw usage_error("--clip-format needs a norm to clip to", "add --clip-norm X");
  }
  config.loss = options.loss;
  config.running_variance = options.running_variance;
  const std::vector<std::string> variances{"", "sample", "population"};
  if (std::find(variances.begin(), variances.end(), options.running_variance) == variances.end()) {
    throw usage_error("--running-variance: unknown value " + options.running_variance,
                      "use sample or population");
  }
  config.patience = options.early_stop;
  if (options.early_stop > 0 && options.eval_every == 0) {
    throw usage_error("--early-stop needs evaluations to judge by", "add --eval-every N");
  }
  config.evaluate_every = options.eval_every;
  config.errors = error_sampling(options);
  if (options.verify && options.no_record) {
    throw usage_error("--verify needs the statistics that --no-record leaves out",
                      "leave out one of them");
  }
  config.checkpoint = options.checkpoint;
  config.checkpoint_every = options.checkpoint_every;
  if (options.checkpoint_every > 0 && options.checkpoint.empty()) {
    throw usage_error("--checkpoint-every needs a file to write", "add --checkpoint FILE");
  }
  config.seed = options.seed;
  config.shuffle = !options.no_shuffle;
  config.every = options.no_record ? 0 : options.every;
  config.evaluate = !options.no_eval;
  config.lanes = lanes_of(options);
  return config;
}

bool resumes_own_checkpoint(const TrainOptions& options) {
  namespace fs = std::filesystem;
  return !options.resume.empty() && !options.checkpoint.empty() &&
         fs::weakly_canonical(options.resume) == fs::weakly_canonical(options.checkpoint);
}

std::vector<std::string> input_files(const TrainOptions& options) {
  std::vector<std::string> files;
  for (const std::string& text : lane_names(options)) {
    const std::string name = parse_lane(text).plan;
    if (!preset_plan(name) && !is_inline_plan(name)) files.push_back(name);
  }
  for (const std::string& file : {options.init, options.config}) {
    if (!file.empty()) files.push_back(file);
  }
  if (is_network_file(options.model)) files.push_back(options.model);
  for (const std::string& file : dataset_files(options.data)) files.push_back(file);
  // A checkpoint may be resumed and written again.
  if (!options.resume.empty() && !resumes_own_checkpoint(options)) {
    files.push_back(options.resume);
  }
  return files;
}

std::vector<std::string> settings_of(const TrainOptions& options, const TrainConfig& config) {
  const TrainOptions defaults;
  std::vector<std::string> settings;
  const auto add = [&settings](const char* flag, const std::string& value) {
    settings.insert(settings.end(), {flag, value});
  };
  add("--model", options.model);
  if (!options.loss.empty()) add("--loss", options.loss);
  if (!options.running_variance.empty()) add("--running-variance", options.running_variance);
  add("--data", options.data);
  if (!options.normalize.empty()) add("--normalize", options.normalize);
  for (const std::string& text : options.dimensions) add("--dimension", text);
  add("--optimizer", optimizer_text(config.optimizer));
  add("--steps", std::to_string(options.steps));
  add("--batch", std::to_string(options.batch));
  add("--seed", std::to_string(options.seed));
  if (config.schedule != Schedule{}) add("--schedule", schedule_text(config.schedule));
  if (options.clip_norm != 0.0) add("--clip-norm", shortest(options.clip_norm));
  if (options.micro_batches != 1) add("--micro-batches", std::to_string(options.micro_batches));
  if (config.sum_format) add("--accumulate-grads", format_name(*config.sum_format));
  if (config.state_format) add("--optimizer-state", format_name(*config.state_format));
  if (!options.compute_format.empty()) add("--optimizer-compute", options.compute_format);
  if (!options.clip_format.empty()) add("--clip-format", options.clip_format);
  if (config.average) add("--ema", weight_average_text(*config.average));
  if (options.eval_ema) settings.emplace_back("--eval-ema");
  if (options.early_stop != 0) add("--early-stop", std::to_string(options.early_stop));
  if (options.eval_every != 0) add("--eval-every", std::to_string(options.eval_every));
  if (options.errors_every != 0) add("--errors-every", std::to_string(options.errors_every));
  if (options.no_errors) settings.emplace_back("--no-errors");
  if (options.no_shuffle) settings.emplace_back("--no-shuffle");
  if (!options.init.empty()) add("--init", options.init);
  if (options.every != defaults.every) add("--every", std::to_string(options.every));
  if (options.no_record) settings.emplace_back("--no-record");
  if (options.no_eval) settings.emplace_back("--no-eval");
  return settings;
}

std::vector<std::string> lane_settings_of(const TrainOptions& options) {
  std::string lanes;
  for (const std::string& name : lane_names(options)) lanes += (lanes.empty() ? "" : ",") + name;
  std::vector<std::string> settings{"--lanes", lanes};
  for (const std::string& glob : options.fp32) settings.insert(settings.end(), {"--fp32", glob});
  if (!options.accumulate.empty()) {
    settings.insert(settings.end(), {"--accumulate", options.accumulate});
  }
  if (!options.loss_scale.empty()) {
    settings.insert(settings.end(), {"--loss-scale", options.loss_scale});
  }
  if (options.backend != TrainOptions().backend) {
    settings.insert(settings.end(), {"--backend", options.backend});
  }
  if (options.fast) settings.emplace_back("--fast");
  return settings;
}

TrainOptions parse_settings(const std::vector<std::string>& settings) {
  TrainOptions options;
  CLI::App app;
  add_train_options(app, options);
  try {
    app.parse(std::vector<std::string>(settings.rbegin(), settings.rend()));
  } catch (const CLI::ParseError& e) {
    throw Error(fmt::format("the run's settings are not understood: {}", e.what()),
                "they come from another version of HalfScope");
  }
  return options;
}

}  // namespace halfscope
