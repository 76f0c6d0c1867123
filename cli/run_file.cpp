// SPDX-License-Identifier: MIT
#include "cli/run_file.h"

#include "cli/config_file.h"
#include "cli/lane_options.h"
#include "cli/network.h"
#include "core/train/lane_setup.h"

namespace halfscope {
namespace {

const ConfigForm& run_form() {
  static const ConfigForm run{
      .command = "run",
      .schema = "halfscope.run-config/1",
      .keys = {"network",      "input",   "data",      "random_input", "normalize",  "labels",
               "limit",        "batch",   "dimension", "init",         "seed",       "lanes",
               "plan",         "backend", "fast",      "fp32",         "accumulate", "every",
               "errors_every", "compare", "no_errors"},
      .lists = {"input", "dimension", "plan", "fp32", "compare"},
      .argument = "network",
      .replaces = {{"--plan", {"--lanes"}},
                   {"--lanes", {"--plan"}},
                   {"--input", {"--data", "--random-input"}},
                   {"--data", {"--input", "--random-input"}},
                   {"--random-input", {"--input", "--data"}}}};
  return run;
}

}  // namespace

int with_run_file(const std::string& file, const CLI::App& given,
                  const std::function<int(const RunOptions&)>& body) {
  const auto check = [](const RunOptions& options) {
    check_network(options);
    check_sources(options);
    const TrainOptions lanes = run_lanes(options);
    lane_pairs(error_sampling(lanes), lanes_of(lanes));
    parse_dimensions(options.dimensions);
  };
  return with_settings<RunOptions>(run_form(), file, given, RunOptions(), add_run_options, check,
                                   body);
}

Json run_file_json(const RunOptions& options) {
  check_sources(options);
  const TrainOptions lanes = run_lanes(options);
  lanes_of(lanes);
  error_sampling(lanes);
  ConfigJson set;
  Json& json = set.json;
  json["schema"] = run_form().schema;
  set.text("network", options.network);
  set.list("input", options.inputs);
  set.text("data", options.data);
  if (options.random_seed) json["random_input"] = *options.random_seed;
  set.text("normalize", options.normalize);
  set.text("labels", options.labels);
  set.number("limit", options.limit);
  set.number("batch", options.batch);
  set.list("dimension", options.dimensions);
  set.text("init", options.init);
  json["seed"] = lanes.seed;
  json["lanes"] = lanes_json(lanes);
  json["backend"] = lanes.backend;
  json["fast"] = lanes.fast;
  set.list("fp32", lanes.fp32);
  set.text("accumulate", lanes.accumulate);
  json["every"] = lanes.every;
  set.number("errors_every", lanes.errors_every);
  set.list("compare", lanes.compare);
  json["no_errors"] = lanes.no_errors;
  return json;
}

}  // namespace halfscope
