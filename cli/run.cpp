// SPDX-License-Identifier: MIT
// `halfscope run`: a network's forward pass in lanes of several precisions, side by side.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "analysis/output_file.h"
#include "analysis/recorder.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/kernel_lines.h"
#include "cli/lane_options.h"
#include "cli/lane_summary.h"
#include "cli/network.h"
#include "cli/progress.h"
#include "cli/run_file.h"
#include "cli/run_input.h"
#include "cli/run_options.h"
#include "cli/stop.h"
#include "cli/train_options.h"
#include "cli/training.h"
#include "core/data/npz.h"
#include "core/error.h"
#include "core/train/runner.h"
#include "emulation/isa.h"

namespace halfscope {
namespace {

constexpr int64_t kUsualBatch = 128;
constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

/// The samples, and the labels that go with them.
struct Samples {
  Dataset data;
  std::vector<int32_t> labels;
};

Samples read_samples(const RunOptions& options) {
  Samples samples;
  if (!options.data.empty()) {
    samples.data = load_dataset(options.data);
    samples.data.train = {};
    if (samples.data.test.size() == 0) {
      throw usage_error("--data " + options.data + " has no test part", "use --input");
    }
  } else {
    samples.data = read_inputs(options.inputs);
  }
  if (!options.normalize.empty()) normalize_images(samples.data, options.normalize);
  samples.labels =
      options.labels.empty() ? labels_of(samples.data.test) : read_labels(options.labels);
  if (static_cast<int64_t>(samples.labels.size()) != samples.data.test.size() &&
      !samples.labels.empty()) {
    throw usage_error(fmt::format("labels {}: {} labels for {} samples", options.labels,
                                  samples.labels.size(), samples.data.test.size()),
                      "give one label for each sample");
  }
  if (options.limit > 0) {
    keep_first(samples.data.test, samples.data, options.limit);
    if (static_cast<int64_t>(samples.labels.size()) > options.limit) {
      samples.labels.resize(static_cast<size_t>(options.limit));
    }
  }
  return samples;
}

/// Everything that can be wrong without any work.
void check_files(const RunOptions& options, const TrainOptions& lanes) {
  std::vector<std::string> files = input_files(lanes);
  for (const std::string& file : input_array_files(options.inputs)) files.push_back(file);
  files.insert(files.end(), {options.labels, options.init});
  // One file may hold samples and labels; what is written must be none of what is read.
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  files.insert(files.end(), {options.out, options.record});
  check_distinct(files);
  check_is_file_name(options.record, "a run file");
  check_is_file_name(options.out, "a NumPy file");
  for (const std::string& file : {options.out, options.record}) {
    if (!file.empty()) check_output_file(file, options.shared.force);
  }
  if (!options.out.empty() && !options.out.ends_with(".npz") && !options.out.ends_with(".npy")) {
    throw usage_error("--out " + options.out + ": neither .npz nor .npy",
                      "outputs are written as NumPy arrays");
  }
}

/// ||y - reference|| / ||reference|| over all outputs, elements finite in both; NaN without any.
double output_error(const NamedTensors& outputs, const NamedTensors& reference) {
  double difference = 0.0, size = 0.0;
  bool any = false;
  for (const auto& [name, tensor] : outputs) {
    const std::vector<float>& other = reference.at(name).data;
    for (size_t i = 0; i < other.size(); ++i) {
      const double x = static_cast<double>(tensor.data[i]), y = static_cast<double>(other[i]);
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      difference += (x - y) * (x - y);
      size += y * y;
      any = true;
    }
  }
  if (!any) return std::numeric_limits<double>::quiet_NaN();
  return difference == 0.0 ? 0.0 : std::sqrt(difference / size);
}

int64_t non_finite(const NamedTensors& outputs) {
  int64_t count = 0;
  for (const auto& [name, tensor] : outputs) {
    count += std::count_if(tensor.data.begin(), tensor.data.end(),
                           [](float x) { return !std::isfinite(x); });
  }
  return count;
}

struct LaneResult {
  std::string name, backend;
  bool reference = false;
  int64_t samples = 0, non_finite = 0;
  double accuracy = 0.0, error = 0.0, seconds = 0.0;
  std::string problem{};  ///< why it was lost; empty if it was not

