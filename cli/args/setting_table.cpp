// SPDX-License-Identifier: MIT
// The table of settings. A new one is a member of Settings and a row here.
#include <fmt/format.h>

#include <charconv>

#include "cli/args/lanes.h"
#include "cli/args/network.h"
#include "cli/args/setting_values.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr uint64_t kMostCounted = 1'000'000'000'000'000;  // steps, samples of all epochs
constexpr uint64_t kMostSeed = 4294967295;
constexpr uint64_t kMostRanks = 65536;
constexpr double kMostReal = 3.4e38;  // the largest fp32 number

// Where settings have an effect on `plan`: actions, and what they are about.
constexpr unsigned kPlanNetwork = kPlanNodes | kOfNetworks;
constexpr unsigned kPlanFile = kPlanNodes | kOfFiles;
constexpr unsigned kPlanTraining = kPlanLint | kOfTrained;

constexpr const char* kNetwork = "Network and data";
constexpr const char* kTraining = "Training";
constexpr const char* kLanes = "Lanes";
constexpr const char* kRecording = "Recording";

SettingValue format(std::optional<FloatFormat> Settings::*member) {
  return parsed("FORMAT", member, stored_format, format_name);
}

/// Sizes by name: {"sequence": 64} in files, where texts as on the command line will do, too.
SettingValue dimensions() {
  const auto read = [](Settings& s, const std::string& flag, const std::string& text) {
    if (!s.dimensions.insert(parse_dimension(text)).second) {
      throw usage_error(flag + " " + text + ": the dimension is given twice",
                        "keep the value you want");
    }
  };
  const auto texts = [](const Settings& s) {
    Texts texts;
    for (const auto& [name, size] : s.dimensions) texts.push_back(fmt::format("{}={}", name, size));
    return texts;
  };
  const auto read_json = [read](Settings& s, const Json& json) {
    for (const auto& [name, size] : json.items()) {
      if (json.is_array()) {
        if (!size.is_string()) throw usage_error("must hold texts such as \"sequence=64\"");
        read(s, "--dimension", size.get<std::string>());
      } else if (!size.is_null()) {
        const std::string text = size.is_string() ? size.get<std::string>() : size.dump();
        s.dimensions[name] = parse_dimension_size(text);
      }
    }
  };
  const auto print = [](const Settings& s) {
    return s.dimensions.empty() ? Json() : Json(s.dimensions);
  };
  return {.name = "NAME=N",
          .many = true,
          .read = read,
          .texts = texts,
          .read_json = read_json,
          .json = print};
}

SettingValue average() {
  SettingValue value =
      parsed("DECAY", &Settings::average, parse_weight_average, weight_average_text);
  value.read_json = [](Settings& s, const Json& json) { s.average = average_from_json(json); };
  value.json = [](const Settings& s) { return s.average ? average_json(*s.average) : Json(); };
  return value;
}

/// Plans, each with a backend if it names one.
SettingValue lanes(const char* name, std::vector<LaneRequest> Settings::*member, bool list,
                   bool many = false) {
  return {.name = name,
          .many = many,
          .read =
              [member, list](Settings& s, const std::string& flag, const std::string& text) {
                if (list) {
                  s.*member = parse_lanes(flag, text);
                } else {
                  (s.*member).push_back(parse_lane(text));
                }
              },
          .texts =
              [member, list](const Settings& s) {
                Texts texts;
                for (const LaneRequest& lane : s.*member) {
                  const std::string text = lane_text(lane);
                  if (list && !texts.empty()) {
                    texts[0] += "," + text;
                  } else {
                    texts.push_back(text);
                  }
                }
                return texts;
              },
          .read_json =
              [member, list, many](Settings& s, const Json& json) {
                (s.*member).clear();
                if (!json.is_array()) return (s.*member).push_back(lane_from_json(json));
                if (!list && !many)
                  throw usage_error("must be one plan", "\"lanes\" takes several");
                for (const Json& each : json) (s.*member).push_back(lane_from_json(each));
                if (json.empty()) throw usage_error("the list is empty", "name at least one plan");
              },
          .json = [list](const Settings& s) { return list ? lanes_json(s) : Json(); }};
}

