// SPDX-License-Identifier: MIT
// `halfscope run`: a network's forward pass in lanes of several precisions, side by side.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "analysis/output_file.h"
#include "cli/args/config_file.h"
#include "cli/args/lanes.h"
#include "cli/args/network.h"
#include "cli/args/setting.h"
#include "cli/commands/command.h"
#include "cli/tasks/forward.h"
#include "cli/tasks/record_forward.h"
#include "cli/tasks/run_input.h"
#include "cli/tasks/training.h"
#include "cli/tasks/verify.h"
#include "cli/terminal/ending.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/stop.h"
#include "core/data/npz.h"
#include "core/data/shapes.h"
#include "core/error.h"
#include "core/train/lane_setup.h"
#include "core/train/runner.h"
#include "emulation/isa.h"

namespace halfscope {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

/// Throws Error (usage) for flags of the run file without --record.
void check_record_flags(const Settings& settings) {
  for (const char* key : {"every", "errors_every", "compare", "verify"}) {
    const bool typed = settings.is_given(key) && !settings.from_file.contains(key);
    if (!typed || !settings.record.empty() || settings.print_config) continue;
    std::string flag = std::string("--") + key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    throw usage_error(flag + " needs a run file to write", "add --record FILE");
  }
}

/// Checks all file names before any work.
void check_run_files(const Settings& settings) {
  check_is_file_name(settings.record, "a run file");
  check_is_file_name(settings.out, "a NumPy file");
  check_files({.read = input_files(settings), .written = {settings.out, settings.record}},
              settings.force);
  if (!settings.out.empty() && !settings.out.ends_with(".npz") && !settings.out.ends_with(".npy")) {
    throw usage_error("--out '" + settings.out + "': not a .npz or .npy file",
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
  double accuracy = 0.0, auc = 0.0, error = 0.0, seconds = 0.0;
  int64_t labels = 0, ignored = 0;  ///< labels that count, and that do not
  double mean_iou = kNotMeasured;
  std::optional<DetectionScore> boxes{};
  std::string problem{};  ///< why it failed; empty if it did not

  double rate() const { return static_cast<double>(samples) / seconds; }
};

std::vector<LaneResult> results_of(const Runner& runner, const RunInfo& info, const Dataset& data) {
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
                       .auc = each.auc,
                       .error = compares ? output_error(each.outputs, runner.result(other).outputs)
                                         : kNotMeasured,
                       .seconds = each.seconds,
                       .labels = each.scored,
                       .ignored = each.ignored,
                       .mean_iou = each.classes ? each.classes->mean_iou() : kNotMeasured,
                       .boxes = detection_score(data, each.outputs)});
    for (const FailedLane& lost : runner.lost_lanes()) {
      if (lost.name != lanes[i].name) continue;
      results.back().problem = fmt::format("lost at batch {}: {}", lost.step, lost.why);
      results.back().samples = std::min(results.back().samples, lost.step * runner.batch());
      results.back().accuracy = results.back().auc = results.back().mean_iou = kNotMeasured;
    }
  }
  return results;
}

std::string table_of(const std::vector<LaneResult>& lanes, size_t width) {
  const auto any = [&](const auto& has) { return std::any_of(lanes.begin(), lanes.end(), has); };
  const bool labelled = any([](const LaneResult& lane) { return !std::isnan(lane.auc); });
  const bool detects = any([](const LaneResult& lane) { return lane.boxes.has_value(); });
  std::vector<std::vector<std::string>> rows{
      {"lane", "samples", "accuracy", "output error", "not finite", "samples/s"}};
  const bool segments = any([](const LaneResult& lane) { return !std::isnan(lane.mean_iou); });
  if (labelled) rows.front().insert(rows.front().begin() + 3, "AUC");
  if (segments) rows.front().insert(rows.front().begin() + 3, "mIoU");
  if (detects) rows.front().insert(rows.front().begin() + 3, {"mAP50", "mAP"});
  for (const LaneResult& lane : lanes) {
    rows.push_back({lane.name, std::to_string(lane.samples), percentage(lane.accuracy),
                    table_number(lane.error), std::to_string(lane.non_finite),
                    table_number(lane.rate())});
    if (labelled) rows.back().insert(rows.back().begin() + 3, area_text(lane.auc));
    if (segments) rows.back().insert(rows.back().begin() + 3, percentage(lane.mean_iou));
    if (detects) {
      const DetectionScore none{kNotMeasured, kNotMeasured}, score = lane.boxes.value_or(none);
      rows.back().insert(rows.back().begin() + 3, {area_text(score.half), area_text(score.mean)});
    }
  }
  std::vector<bool> right(rows.front().size(), true);
  right.front() = false;
  return aligned(rows, right, width);
}