  double rate() const { return static_cast<double>(samples) / seconds; }
};

std::vector<LaneResult> results_of(const Runner& runner, const RunInfo& info) {
  const std::vector<LaneSummary> lanes = untrained_lanes(info);
  const auto reference = std::find_if(lanes.begin(), lanes.end(),
                                      [](const LaneSummary& lane) { return lane.reference; });
  std::vector<LaneResult> results;
  for (size_t i = 0; i < lanes.size(); ++i) {
    const Runner::Result& each = runner.result(i);
    const size_t other = static_cast<size_t>(reference - lanes.begin());
    const bool compares = reference != lanes.end() && !lanes[i].reference && runner.has_lane(i) &&
                          runner.has_lane(other);
    results.push_back({.name = lanes[i].name,
                       .backend = lanes[i].backend,
                       .reference = lanes[i].reference,
                       .samples = runner.samples_done(),
                       .non_finite = non_finite(each.outputs),
                       .accuracy = each.accuracy(),
                       .error = compares ? output_error(each.outputs, runner.result(other).outputs)
                                         : kNotMeasured,
                       .seconds = each.seconds});
    for (const Runner::LostLane& lost : runner.lost_lanes()) {
      if (lost.name != lanes[i].name) continue;
      results.back().problem = fmt::format("lost at batch {}: {}", lost.batch, lost.why);
      results.back().samples = std::min(results.back().samples, lost.batch * runner.batch());
      results.back().accuracy = kNotMeasured;
    }
  }
  return results;
}

std::string table_of(const std::vector<LaneResult>& lanes) {
  std::vector<std::vector<std::string>> rows{
      {"lane", "samples", "accuracy", "output error", "not finite", "samples/s"}};
  for (const LaneResult& lane : lanes) {
    rows.push_back({lane.name, std::to_string(lane.samples), percentage(lane.accuracy),
                    table_number(lane.error), std::to_string(lane.non_finite),
                    table_number(lane.rate())});
  }
  return aligned(rows, {false, true, true, true, true, true});
}

Json measured(double value) { return std::isnan(value) ? Json(nullptr) : json_number(value); }

Json json_of(const RunOptions& options, const Runner& runner, const RunInfo& info,
             const std::vector<LaneResult>& lanes) {
  const auto file = [](const std::string& name) {
    return name.empty() ? Json(nullptr) : Json(name);
  };
  Json json;
  json["schema"] = "halfscope.run/1";
  json["version"] = kVersion;
  json["network"] = options.network;
  json["data"] = info.data;
  json["batch"] = info.batch;
  json["samples"] = runner.samples_done();
  json["out"] = file(options.out);
  json["record"] = file(options.record);
  json["outputs"] = Json::array();
  size_t whole = 0;  // a lane that is not lost, if there is one
  while (whole + 1 < lanes.size() && !runner.has_lane(whole)) ++whole;
  for (const std::string& name : runner.output_names()) {
    const auto& outputs = runner.result(whole).outputs;
    const auto found = outputs.find(name);
    json["outputs"].push_back(
        {{"name", name}, {"shape", found == outputs.end() ? Shape{} : found->second.shape}});
  }
  json["lanes"] = Json::array();
  for (const LaneResult& lane : lanes) {
    json["lanes"].push_back(
        {{"name", lane.name},
         {"backend", lane.backend},
         {"reference", lane.reference},
         {"samples", lane.samples},
         {"accuracy", measured(lane.accuracy)},
         {"output_error", measured(lane.error)},
         {"non_finite", lane.non_finite},
         {"seconds", measured(lane.seconds)},
         {"samples_per_second", measured(lane.rate())},
         {"problem", lane.problem.empty() ? Json(nullptr) : Json(lane.problem)}});
  }
  return json;
}

/// By the outputs' names; of several lanes as LANE/OUTPUT.
void write_outputs(const RunOptions& options, const Runner& runner, const RunInfo& info) {
  if (options.out.ends_with(".npy")) {
    write_npy(options.out, runner.result(0).outputs.begin()->second);
    return;
  }
  NamedTensors all;
  for (size_t i = 0; i < info.lanes.size(); ++i) {
    if (!runner.has_lane(i)) continue;  // it does not have all of them
    for (const auto& [name, tensor] : runner.result(i).outputs) {
      all[info.lanes.size() == 1 ? name : info.lanes[i].name + "/" + name] = tensor;
    }
  }
  write_npz(options.out, all);
}

/// A --batch that a network's file does not follow is no wish that may be ignored. What one sample
/// is depends on the samples, so that the runner knows best.
void check_batch(const RunOptions& options, const NetworkOptions& wanted, const Runner& runner) {
  if (options.batch == 0 || runner.batch() == options.batch) return;
  if (!is_network_file(options.network)) return;
  const OnnxImport import = load_network_file(options.network, wanted);
  // Random samples may have all of an input's shape.
  const bool whole = options.random_seed && runner.batch() == 1;
  throw batch_error(options.network, import, options.batch,
                    whole ? samples_at_once(import) : runner.batch());
}

int run_network(const RunOptions& options, const std::string& command_line) {
  check_sources(options);
  const TrainOptions lanes = run_lanes(options);
  RunnerConfig config{.lanes = lanes_of(lanes)};
  config.errors = error_sampling(lanes);
  active_isa();  // a bad HALFSCOPE_ISA shows before the work
  check_files(options, lanes);
  if (options.out.ends_with(".npy") && config.lanes.size() > 1) {
    throw usage_error("--out " + options.out + " holds the outputs of one lane",
                      "write a .npz, or run one lane");
  }
  config.seed = lanes.seed;
  config.every = options.record.empty() || lanes.no_record ? 0 : lanes.every;
  if (options.record.empty()) config.errors = {};
  if (!options.init.empty()) config.init = read_initial_weights(options.init);
  if (lanes.threads > 0) omp_set_num_threads(lanes.threads);

  Samples samples;
  NetworkOptions wanted;
  wanted.dimensions = parse_dimensions(options.dimensions);
  if (!options.random_seed) {
    samples = read_samples(options);
    describe_samples(samples.data, wanted);
  }
  const int64_t available =
      options.random_seed ? std::max<int64_t>(options.limit, 1) : samples.data.test.size();
  wanted.batch = options.batch > 0 ? options.batch : std::min(kUsualBatch, available);
  OnnxImport imported;
  if (is_network_file(options.network)) {
    imported = load_network_file(options.network, wanted);
  } else {
    imported.model = load_network(options.network, wanted);
  }
  const Model& network = imported.model;
  if (options.random_seed) {
    // A network of one sample at a time has a dimension of 1 for it, or none.
    const int64_t first = samples_at_once(imported);
    const int64_t batch = first == wanted.batch || first == 1 ? first : 0;
    samples.data = random_inputs(network, batch, available, *options.random_seed);
  }
  config.labels = samples.labels;
  std::unique_ptr<Runner> runner;
  try {
    runner = std::make_unique<Runner>(network, config, samples.data);
  } catch (const Error& e) {
    throw Error(options.network + ": " + e.what(), e.hint(), e.kind());
  }
  check_batch(options, wanted, *runner);
  if (options.out.ends_with(".npy") && runner->output_names().size() > 1) {
    throw usage_error("--out " + options.out + " holds one output, the network has " +
                          std::to_string(runner->output_names().size()),
                      "write a .npz");
  }
  RunInfo info = runner->describe();
  info.data = options.data.empty() ? samples.data.name : options.data;
  info.command = command_line;
  info.settings = run_settings(options, info);
  info.lane_settings = lane_settings_of(lanes);
  info.version = kVersion;
  info.threads = omp_get_max_threads();
  info.isa = isa_name(active_isa());

  const std::atomic<bool>& stop = catch_stop_signals();
  std::optional<Recorder> recorder;
  if (!options.record.empty()) {
    recorder.emplace(options.record, Recorder::Options{.force = options.shared.force});
    recorder->begin(info);
  }
  if (lanes.kernels) print_kernels(runner->product_kernels());
  {
    ProgressLine progress(info.steps_planned, info, options.shared.quiet);
    runner->run(recorder ? &*recorder : nullptr, std::ref(progress), stop);
  }
  if (lanes.kernels) print_launches(runner->entry_launches());
  const std::vector<LaneResult> results = results_of(*runner, info);
  if (!options.out.empty() && runner->samples_done() > 0) write_outputs(options, *runner, info);
  if (options.shared.json) {
    write_json(json_of(options, *runner, info, results));
  } else if (!options.shared.quiet) {
    std::string text = table_of(results);
    if (runner->samples_done() < info.test_samples) {
      text += fmt::format("stopped after {} of {} samples\n", runner->samples_done(),
                          info.test_samples);
    }
    if (!options.out.empty()) text += "outputs: " + options.out + "\n";
    if (!options.record.empty()) {
      text += fmt::format("run file: {}\nnext: halfscope report {} --html {}\n", options.record,
                          shell_quoted(options.record), free_name("report", ".html"));
    }
    write_out(text);
  }
  if (!runner->lost_lanes().empty()) {
    std::string text;
    for (const Runner::LostLane& lost : runner->lost_lanes()) {
      text += fmt::format("{}lane {} was lost at batch {}: {}", text.empty() ? "" : "; ", lost.name,
                          lost.batch, lost.why);
    }
    throw Error(text, runner->lost_lanes().front().hint);
  }
  return 0;
}

}  // namespace

void add_run(CLI::App& app, Command& command, const std::string& command_line) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub = app.add_subcommand("run", "Run a network forward in lanes, side by side");
  sub->footer(
      "Example:  halfscope run lenet --init weights.npz --data digits --plan float16 --record "
      "r.hscope");
  add_run_options(*sub, *options);
  sub->callback([options, sub, command_line, &command] {
    command = [options, sub, command_line] {
      const auto body = [&](const RunOptions& all) {
        check_network(all);
        if (!all.print_config) return run_network(all, command_line);
        write_json(run_file_json(all));
        return 0;
      };
      return options->config.empty() ? body(*options) : with_run_file(options->config, *sub, body);
    };
  });
}

}  // namespace halfscope