SettingValue random_seed() {
  SettingValue value = parsed(
      "SEED", &Settings::random_input,
      [](const std::string& flag, const std::string& text) {
        return parse_integer(flag, text, 0, kMostSeed);
      },
      [](uint64_t seed) { return std::to_string(seed); });
  value.json = [](const Settings& s) { return s.random_input ? Json(*s.random_input) : Json(); };
  return value;
}

SettingValue parameter_groups() {
  return {.name = "GROUP",
          .many = true,
          .read = [](Settings& s, const std::string&,
                     const std::string& text) { s.groups.push_back(parse_parameter_group(text)); },
          .texts =
              [](const Settings& s) {
                Texts texts;
                for (const ParameterGroup& each : s.groups) {
                  texts.push_back(parameter_group_text(each));
                }
                return texts;
              }};
}

SettingValue learning_rate() {
  return parsed(
      "X", &Settings::learning_rate,
      [](const std::string& flag, const std::string& text) {
        return parse_number(flag, text, 0.0, kMostReal);
      },
      shortest);
}

SettingValue ignored_label() {
  SettingValue value = parsed(
      "LABEL", &Settings::ignore_label,
      [](const std::string& flag, const std::string& text) {
        int32_t label = 0;
        const char* const end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data(), end, label);
        if (error == std::errc() && rest == end) return label;
        throw usage_error(flag + ": '" + text + "' is not a label", "write a whole number");
      },
      [](int32_t label) { return std::to_string(label); });
  value.json = [](const Settings& s) { return s.ignore_label ? Json(*s.ignore_label) : Json(); };
  return value;
}

