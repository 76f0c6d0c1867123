// SPDX-License-Identifier: MIT
// The settings that commands share: a network, its data, a training, its lanes. One table
// (setting_table.cpp) says of each its flag, its member here, how it is read and printed, and which
// commands and files take it. Flags, help, completion, configuration files, what run files keep and
// the command that repeats a run all come from that table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/args/backends.h"
#include "core/train/trainer.h"

namespace halfscope {

/// The commands that take their settings from the table, as bits. `plan` has one for each action.
enum Commands : unsigned {
  kTrain = 1,
  kRun = 2,
  kConvert = 4,
  kDoctor = 8,
  kInspect = 16,
  kPlanList = 1U << 5U,
  kPlanShow = 1U << 6U,
  kPlanExplain = 1U << 7U,
  kPlanDiff = 1U << 8U,
  kPlanLint = 1U << 9U,
  kPlanScalers = 1U << 10U,
  kPlanNodes = kPlanShow | kPlanExplain | kPlanDiff | kPlanLint,
  kCost = 1U << 22U,
  kQuantize = 1U << 23U,
  kPlan = kPlanList | kPlanNodes | kPlanScalers
};

/// Subjects of an action of `plan`, as more bits. A flag has an effect if its row in the table
/// names both the action and the subject.
using PlanSubject = unsigned;
inline constexpr PlanSubject kOfNothing = 1U << 11U;      ///< no network
inline constexpr PlanSubject kOfBuiltIn = 1U << 12U;      ///< a built-in network
inline constexpr PlanSubject kOfZoo = 1U << 13U;          ///< a network of the zoo that is trained
inline constexpr PlanSubject kOfZooForward = 1U << 14U;   ///< one that is run forward
inline constexpr PlanSubject kOfFile = 1U << 15U;         ///< an ONNX file with a loss
inline constexpr PlanSubject kOfFileForward = 1U << 16U;  ///< one without a loss
inline constexpr PlanSubject kOfTfGraph = 1U << 17U;      ///< a TensorFlow graph
inline constexpr PlanSubject kOfRun = 1U << 18U;          ///< a run file
inline constexpr PlanSubject kOfPattern = 1U << 19U;
inline constexpr PlanSubject kOfTrajectory = 1U << 20U;
inline constexpr PlanSubject kOfShape = 1U << 21U;
inline constexpr PlanSubject kOfFiles = kOfFile | kOfFileForward;
inline constexpr PlanSubject kOfTrained = kOfBuiltIn | kOfZoo | kOfFile;
inline constexpr PlanSubject kOfNetworks = kOfBuiltIn | kOfZoo | kOfZooForward | kOfFiles;
inline constexpr PlanSubject kOfGradients = kOfRun | kOfPattern | kOfTrajectory | kOfShape;
inline constexpr PlanSubject kOfAnything = kOfNothing | kOfNetworks | kOfTfGraph | kOfGradients;

struct Settings {
  Commands command = kTrain;

  // Network and data
  std::string model{}, loss{}, running_variance{}, data{}, normalize{}, init{}, labels{};
  std::string scores{};  ///< the output with class scores; "" for the first that fits the labels
  std::optional<int32_t> ignore_label{};
  std::vector<std::string> inputs{};
  std::optional<uint64_t> random_input{};
  std::map<std::string, int64_t> dimensions{};
  std::vector<std::string> trainable{}, frozen{}, untied{};  ///< globs over weights of a file
  /// Shape of one sample of a built-in network, and its classes, instead of a data set.
  Shape sample_shape{};
  int64_t classes = 0;
  int64_t limit = 0;  ///< samples; 0 for all
  bool no_shuffle = false;

  // Training
  int64_t steps = 200;
  int64_t batch = 0;  ///< 0: as many as suits the command
  Optimizer optimizer = parse_optimizer("sgd");
  std::vector<ParameterGroup> groups{};
  std::optional<double> learning_rate{};  ///< only while settings are read; then in `optimizer`
  std::optional<FloatFormat> optimizer_state{}, optimizer_compute{}, clip_format{},
      accumulate_grads{};
  std::optional<WeightAverage> average{};
  bool evaluate_average = false;
  Schedule schedule{};
  double clip_norm = 0.0;
  bool clip_before_unscale = false, unscale_only = false;
  int64_t micro_batches = 1, ranks = 1;
  std::optional<Reduction> reduction{};
  int64_t early_stop = 0;
  uint64_t seed = 1;

  // Lanes
  std::vector<LaneRequest> lanes{}, plans{};
  std::string backend = "emulated";
  bool fast = false, kernels = false;
  std::vector<std::string> fp32{};
  bool typed = false, typed_io = false;
  std::optional<Accumulation> accumulation{};
  bool fuse = false;
  std::optional<LossScalerConfig> loss_scale{};

  // Recording
  int every = 1;
  bool no_record = false, no_eval = false, no_errors = false;
  int64_t eval_every = 0, errors_every = 0;
  std::vector<std::pair<std::string, std::string>> compare{};

  // Output
  std::string out{}, record{}, save_weights{}, save_ema{}, checkpoint{}, resume{};
  int64_t checkpoint_every = 0;
  bool verify = false, force = false, json = false, quiet = false;
  int threads = 0;  ///< 0: all cores

  std::string config{};  ///< the configuration file that was read; "" for none
  bool print_config = false;
  std::set<std::string> given{};      ///< keys that the command line or the file sets
  std::set<std::string> from_file{};  ///< those that the file sets

  bool is_given(const std::string& key) const { return given.contains(key); }
};

/// Returns what the command does without any flag.
Settings default_settings(Commands command);

/// Returns the arguments that repeat a training or a run: without lanes and outputs for
/// RunInfo::settings ("--model", "lenet", "--data", "digits" ...), and RunInfo::lane_settings.
std::vector<std::string> settings_words(const Settings& settings);
std::vector<std::string> lane_settings_words(const Settings& settings);
/// Reads either back. Throws Error if this version of the program does not know a setting.
Settings parse_settings(Commands command, const std::vector<std::string>& words);

}  // namespace halfscope