/// Says how many labels do not count, if there are any.
std::string ignored_text(const std::vector<LaneResult>& lanes) {
  for (const LaneResult& lane : lanes) {
    if (!lane.problem.empty() || lane.ignored == 0) continue;
    return fmt::format("{} of {} labels do not count\n", lane.ignored, lane.labels + lane.ignored);
  }
  return "";
}

Json measured(double value) { return std::isnan(value) ? Json(nullptr) : json_number(value); }

Json json_of(const Settings& settings, const Runner& runner, const RunInfo& info,
             const std::vector<LaneResult>& lanes, const Conclusion& conclusion,
             const Verified& verified) {
  const auto file = [](const std::string& name) {
    return name.empty() ? Json(nullptr) : Json(name);
  };
  Json json;
  json["schema"] = "halfscope.run/1";
  json["version"] = kVersion;
  json["network"] = settings.model;
  json["data"] = info.data;
  json["batch"] = info.batch;
  json["samples"] = runner.samples_done();
  json["out"] = file(settings.out);
  json["record"] = file(settings.record);
  json["outputs"] = Json::array();
  size_t whole = 0;  // a lane that did not fail, if any
  while (whole + 1 < lanes.size() && !runner.has_lane(whole)) ++whole;
  for (const std::string& name : runner.output_names()) {
    const auto& outputs = runner.result(whole).outputs;
    const auto found = outputs.find(name);
    json["outputs"].push_back(
        {{"name", name}, {"shape", found == outputs.end() ? Shape{} : found->second.shape}});
  }
  const std::string scored = runner.scored_output();
  json["scores"] = scored.empty() ? Json(nullptr) : Json(scored);
  json["lanes"] = Json::array();
  for (const LaneResult& lane : lanes) {
    json["lanes"].push_back(
        {{"name", lane.name},
         {"backend", lane.backend},
         {"reference", lane.reference},
         {"samples", lane.samples},
         {"labels", lane.labels},
         {"accuracy", measured(lane.accuracy)},
         {"auc", measured(lane.auc)},
         {"mean_iou", measured(lane.mean_iou)},
         {"map50", lane.boxes ? measured(lane.boxes->half) : Json(nullptr)},
         {"map", lane.boxes ? measured(lane.boxes->mean) : Json(nullptr)},
         {"output_error", measured(lane.error)},
         {"non_finite", lane.non_finite},
         {"seconds", measured(lane.seconds)},
         {"samples_per_second", measured(lane.rate())},
         {"problem", lane.problem.empty() ? Json(nullptr) : Json(lane.problem)}});
  }
  json["verdict"] = verdict_json(conclusion);
  json["proof"] = proof_member(verified.proof);
  return json;
}

/// By the outputs' names; of several lanes as LANE/OUTPUT.
void write_outputs(const Settings& settings, const Runner& runner, const RunInfo& info) {
  if (settings.out.ends_with(".npy")) {
    write_npy(settings.out, runner.result(0).outputs.begin()->second);
    return;
  }
  NamedTensors all;
  for (size_t i = 0; i < info.lanes.size(); ++i) {
    if (!runner.has_lane(i)) continue;  // it does not have all of them
    for (const auto& [name, tensor] : runner.result(i).outputs) {
      all[info.lanes.size() == 1 ? name : info.lanes[i].name + "/" + name] = tensor;
    }
  }
  write_npz(settings.out, all);
}

}  // namespace

