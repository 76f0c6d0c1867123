// SPDX-License-Identifier: MIT
// `halfscope convert`: a network as an ONNX file, as it is or with what a plan does to it.
#include <fmt/format.h>

#include <span>

#include "analysis/report/report_parts.h"
#include "cli/args/lanes.h"
#include "cli/args/network.h"
#include "cli/args/setting.h"
#include "cli/args/zoo_case.h"
#include "cli/commands/command.h"
#include "cli/tasks/training.h"
#include "cli/terminal/output.h"
#include "core/data/dataset.h"
#include "core/error.h"
#include "core/onnx/export.h"
#include "core/onnx/open_batch.h"
#include "core/train/lane_setup.h"

namespace halfscope {
namespace {

/// Numbers of samples that tell what depends on them: more than one, and no multiples.
constexpr int64_t kSamples = 2, kMoreSamples = 19;

/// The network as a file, for this many samples at once.
std::string written(const Settings& settings, NetworkOptions wanted, int64_t batch) {
  wanted.batch = batch;
  wanted.batch_given = settings.batch > 0;
  const Model network = load_network(settings.model, wanted);
  const NamedTensors weights =
      starting_weights(network, settings.seed, read_initial_weights(settings));
  if (settings.plans.empty()) return onnx_bytes(network, weights);
  const Plan plan = plan_of(settings.plans[0], settings);
  if (plan.double_precision) {
    throw usage_error(
        "--plan " + lane_text(settings.plans[0]) + " computes in double, which is not written",
        "leave --plan out for the network as it is");
  }
  return onnx_bytes(lower_inference(network, plan), network.name, weights);
}

/// For any number of samples, if the file leaves it open and all that the network does can be said
/// without it; else for one.
std::string written_open(const Settings& settings, const NetworkOptions& wanted) {
  if (!is_network_file(settings.model)) return written(settings, wanted, 1);
  const std::string dimension = load_network_file(settings.model, wanted).open_batch;
  if (dimension.empty()) return written(settings, wanted, 1);
  std::string obstacle;
  try {
    const std::string file = written(settings, wanted, kSamples);
    const std::string other = written(settings, wanted, kMoreSamples);
    OpenedBatch opened = open_batch({file, kSamples, other, kMoreSamples}, dimension, settings.out);
    if (!opened.bytes.empty()) return std::move(opened.bytes);
    obstacle = opened.obstacle;
  } catch (const Error& error) {  // some networks are for one sample; else this comes again
    obstacle = error.what();
  }
  std::string fixed = written(settings, wanted, 1);
  fmt::print(stderr, "note: {}: {} is fixed at 1: {}\n", settings.out, dimension, obstacle);
  return fixed;
}

/// What feeds the network's own file may have to convert its arrays for the new one.
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

int convert_network(const Settings& settings) {
  if (settings.out.empty()) throw usage_error("nothing to write", "add --out net.onnx");
  std::vector<std::string> files = input_files(settings);
  files.push_back(settings.out);
  check_distinct(files);
  check_result_file(settings.out, settings.force);
  NetworkOptions wanted = network_options(settings);
  if (settings.batch > 0) wanted.batch = settings.batch;
  if (!settings.data.empty()) describe_samples(load_data(settings.data), wanted);
  const std::string bytes = settings.batch == 0 ? written_open(settings, wanted)
                                                : written(settings, wanted, settings.batch);
  write_result(settings.out, bytes, settings.force);
  tell_types(settings, wanted, bytes);
  if (settings.out != kStandardOutput) {
    write_out(fmt::format("{}: {}\n", settings.out,
                          report::bytes_text(static_cast<int64_t>(bytes.size()))));
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
