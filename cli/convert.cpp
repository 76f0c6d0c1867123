// SPDX-License-Identifier: MIT
// `halfscope convert`: a network as an ONNX file, as it is or with what a plan does to it.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <span>

#include "analysis/report/report_parts.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/network.h"
#include "cli/output.h"
#include "cli/train_options.h"
#include "cli/training.h"
#include "core/data/dataset.h"
#include "core/error.h"
#include "core/onnx/export.h"
#include "core/onnx/open_batch.h"
#include "core/train/lane_setup.h"

namespace halfscope {
namespace {

/// Numbers of samples that tell what depends on them: more than one, and no multiples.
constexpr int64_t kSamples = 2, kMoreSamples = 19;

struct ConvertOptions {
  std::string network, data, init, plan, out;
  std::vector<std::string> dimensions;
  int64_t batch = 0;  ///< 0: open where the file leaves it so, else 1
  uint64_t seed = 1;
  bool force = false;
};

/// The network as a file, for this many samples at once.
std::string written(const ConvertOptions& options, NetworkOptions wanted, int64_t batch) {
  wanted.batch = batch;
  wanted.batch_given = options.batch > 0;
  const Model network = load_network(options.network, wanted);
  const NamedTensors init =
      options.init.empty() ? NamedTensors{} : read_initial_weights(options.init);
  const NamedTensors weights = starting_weights(network, options.seed, init);
  if (options.plan.empty()) return onnx_bytes(network, weights);
  const Plan plan = network_plan(options.plan, options.network, wanted);
  if (plan.double_precision) {
    throw usage_error("--plan " + options.plan + " computes in double, which is not written",
                      "leave --plan out for the network as it is");
  }
  return onnx_bytes(lower_inference(network, plan), network.name, weights);
}

/// For any number of samples, if the file leaves it open and all that the network does can be said
/// without it; else for one.
std::string written_open(const ConvertOptions& options, const NetworkOptions& wanted) {
  if (!is_network_file(options.network)) return written(options, wanted, 1);
  const std::string dimension = load_network_file(options.network, wanted).open_batch;
  if (dimension.empty()) return written(options, wanted, 1);
  std::string obstacle;
  try {
    const std::string file = written(options, wanted, kSamples);
    const std::string other = written(options, wanted, kMoreSamples);
    OpenedBatch opened = open_batch({file, kSamples, other, kMoreSamples}, dimension, options.out);
    if (!opened.bytes.empty()) return std::move(opened.bytes);
    obstacle = opened.obstacle;
  } catch (const Error& error) {  // some networks are for one sample; else this comes again
    obstacle = error.what();
  }
  std::string fixed = written(options, wanted, 1);
  fmt::print(stderr, "note: {}: {} is fixed at 1: {}\n", options.out, dimension, obstacle);
  return fixed;
}

/// What feeds the network's own file may have to convert its arrays for the new one.
void tell_types(const ConvertOptions& options, const NetworkOptions& wanted,
                const std::string& bytes) {
  if (!is_network_file(options.network)) return;
  const auto before = load_network_file(options.network, wanted).input_types;
  const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  for (const auto& [input, type] : onnx_input_types(file, options.out)) {
    const auto found = before.find(input);
    if (found == before.end() || found->second == type) continue;
    fmt::print(stderr, "note: {}: input {} is {}, in {} it is {}\n", options.out, input, type,
               options.network, found->second);
  }
}

int convert_network(const ConvertOptions& options) {
  if (options.out.empty()) throw usage_error("nothing to write", "add --out net.onnx");
  check_distinct({options.network, options.init, options.out});
  check_result_file(options.out, options.force);
  NetworkOptions wanted;
  if (options.batch > 0) wanted.batch = options.batch;
  wanted.dimensions = parse_dimensions(options.dimensions);
  if (!options.data.empty()) describe_samples(load_dataset(options.data), wanted);
  const std::string bytes =
      options.batch == 0 ? written_open(options, wanted) : written(options, wanted, options.batch);
  write_result(options.out, bytes, options.force);
  tell_types(options, wanted, bytes);
  if (options.out != kStandardOutput) {
    write_out(fmt::format("{}: {}\n", options.out,
                          report::bytes_text(static_cast<int64_t>(bytes.size()))));
  }
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Command& command) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* sub = app.add_subcommand("convert", "Write a network as an ONNX file");
  sub->footer("Example:  halfscope convert net.onnx --plan mixed_float16 --out rounded.onnx");
  offer(sub->add_option("network", options->network,
                        "A file *.onnx, or lenet, lenet-hot, resnet20, mlp:A-B-...-Z")
            ->type_name("NETWORK")
            ->required()
            ->group(group::kArguments),
        {.words = network_words(), .files = "*.onnx"});
  const char* kGroup = "Network and data";
  offer(sub->add_option("--data", options->data,
                        "Data whose shape a built-in network takes: digits, mnist:DIR, ...")
            ->type_name("SPEC")
            ->group(kGroup),
        {.words = {"digits", "mnist:", "cifar10:"}, .folders_after = {"mnist:", "cifar10:"}});
  offer(sub->add_option("--init", options->init, "Weights, an .npz by variable path")
            ->type_name("FILE")
            ->group(kGroup),
        {.files = "*.npz"});
  add_integer(*sub, "--seed", options->seed, 0, 4294967295, "Of weights that nothing gives")
      ->default_str("1")
      ->group(kGroup);
  add_integer(*sub, "--batch", options->batch, 1, kMostSamples,
              "Samples at once; default: open where the network's file leaves it open, else 1")
      ->default_str("")
      ->group(kGroup);
  add_dimension_option(*sub, options->dimensions);
  offer(sub->add_option("--plan", options->plan,
                        "Show what this plan rounds by Casts; default: the network as it is")
            ->type_name("PLAN")
            ->group(kGroup),
        {.words = plan_words(), .files = "*.json"});
  add_output(*sub, "--out", options->out, "*.onnx", "The ONNX file");
  add_force(*sub, options->force);
  sub->callback([options, &command] { command = [options] { return convert_network(*options); }; });
}

}  // namespace halfscope
