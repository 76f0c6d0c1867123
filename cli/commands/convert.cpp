// SPDX-License-Identifier: MIT
// `halfscope convert`: a network as an ONNX file, as it is or with what a plan does to it.
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "analysis/rules/text.h"
#include "cli/args/lanes.h"
#include "cli/args/network.h"
#include "cli/args/setting.h"
#include "cli/args/zoo_case.h"
#include "cli/commands/command.h"
#include "cli/tasks/exported_check.h"
#include "cli/tasks/rank_runs.h"
#include "cli/tasks/run_input.h"
#include "cli/tasks/tensor_run.h"
#include "cli/tasks/training.h"
#include "cli/terminal/output.h"
#include "core/data/dataset.h"
#include "core/error.h"
#include "core/onnx/export.h"
#include "core/onnx/open_batch.h"
#include "core/train/lane_setup.h"

namespace halfscope {
namespace {

/// Two batch sizes that show what depends on the batch: above one, and not multiples.
constexpr int64_t kSamples = 2, kMoreSamples = 19;

/// The network as a file.
struct Written {
  std::string bytes;
  int64_t batch = 1;  ///< samples at once that it was written for
};

bool is_typed(const Settings& settings) { return settings.typed || settings.typed_io; }

/// The network for this many samples at once.
Model network_for(const Settings& settings, NetworkOptions wanted, int64_t batch) {
  wanted.batch = batch;
  wanted.batch_given = settings.batch > 0;
  return load_network(settings.model, wanted);
}

Written written(const Settings& settings, const NetworkOptions& wanted, int64_t batch) {
  const Model network = network_for(settings, wanted, batch);
  const NamedTensors weights =
      starting_weights(network, settings.seed, read_initial_weights(settings));
  if (settings.plans.empty()) return {onnx_bytes(network, weights), batch};
  const Plan plan = plan_of(settings.plans[0], settings);
  if (plan.double_precision) {
    throw usage_error("--plan '" + lane_text(settings.plans[0]) +
                          "' runs in double precision, which ONNX output does not support",
                      "leave --plan out for the network as it is");
  }
  const ShownPlan shown = settings.typed_io    ? ShownPlan::types_and_io
                          : is_typed(settings) ? ShownPlan::types
                                               : ShownPlan::casts;
  return {onnx_bytes(lower_inference(network, plan), network.name, weights, shown), batch};
}

/// Writes the network for any number of samples if its file leaves that open and no node depends on
/// it; else for one sample.
Written written_open(const Settings& settings, const NetworkOptions& wanted) {
  if (!is_network_file(settings.model)) return written(settings, wanted, 1);
  const std::string dimension = load_network_file(settings.model, wanted).open_batch;
  if (dimension.empty()) return written(settings, wanted, 1);
  std::string obstacle;
  try {
    const std::string file = written(settings, wanted, kSamples).bytes;
    const std::string other = written(settings, wanted, kMoreSamples).bytes;
    OpenedBatch opened = open_batch({file, kSamples, other, kMoreSamples}, dimension, settings.out);
    if (!opened.bytes.empty()) return {std::move(opened.bytes), kSamples};
    obstacle = opened.obstacle;
  } catch (const Error& error) {  // some networks are for one sample; else this comes again
    obstacle = error.what();
  }
  Written fixed = written(settings, wanted, 1);
  fmt::print(stderr, "note: {}: {} is fixed at 1: {}\n", settings.out, dimension, obstacle);
  return fixed;
}

/// Reads a file back and says whether it computes what the plan says.
std::string checked(const Settings& settings, const NetworkOptions& wanted, const Written& made,
                    const std::optional<Dataset>& given) {
  try {
    const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(made.bytes.data()),
                                         made.bytes.size());
    const OnnxImport file = parse_onnx(bytes, settings.out, ".", {.batch = made.batch});
    const Model network = network_for(settings, wanted, made.batch);
    const Dataset samples =
        given ? *given : random_inputs(network, made.batch, made.batch, settings.seed);
    const NamedTensors weights =
        starting_weights(network, settings.seed, read_initial_weights(settings));
    const Plan plan = plan_of(settings.plans[0], settings);
    const Executable lane = lower_inference(network, plan);
    // Products of codes compute in float32 in typed files, too.
    bool quantized = false, optimized = true;
    for (const Node& node : lane.graph.nodes()) {
      if (node.op != "Quantize") continue;
      quantized = true;
      optimized = optimized && node.plan.write == kInt8Format;
    }
    if (is_typed(settings) && !quantized) {
      return check_typed_file(file, lane, weights, samples).summary();
    }
    return check_outputs(file, lane, weights, samples) +
           (optimized ? ""
                      : "; run it in ONNX Runtime with ORT_DISABLE_ALL, because its optimizations "
                        "change results of these formats");
  } catch (const Error& error) {
    return std::string("not checked: ") + error.what();
  }
}

void check_settings_of_file(const Settings& settings) {
  if (is_typed(settings) && settings.plans.empty()) {
    throw usage_error("--typed needs a plan, whose formats are the types",
                      "add --plan, for instance --plan mixed_float16");
  }
  if (settings.plans.empty() && !settings.inputs.empty()) {
    throw usage_error("--input is for the check of a file with a plan",
                      "add --plan or leave --input out");
  }
}

/// Notes inputs whose type changed: programs must convert their arrays for the new file.
void tell_types(const Settings& settings, const NetworkOptions& wanted, const std::string& bytes) {
  if (!is_network_file(settings.model)) return;
  const auto before = load_network_file(settings.model, wanted).input_types;
  const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  for (const auto& [input, type] : onnx_input_types(file, settings.out)) {
    const auto found = before.find(input);
    if (found == before.end() || found->second == type) continue;
    fmt::print(stderr, "note: {}: input {} is {}, in {} it is {}\n", settings.out, input, type,
               settings.model, found->second);
  }
}

/// Refuses a name that says another kind of file than the one that is written.
void check_ending(const std::string& out, const char* wrong, const char* written,
                  const char* example) {
  if (std::filesystem::path(out).extension() != wrong) return;
  throw usage_error(
      fmt::format("'{}' is named like another kind of file: convert writes {} here", out, written),
      example);
}

/// Writes a run file from what another program recorded. Flags of networks have no meaning here.
int convert_recording(const Settings& settings, bool folder) {
  for (const std::string& key : settings.given) {
    if (key == "network" || key == "out" || key == "force") continue;
    throw usage_error(fmt::format("--{} is for networks, but '{}' is {}", key, settings.model,
                                  folder ? "a folder of tensors" : "a run file"),
                      "leave it out");
  }
  check_is_file_name(settings.out, "a run file");
  check_ending(settings.out, ".onnx", "a run file", "add --out run.hscope");
  write_out(folder ? record_tensor_folder(settings.model, settings.out, settings.force)
                   : merge_rank_runs(settings.model, settings.out, settings.force));
  return 0;
}

int convert_network(const Settings& settings) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(settings.model, ignored);
  const bool recording = folder || is_rank_file(settings.model);
  if (settings.out.empty()) {
    throw usage_error("convert needs a file to write",
                      recording ? "add --out run.hscope" : "add --out net.onnx");
  }
  if (recording) return convert_recording(settings, folder);
  check_settings_of_file(settings);
  check_ending(settings.out, ".hscope", "an ONNX file", "add --out net.onnx");
  check_files({.read = input_files(settings), .written = {settings.out}}, settings.force);
  NetworkOptions wanted = network_options(settings);
  if (settings.batch > 0) wanted.batch = settings.batch;
  if (!settings.data.empty()) describe_samples(load_data(settings.data), wanted);
  std::optional<Dataset> samples;
  if (!settings.inputs.empty()) samples = read_inputs(settings.inputs);
  const Written made = settings.batch == 0 ? written_open(settings, wanted)
                                           : written(settings, wanted, settings.batch);
  write_result(settings.out, made.bytes, settings.force);
  tell_types(settings, wanted, made.bytes);
  if (settings.out != kStandardOutput) {
    write_out(
        fmt::format("{}: {}\n", settings.out, bytes_text(static_cast<int64_t>(made.bytes.size()))));
  }
  if (!settings.plans.empty()) {
    wanted.quiet = true;
    fmt::print(stderr, "note: {}: {}\n", settings.out, checked(settings, wanted, made, samples));
  }
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Invocation& call) {
  CLI::App* sub = app.add_subcommand("convert", "Write a network as an ONNX file");
  sub->footer("Example:  halfscope convert net.onnx --plan mixed_float16 --out rounded.onnx");
  add_settings(*sub, kConvert);
  sub->callback([sub, &call] {
    call.action = [sub] { return convert_network(read_settings(*sub, kConvert)); };
  });
}

}  // namespace halfscope
