// SPDX-License-Identifier: MIT
#include "cli/run_options.h"

#include "cli/arguments.h"
#include "cli/config_file.h"
#include "cli/lane_options.h"
#include "cli/network.h"
#include "core/error.h"

namespace halfscope {
namespace {

void add_input_options(CLI::App& sub, RunOptions& options) {
  const char* kGroup = "Network and data";
  offer(sub.add_option("network", options.network,
                       "A file *.onnx, or lenet, lenet-hot, resnet20, mlp:A-B-...-Z")
            ->type_name("NETWORK")
            ->group(group::kArguments),
        {.words = network_words(), .files = "*.onnx"});
  offer(sub.add_option("--input", options.inputs,
                       "Samples along the first dimension: x.npy, x.npz (arrays by name) or "
                       "NAME=x.npy; may be given several times")
            ->expected(1)
            ->take_all()
            ->type_name("FILE")
            ->group(kGroup),
        {.files = "*.np[yz]"});
  offer(sub.add_option("--data", options.data,
                       "The test part of digits, mnist:DIR or cifar10:DIR, with its labels")
            ->type_name("SPEC")
            ->group(kGroup),
        {.words = {"digits", "mnist:", "cifar10:"}, .folders_after = {"mnist:", "cifar10:"}});
  add_normalize_option(sub, options.normalize);
  sub.add_option_function<std::string>(
         "--random-input",
         [&options](const std::string& text) {
           options.random_seed = parse_integer("--random-input", text, 0, 4294967295);
         },
         "Random samples in [-1, 1) of this seed")
      ->type_name("SEED")
      ->group(kGroup);
  offer(sub.add_option("--labels", options.labels,
                       "Classes of the samples, a .npy or .npz; prints accuracies")
            ->type_name("FILE")
            ->group(kGroup),
        {.files = "*.np[yz]"});
  add_integer(sub, "--limit", options.limit, 1, kMostSamples, "Take the first N samples")
      ->group(kGroup);
  add_integer(sub, "--batch", options.batch, 1, kMostSamples,
              "Samples at once, where the network leaves it open; default: 128")
      ->group(kGroup);
  add_dimension_option(sub, options.dimensions);
  offer(sub.add_option("--init", options.init, "Weights, an .npz by variable path")
            ->type_name("FILE")
            ->group(kGroup),
        {.files = "*.npz"});
  add_integer(sub, "--seed", options.shared.seed, 0, 4294967295,
              "Of weights that nothing gives, and of stochastic rounding")
      ->default_str("1")
      ->group(kGroup);
}

}  // namespace

void add_run_options(CLI::App& sub, RunOptions& options) {
  add_config_flags(sub, options.config, options.print_config);
  add_input_options(sub, options);
  offer(sub.add_option("--plan", options.plans,
                       "A lane of this plan beside float32; may be given several times")
            ->expected(1)
            ->take_all()
            ->type_name("PLAN")
            ->group("Lanes"),
        {.words = plan_words(), .files = "*.json"});
  add_run_lane_options(sub, options.shared);
  add_output(sub, "--out", options.out, "*.np[yz]", "Outputs of all samples, by name");
  add_output(sub, "--record", options.record, "*.hscope", "Run file of statistics and errors");
  add_force(sub, options.shared.force);
  sub.add_flag("--json", options.shared.json, "Print the results as JSON")->group(group::kOutput);
  sub.add_flag("--quiet", options.shared.quiet, "No table")->group(group::kOutput);
  add_integer(sub, "--threads", options.shared.threads, 1, 1024,
              "Results do not depend on it; default: all cores")
      ->group(group::kOther);
}

void check_network(const RunOptions& options) {
  if (options.network.empty()) {
    throw usage_error("run needs a NETWORK", "halfscope run --help");
  }
}

void check_sources(const RunOptions& options) {
  const int sources = !options.inputs.empty() + !options.data.empty() +
                      static_cast<int>(options.random_seed.has_value());
  if (sources != 1) {
    throw usage_error(sources == 0 ? "there is nothing to run the network on"
                                   : "--input, --data and --random-input exclude each other",
                      "give one of --input, --data and --random-input");
  }
  if (!options.normalize.empty() && options.data.empty()) {
    throw usage_error("--normalize is for the images of --data", "leave it out");
  }
  if (options.random_seed && !options.labels.empty()) {
    throw usage_error("random samples have no labels", "leave out --labels");
  }
}

TrainOptions run_lanes(const RunOptions& options) {
  TrainOptions lanes = options.shared;
  lanes.model = options.network;
  lanes.dimensions = options.dimensions;
  lanes.config = options.config;  // one of the files that are read
  if (options.plans.empty()) return lanes;
  if (lanes.lanes_given) {
    throw usage_error("--plan and --lanes exclude each other", "add the plan to --lanes");
  }
  lanes.lanes = "float32";
  for (const std::string& plan : options.plans) {
    if (plan != "float32") lanes.lanes += "," + plan;
  }
  return lanes;
}

std::vector<std::string> run_settings(const RunOptions& options, const RunInfo& info) {
  std::vector<std::string> words{options.network};
  const auto add = [&words](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  for (const std::string& input : options.inputs) add("--input", input);
  add("--data", options.data);
  if (options.random_seed) add("--random-input", std::to_string(*options.random_seed));
  add("--normalize", options.normalize);
  add("--labels", options.labels);
  if (options.limit > 0) add("--limit", std::to_string(options.limit));
  add("--batch", std::to_string(info.batch));
  for (const std::string& dimension : options.dimensions) add("--dimension", dimension);
  add("--init", options.init);
  add("--seed", std::to_string(info.seed));
  if (info.every != 1) add("--every", std::to_string(info.every));
  const TrainOptions& shared = options.shared;
  if (shared.errors_every > 0) add("--errors-every", std::to_string(shared.errors_every));
  if (shared.no_errors) words.emplace_back("--no-errors");
  return words;
}

}  // namespace halfscope
