// SPDX-License-Identifier: MIT
#include "cli/run_file.h"

#include "cli/config_file.h"
#include "cli/lane_options.h"

namespace halfscope {
namespace {

const ConfigForm& form() {
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

RunOptions read_run_file(const std::string& file, const CLI::App& given) {
  return settings_from(form(), file, given, RunOptions(), add_run_options);
}

Json run_file_json(const RunOptions& options) {
  check_sources(options);
  const TrainOptions lanes = run_lanes(options);
  lanes_of(lanes);
  error_sampling(lanes);
  Json json;
  json["schema"] = form().schema;
  const auto text = [&json](const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value;
  };
  const auto number = [&json](const char* key, int64_t value) {
    if (value != 0) json[key] = value;
  };
  const auto list = [&json](const char* key, const std::vector<std::string>& values) {
    if (!values.empty()) json[key] = values;
  };
  text("network", options.network);
  list("input", options.inputs);
  text("data", options.data);
  if (options.random_seed) json["random_input"] = *options.random_seed;
  text("normalize", options.normalize);
  text("labels", options.labels);
  number("limit", options.limit);
  number("batch", options.batch);
  list("dimension", options.dimensions);
  text("init", options.init);
  json["seed"] = lanes.seed;
  json["lanes"] = lanes_json(lanes);
  json["backend"] = lanes.backend;
  json["fast"] = lanes.fast;
  list("fp32", lanes.fp32);
  text("accumulate", lanes.accumulate);
  json["every"] = lanes.every;
  number("errors_every", lanes.errors_every);
  list("compare", lanes.compare);
  json["no_errors"] = lanes.no_errors;
  return json;
}

}  // namespace halfscope
