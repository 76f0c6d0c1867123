// SPDX-License-Identifier: MIT
// The flags of `train`: how they are declared, what they mean as a TrainConfig, and their
// canonical form in the run file, from which a training can be repeated. A new flag is a member
// here, a line in add_train_options(), one in train_config() and, if it changes results and
// belongs to no single lane, one in settings_of().
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/train/trainer.h"

namespace halfscope {

struct TrainOptions {
  // Network and data
  std::string model = "lenet", loss, data = "digits", normalize, init;
  std::string running_variance;
  std::vector<std::string> dimensions;
  bool no_shuffle = false;
  // Training
  int64_t steps = 200, batch = 128;
  std::string optimizer = "sgd";
  double learning_rate = 0.0;
  bool rate_given = false;
  std::string schedule = "constant";
  double clip_norm = 0.0;
  int64_t micro_batches = 1;
  std::string accumulate_grads, state_format, compute_format, clip_format;
  std::string ema;
  bool eval_ema = false;
  uint64_t seed = 1;
  int64_t eval_every = 0, early_stop = 0;
  // Lanes
  std::string lanes = "float32,mixed_float16";
  bool lanes_given = false;
  std::string plan, accumulate, loss_scale;
  std::string backend = "emulated";
  bool fast = false, kernels = false;
  std::vector<std::string> fp32;
  // Recording
  int every = 1;
  bool no_record = false, no_eval = false;
  bool no_errors = false;
  int64_t errors_every = 0;
  std::vector<std::string> compare;
  // Output
  std::string out = "run.hscope", save_weights, save_ema;
  std::string checkpoint, resume;
  int64_t checkpoint_every = 0;
  std::string config;  ///< read by with_train_file()
  bool print_config = false;
  bool verify = false;
  bool force = false, json = false, quiet = false;
  int threads = 0;
};

/// Declares the flags; `options` must outlive the parsing.
void add_train_options(CLI::App& sub, TrainOptions& options);

/// A format that tensors are kept in, or nothing for an empty text. Throws Error (usage).
std::optional<FloatFormat> stored_format(const char* flag, const std::string& text);

/// Everything but the initial weights and a network from a file, which are read later. Throws Error
/// (usage).
TrainConfig train_config(const TrainOptions& options);

/// Whether --checkpoint goes on writing the file that --resume reads.
bool resumes_own_checkpoint(const TrainOptions& options);

/// The files that the training reads: plans, initial weights.
std::vector<std::string> input_files(const TrainOptions& options);

/// RunInfo::settings: "--model", "lenet", "--data", "digits" ...
std::vector<std::string> settings_of(const TrainOptions& options, const TrainConfig& config);
/// RunInfo::lane_settings: "--lanes", "float32,mixed_float16" ...
std::vector<std::string> lane_settings_of(const TrainOptions& options);
/// The way back from settings. Throws Error if they are not arguments of this program.
TrainOptions parse_settings(const std::vector<std::string>& settings);

}  // namespace halfscope