int run_network(const Settings& settings, const std::string& command_line,
                const std::function<void()>& started) {
  check_sources(settings);
  check_record_flags(settings);
  const RunnerConfig config = runner_config(settings);
  active_isa();  // reports a bad HALFSCOPE_ISA before the work
  check_run_files(settings);
  if (settings.out.ends_with(".npy") && config.lanes.size() > 1) {
    throw usage_error(
        "--out '" + settings.out + "': a .npy file has room for the outputs of one lane only",
        "write a .npz, or run one lane");
  }
  ForwardRun forward(settings, command_line);
  const Runner* runner = &forward.runner();
  const RunInfo& info = forward.info();
  if (settings.out.ends_with(".npy") && runner->output_names().size() > 1) {
    throw usage_error("--out '" + settings.out +
                          "': a .npy file has room for one output, but the network has " +
                          std::to_string(runner->output_names().size()),
                      "write a .npz");
  }
  started();
  forward.run();
  const std::vector<LaneResult> results = results_of(*runner, info, forward.data());
  if (!settings.out.empty() && runner->samples_done() > 0) write_outputs(settings, *runner, info);
  const bool speaks = !settings.json && !settings.quiet, recorded = !settings.record.empty();
  const TextStyle style = text_style(STDOUT_FILENO);
  if (speaks) {
    std::string text = table_of(results, style.width) + ignored_text(results);
    if (runner->samples_done() < info.test_samples) {
      text += fmt::format("stopped after {} of {} samples\n", runner->samples_done(),
                          info.test_samples);
    }
    if (!settings.out.empty()) text += "outputs: " + settings.out + "\n";
    write_out(text);
  }
  // Failed lanes have no outputs to compare.
  const bool proves = settings.verify && !catch_stop_signals() && runner->lost_lanes().empty();
  Verified verified;
  std::optional<Error> not_proved;
  try {
    if (proves) verified = verify_run(settings.record, settings.quiet);
  } catch (const Error& e) {
    not_proved = e;  // still print the verdict
  }
  const Conclusion conclusion =
      recorded && (speaks || settings.json) ? conclude(settings.record) : Conclusion{};
  if (speaks && recorded) {
    const bool tells = proves && !not_proved;
    write_out(ending_text(conclusion, settings.record, tells ? proof_lines(verified) : "", style));
  }
  if (not_proved) throw *not_proved;
  if (settings.json) write_json(json_of(settings, *runner, info, results, conclusion, verified));
  conclusion.check();
  if (const std::optional<Error> lost = forward.lost()) throw Error(*lost);
  verified.check_stored();
  return verified.proof && !verified.proof->holds ? 1 : 0;
}

namespace {

/// Prints the settings as a configuration file, if they fit together.
int print_run_settings(const Settings& settings) {
  check_sources(settings);
  check_record_flags(settings);
  lane_pairs(error_sampling(settings), lanes_of(settings));
  write_json(config_json(settings));
  return 0;
}

}  // namespace

void add_run(CLI::App& app, Invocation& call) {
  CLI::App* sub = app.add_subcommand("run", "Run a network forward in several precisions");
  sub->footer(
      "Example:  halfscope run lenet --data digits --plan float16 --record r.hscope\n"
      "Topics:   plans, formats, accumulation (for example: halfscope help plans)");
  add_settings(*sub, kRun);
  sub->callback([sub, &call] {
    call.action = [sub, line = call.line] {
      const Settings settings = read_settings(*sub, kRun);
      if (settings.model.empty()) {
        throw usage_error("run needs a network", "try halfscope run lenet --data digits");
      }
      return naming_keys(settings, [&] {
        check_network_exists(settings.model);
        return settings.print_config ? print_run_settings(settings) : run_network(settings, line);
      });
    };
  });
}

}  // namespace halfscope