/// Sizes with x between them.
SettingValue shape_of_sample() {
  return parsed(
      "CxHxW", &Settings::sample_shape,
      [](const std::string& flag, const std::string& text) {
        Shape shape;
        size_t from = 0;
        while (from <= text.size()) {
          const size_t end = std::min(text.find('x', from), text.size());
          shape.push_back(static_cast<int64_t>(
              parse_integer(flag, text.substr(from, end - from), 1, kMostSamples)));
          from = end + 1;
        }
        return shape;
      },
      [](const Shape& shape) {
        std::string text;
        for (const int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
        return text;
      });
}

std::vector<Setting> network_rows() {
  const Offer networks{.words = network_words(), .files = "*.onnx"};
  const Offer data_sets{.words = {"digits", "shapes", "mnist:", "cifar10:", "text:"},
                        .folders_after = {"mnist:", "cifar10:"}};
  const std::string known = known_networks();
  return {
      {"network", kRun, group::kArguments, "Network: " + known, text("NETWORK", &Settings::model),
       Kept::always, networks},
      {"network", kConvert, group::kArguments,
       "Network: " + known + "; a folder of tensors; or RUN.rank0.hscope to join all ranks",
       text("NETWORK", &Settings::model), Kept::always, networks},
      {"network", kCost | kQuantize, group::kArguments, "Network: " + known,
       text("NETWORK", &Settings::model), Kept::nothing, networks},
      {"--model", kTrain, group::kCommon, "Network to train: " + known,
       text("NAME", &Settings::model), Kept::always, networks},
      {"--model", kDoctor, kNetwork, "Network whose layers to check for tensor cores: " + known,
       text("NAME", &Settings::model), Kept::nothing, networks},
      {"--model", kPlanNetwork | kOfTfGraph, kNetwork, "Network to plan: " + known,
       text("NAME", &Settings::model), Kept::nothing, networks},
      {"--loss", kTrain | kCost | kPlanNodes | kOfBuiltIn | kOfFiles, kNetwork,
       "Loss: cross-entropy, mse, bce or detection, with [:OUTPUT], smoothing=S, "
       "weights=W/W, axis=N, ignore=L, logits; or an output [the network's own]",
       text("LOSS", &Settings::loss), Kept::settings,
       Offer{.words = {"cross-entropy", "mse", "bce", "detection"}}},
      {"--running-variance", kTrain, kNetwork,
       "Batch variance that running variances follow: sample (PyTorch) or population (ONNX) "
       "[the file's, else sample]",
       choice("WHICH", &Settings::running_variance, {"sample", "population"}), Kept::settings,
       Offer{.words = {"sample", "population"}}},
      {"--input",
       kRun | kQuantize,
       group::kCommon,
       "Samples to run on: x.npy, x.npz (arrays by name) or NAME=x.npy (repeatable)",
       texts("FILE", &Settings::inputs),
       Kept::settings,
       Offer{.files = "*.np[yz]"},
       {"data", "random_input"}},
      {"--input", kConvert, kNetwork,
       "Samples to check the file with: x.npy, x.npz or NAME=x.npy (repeatable) [random]",
       texts("FILE", &Settings::inputs), Kept::nothing, Offer{.files = "*.np[yz]"}},
      {"--data", kTrain, group::kCommon,
       "Data set: digits, shapes, mnist:DIR, cifar10:DIR, text:FILE or FILE.npz[,test=FILE.npz]",
       text("SPEC", &Settings::data), Kept::always, data_sets},
      {"--data",
       kRun | kQuantize,
       group::kCommon,
       "Data set whose test part to run on: digits, shapes, mnist:DIR, cifar10:DIR, "
       "text:FILE[,sequence=N] or FILE.npz[,test=FILE.npz]",
       text("SPEC", &Settings::data),
       Kept::settings,
       data_sets,
       {"input", "random_input"}},
      {"--data", kConvert | kDoctor | kCost | kPlanNodes | kOfBuiltIn, kNetwork,
       "Data set that sets the input shape of a built-in network: digits, shapes, mnist:DIR, "
       "cifar10:DIR or FILE.npz",
       text("SPEC", &Settings::data), Kept::nothing, data_sets},
      {"--shape",
       kCost,
       kNetwork,
       "Shape of a sample of a built-in network: 3x224x224, or 1024 for tokens [as it is usual]",
       shape_of_sample(),
       Kept::nothing,
       std::nullopt,
       {"data"}},
      {"--classes", kCost, kNetwork, "Classes, or tokens of the vocabulary [as it is usual]",
       whole(&Settings::classes, 1, kMostSamples)},
      {"--random-input",
       kRun,
       group::kCommon,
       "Random samples between -1 and 1, drawn from this seed",
       random_seed(),
       Kept::settings,
       {},
       {"input", "data"}},
      {"--normalize", kTrain | kRun | kQuantize, kNetwork,
       "Image scaling: unit (0 to 1), raw (0 to 255) or MEAN/DEVIATION [the data set's]",
       text("HOW", &Settings::normalize), Kept::settings, Offer{.words = {"unit", "raw"}}},
      {"--labels", kRun | kQuantize, kNetwork,
       "Class of each sample or pixel, to print accuracies: a .npy or .npz",
       text("FILE", &Settings::labels), Kept::settings, Offer{.files = "*.np[yz]"}},
      {"--scores", kRun | kQuantize, kNetwork,
       "Output with the class scores [the first that fits the labels]",
       text("OUTPUT", &Settings::scores), Kept::settings},
      {"--ignore-label", kRun | kQuantize, kNetwork, "Label that does not count, such as 255 [-1]",
       ignored_label(), Kept::settings},
      {"--limit", kRun | kQuantize, group::kCommon,
       "Number of samples to run, from the first [all]", whole(&Settings::limit, 1, kMostSamples),
       Kept::settings},
      {"--batch", kRun | kQuantize, group::kCommon,
       "Samples per batch [the network's, else up to 128]",
       whole(&Settings::batch, 1, kMostSamples), Kept::always},
      {"--batch", kDoctor, kNetwork, "Samples per batch [the network's, else 128]",
       whole(&Settings::batch, 1, kMostSamples)},
      {"--batch", kCost | kPlanNodes | kOfBuiltIn | kOfFiles, kNetwork,
       "Samples per step [128; 1 for a file that takes any]",
       whole(&Settings::batch, 1, kMostSamples)},
      {"--batch", kConvert, kNetwork,
       "Samples per batch [any number if the network allows it, else 1]",
       whole(&Settings::batch, 1, kMostSamples)},
      {"--batch", kInspect, kNetwork, "Samples per batch [the network's, else 1]",
       whole(&Settings::batch, 1, kMostSamples)},
      {"--dimension", kTrain | kRun | kConvert | kDoctor | kCost | kQuantize | kInspect | kPlanFile,
       kNetwork, "Size of an open dimension (repeatable)", dimensions(), Kept::settings},
      {"--trainable", kTrain | kRun | kConvert | kCost | kInspect | kPlanFile, kNetwork,
       "Train these weights of an ONNX file (repeatable)", texts("GLOB", &Settings::trainable),
       Kept::settings},
      {"--frozen", kTrain | kRun | kConvert | kCost | kInspect | kPlanFile, kNetwork,
       "Freeze these weights of an ONNX file (repeatable)", texts("GLOB", &Settings::frozen),
       Kept::settings},
      {"--untie", kTrain | kRun | kConvert | kInspect | kPlanFile, kNetwork,
       "Untie these weights of an ONNX file (repeatable)", texts("GLOB", &Settings::untied),
       Kept::settings},
      {"--init", kTrain, kNetwork, "Initial weights: an .npz or .safetensors file [random]",
       text("FILE", &Settings::init), Kept::settings, Offer{.files = "*.npz"}},
      {"--init", kRun | kQuantize | kConvert, kNetwork,
       "Weights: an .npz or .safetensors file [the network's, else random]",
       text("FILE", &Settings::init), Kept::settings, Offer{.files = "*.npz"}},
      {"--no-shuffle", kTrain, kNetwork, "Take samples in file order in every epoch",
       toggle(&Settings::no_shuffle), Kept::settings},
      {"--seed", kRun | kQuantize, kNetwork, "Seed for missing weights and stochastic rounding",
       whole(&Settings::seed, 0, kMostSeed), Kept::always},
      {"--seed", kConvert, kNetwork, "Seed for missing weights",
       whole(&Settings::seed, 0, kMostSeed)},
  };
}

std::vector<Setting> training_rows() {
  const Offer formats{.words = format_names()};
  return {
      {"--steps", kTrain, group::kCommon, "Optimizer steps to train",
       whole(&Settings::steps, 1, kMostCounted), Kept::always},
      {"--batch", kTrain, group::kCommon, "Samples per step",
       whole(&Settings::batch, 1, kMostCounted), Kept::always},
      {"--optimizer",
       kTrain | kCost | kPlanTraining,
       group::kCommon,
       "Optimizer: sgd, adam, adamw or rmsprop, with options (see `help optimizers`)",
       parsed("NAME", &Settings::optimizer, parse_optimizer, optimizer_text),
       Kept::always,
       Offer{.words = {"sgd", "adam", "adamw", "rmsprop"}},
       {"lr"}},
      {"--lr", kTrain | kPlanTraining, group::kCommon,
       "Learning rate [0.1 for sgd, 0.01 for rmsprop, 0.001 for adam and adamw]", learning_rate(),
       Kept::file},
      {"--param-group", kTrain, kTraining, "Optimizer options of some weights (repeatable)",
       parameter_groups(), Kept::settings},
      {"--schedule", kTrain | kPlanTraining, kTraining, "Rate schedule (see `help optimizers`)",
       parsed("S", &Settings::schedule, parse_schedule, schedule_text), Kept::settings,
       Offer{.words = {"constant", "step:every=", "cosine", "linear", "onecycle", "file:"}}},
      {"--clip-norm", kTrain | kPlanTraining, kTraining,
       "Clip gradients to this 2-norm [no clipping]", real(&Settings::clip_norm, kMostReal),
       Kept::settings},
      {"--clip-before-unscale", kTrain | kPlanTraining, kTraining,
       "Make a common mistake: clip gradients before they are unscaled",
       toggle(&Settings::clip_before_unscale), Kept::settings},
      {"--unscale-only", kTrain | kPlanTraining, kTraining,
       "Make a common mistake: unscale gradients of a loss that was not scaled",
       toggle(&Settings::unscale_only), Kept::settings},
      {"--micro-batches", kTrain, kTraining, "Micro-batches to accumulate gradients over",
       whole(&Settings::micro_batches, 1, kMostCounted), Kept::settings},
      {"--accumulate-grads", kTrain, kTraining, "Format of accumulated gradients [the variable's]",
       format(&Settings::accumulate_grads), Kept::settings, formats},
      {"--ranks", kTrain, kTraining, "Data-parallel ranks to simulate",
       whole(&Settings::ranks, 1, kMostRanks), Kept::settings},
      {"--reduce", kTrain, kTraining, "Sum over ranks (see `help reduce`) [ring]",
       parsed("RECIPE", &Settings::reduction, parse_reduction, reduction_text), Kept::settings,
       Offer{.words = {reduction_names().begin(), reduction_names().end()}}},
      {"--optimizer-state", kTrain, kTraining, "Format of the optimizer's state [the variable's]",
       format(&Settings::optimizer_state), Kept::settings, formats},
      {"--optimizer-compute", kTrain, kTraining, "Format of the optimizer's arithmetic [fp32]",
       format(&Settings::optimizer_compute), Kept::settings, formats},
      {"--clip-format", kTrain, kTraining, "Format for unscaling and clipping gradients [fp32]",
       format(&Settings::clip_format), Kept::settings, formats},
      {"--ema", kTrain | kPlanTraining, kTraining,
       "Average the weights (see `help optimizers`) [off]", average(), Kept::settings},
      {"--early-stop", kTrain, kTraining,
       "Stop after N evaluations without improvement; needs --eval-every",
       whole(&Settings::early_stop, 1, kMostCounted), Kept::settings},
      {"--seed", kTrain, kTraining, "Seed for weights, shuffling and rounding",
       whole(&Settings::seed, 0, kMostSeed), Kept::always},
  };
}

std::vector<Setting> lane_rows() {
  const Offer plans{.words = plan_words(), .files = "*.json"};
  Offer starts = plans;
  starts.list = true;
  for (const std::string& name : backend_names()) starts.words.push_back(name + ":");
  const auto row = [&](std::string flag, unsigned commands, std::string help, SettingValue value,
                       std::optional<Offer> offer = {}) {
    return Setting{std::move(flag),  commands,    kLanes,          std::move(help),
                   std::move(value), Kept::lanes, std::move(offer)};
  };
  Setting lane_list = row("--lanes", kTrain | kRun | kCost,
                          "Plans to compare, separated by commas (see `help plans`)",
                          lanes("PLAN,...", &Settings::lanes, true), starts);
  lane_list.group = group::kCommon;
  lane_list.replaces = {"plan"};
  lane_list.kept = Kept::always_lanes;
  Setting one = row("--plan", kTrain, "Plan to compare with float32: --lanes float32,PLAN",
                    lanes("PLAN", &Settings::plans, false), plans);
  one.group = group::kCommon;
  one.replaces = {"lanes"};
  one.kept = Kept::file;
  Setting each = row("--plan", kRun, "Plan to compare with float32 (repeatable)",
                     lanes("PLAN", &Settings::plans, false, true), plans);
  each.group = group::kCommon;
  each.replaces = {"lanes"};
  each.kept = Kept::file;
  Setting costed = row("--plan", kCost, "Plan to compare with float32 (repeatable)",
                       lanes("PLAN", &Settings::plans, false, true), plans);
  costed.group = group::kCommon;
  costed.replaces = {"lanes"};
  costed.kept = Kept::nothing;
  Setting rest = row("--plan", kQuantize, "Plan for all that is not quantized [float32]",
                     lanes("PLAN", &Settings::plans, false), plans);
  rest.kept = Kept::nothing;
  Setting format_source =
      row("--plan", kDoctor, "Plan that decides each layer's input format [mixed_float16]",
          lanes("PLAN", &Settings::plans, false), plans);
  Setting shown = row("--plan", kConvert, "Plan whose rounding to write as Cast nodes [no plan]",
                      lanes("PLAN", &Settings::plans, false), plans);
  Setting typed = row("--typed", kConvert,
                      "Write tensors and operators in the types of --plan, for runtimes that take "
                      "strongly typed files",
                      toggle(&Settings::typed));
  Setting typed_io = row("--typed-io", kConvert,
                         "Write inputs and outputs in the plan's types, too; implies --typed",
                         toggle(&Settings::typed_io));
  Setting kernels = row("--kernels", kTrain | kRun, "Print the GPU kernels of matrix products",
                        toggle(&Settings::kernels));
  kernels.kept = Kept::nothing;
  return {
      lane_list,
      one,
      each,
      costed,
      rest,
      format_source,
      shown,
      typed,
      typed_io,
      row("--backend", kTrain | kRun,
          "Backend: emulated (CPU), cuda, cuda-own (our kernels) or cuda-fast",
          parsed(
              "NAME", &Settings::backend,
              [](const std::string& name) {
                check_backend_name(name);
                return name;
              },
              [](const std::string& name) { return name; }),
          Offer{.words = backend_names()}),
      row("--fast", kTrain | kRun,
          "Use the fastest kernels in cuda lanes; bits may differ from run to run",
          toggle(&Settings::fast)),
      kernels,
      row("--fp32", kTrain | kRun | kCost | kPlanNetwork | kOfNothing,
          "Layers to keep in fp32, by whole path (repeatable)", texts("GLOB", &Settings::fp32)),
      row("--fuse", kTrain | kRun | kCost,
          "Round chains of element-wise operators once, at their end, as XLA does",
          toggle(&Settings::fuse)),
      row("--accumulate", kTrain | kRun,
          "Order and precision of sums (see `help accumulation`) [the plan's]",
          parsed(
              "A", &Settings::accumulation,
              [](const std::string& text) {
                const std::optional<Accumulation> accumulation = parse_accumulation(text);
                if (accumulation) return *accumulation;
                throw usage_error("unknown accumulation '" + text + "'", accumulation_hint(text));
              },
              accumulation_name),
          Offer{.words = Texts(accumulation_names().begin(), accumulation_names().end())}),
      row("--loss-scale", kTrain | kPlanTraining,
          "Loss scale (see `help loss-scale`) [the plan's where a format needs it]",
          parsed("S", &Settings::loss_scale, parse_loss_scale, loss_scale_text),
          Offer{.words = {"dynamic", "dynamic:", "static:", "none", "torch", "tf-keras", "keras3",
                          "apex", "apex-fp16-utils", "deepspeed", "deepspeed-bf16"}}),
  };
}

SettingValue compared_lanes() {
  return {.name = "LANE,LANE",
          .many = true,
          .read = [](Settings& s, const std::string&,
                     const std::string& text) { s.compare.push_back(parse_pair(text)); },
          .texts =
              [](const Settings& s) {
                Texts texts;
                for (const auto& [a, b] : s.compare) texts.push_back(a + "," + b);
                return texts;
              }};
}

std::vector<Setting> recording_rows() {
  const auto row = [&](std::string flag, unsigned commands, std::string help, SettingValue value) {
    return Setting{std::move(flag), commands,         kRecording,
                   std::move(help), std::move(value), Kept::settings};
  };
  Setting compare = row("--compare", kTrain | kRun,
                        "Two lanes to compare (repeatable) [each with fp32]", compared_lanes());
  compare.kept = Kept::lanes;  // it names them
  return {
      row("--every", kTrain, "Record statistics every N steps",
          whole(&Settings::every, 1, 1'000'000'000)),
      row("--every", kRun, "Record statistics every N batches; needs --record",
          whole(&Settings::every, 1, 1'000'000'000)),
      row("--no-record", kTrain, "Record no statistics, only steps and evaluations",
          toggle(&Settings::no_record)),
      row("--eval-every", kTrain, "Evaluate every N steps [only at the end]",
          whole(&Settings::eval_every, 1, kMostCounted)),
      row("--no-eval", kTrain, "Skip the evaluation at the end", toggle(&Settings::no_eval)),
      row("--eval-ema", kTrain, "Evaluate the averages of --ema, not the weights",
          toggle(&Settings::evaluate_average)),
      row("--errors-every", kTrain,
          "Compare the lanes' tensors every N steps [first, middle and last]",
          whole(&Settings::errors_every, 1, kMostCounted)),
      row("--errors-every", kRun,
          "Compare the lanes' tensors every N batches; needs --record [first, middle and last]",
          whole(&Settings::errors_every, 1, kMostCounted)),
      compare,
      row("--no-errors", kTrain | kRun, "Skip the comparison of tensors between lanes",
          toggle(&Settings::no_errors)),
  };
}

std::vector<Setting> output_rows() {
  const auto file = [](std::string flag, unsigned commands, std::string Settings::*member,
                       std::string glob, std::string help, const char* group = group::kOutput) {
    return Setting{std::move(flag),
                   commands,
                   group,
                   std::move(help),
                   text("FILE", member),
                   Kept::nothing,
                   Offer{.files = std::move(glob)}};
  };
  return {
      file("--out", kTrain, &Settings::out, "*.hscope", "Run file to write", group::kCommon),
      file("--out", kRun, &Settings::out, "*.np[yz]", "Write the outputs to a .npz or .npy file",
           group::kCommon),
      file("--out", kConvert, &Settings::out, "*.onnx",
           "ONNX file to write (- for standard output); of tensors or ranks, the run file",
           group::kCommon),
      file("--out", kQuantize, &Settings::out, "*.json", "Write the plan (- for standard output)",
           group::kCommon),
      file("--record", kRun, &Settings::record, "*.hscope",
           "Write a run file with statistics and errors", group::kCommon),
      file("--save-weights", kTrain, &Settings::save_weights, "*.npz",
           "Write the last lane's final weights"),
      file("--save-ema", kTrain, &Settings::save_ema, "*.npz",
           "Write the last lane's moving averages"),
      file("--checkpoint", kTrain, &Settings::checkpoint, "*.npz",
           "Write a checkpoint at the end and on Ctrl-C"),
      {"--checkpoint-every", kTrain, group::kOutput, "Write the checkpoint every N steps, too",
       whole(&Settings::checkpoint_every, 1, kMostCounted)},
      {"--force", kTrain | kRun | kQuantize | kConvert, group::kOutput,
       "Replace existing output files", toggle(&Settings::force)},
      {"--json", kTrain | kRun | kDoctor | kCost | kQuantize | kInspect | kPlan | kOfAnything,
       group::kOutput, "Print the result as JSON", toggle(&Settings::json)},
      {"--quiet", kTrain | kRun | kQuantize, group::kOutput, "Print no progress and no table",
       toggle(&Settings::quiet)},
      file("--config", kTrain | kRun, &Settings::config, "*.json",
           "Settings from a JSON file; flags take precedence", group::kOther),
      {"--print-config", kTrain | kRun, group::kOther,
       "Print the settings as JSON for --config, and exit", toggle(&Settings::print_config)},
      file("--resume", kTrain, &Settings::resume, "*.npz",
           "Resume from this checkpoint, bit for bit", group::kOther),
      {"--verify", kTrain, group::kOther, "Prove the advice by training it beside fp32",
       toggle(&Settings::verify)},
      {"--verify", kRun, group::kOther,
       "Prove the advice by running it beside fp32; needs --record", toggle(&Settings::verify)},
      {"--threads", kTrain | kRun | kQuantize, group::kOther,
       "Threads to use; results stay the same [all cores]", whole(&Settings::threads, 1, 1024)},
  };
}

}  // namespace

const std::vector<Setting>& setting_table() {
  static const std::vector<Setting> table = [] {
    std::vector<Setting> all;
    for (auto rows : {network_rows, training_rows, lane_rows, recording_rows, output_rows}) {
      for (Setting& row : rows()) all.push_back(std::move(row));
    }
    return all;
  }();
  return table;
}

}  // namespace halfscope
