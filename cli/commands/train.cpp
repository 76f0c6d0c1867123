// SPDX-License-Identifier: MIT
// `halfscope train`: lanes in lock step, recorded to a run file.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <optional>

#include "analysis/output_file.h"
#include "cli/args/config_file.h"
#include "cli/args/network.h"
#include "cli/args/setting.h"
#include "cli/commands/command.h"
#include "cli/mpi/job.h"
#include "cli/tasks/dealt_trials.h"
#include "cli/tasks/record_training.h"
#include "cli/tasks/training.h"
#include "cli/tasks/verify.h"
#include "cli/terminal/ending.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/stop.h"
#include "core/data/npz.h"
#include "core/error.h"
#include "core/train/lane_setup.h"
#include "emulation/isa.h"
#include "gpu/processes.h"

namespace halfscope {
namespace {

/// "65536"; fractions as a power of two: "2^-43".
std::string scale_text(double scale) {
  int exponent = 0;
  if (scale < 1.0 && std::frexp(scale, &exponent) == 0.5) return fmt::format("2^{}", exponent - 1);
  return shortest(static_cast<double>(static_cast<float>(scale)) == scale
                      ? std::stod(fmt::format("{}", static_cast<float>(scale)))
                      : scale);
}

bool any_has(std::span<const LaneSummary> lanes, double EvalRow::*score) {
  return std::any_of(lanes.begin(), lanes.end(), [&](const LaneSummary& lane) {
    return lane.eval && !std::isnan((*lane.eval).*score);
  });
}

/// With short headings, so that the usual lanes fit in 80 columns.
std::string closing_table(std::span<const LaneSummary> lanes, bool with_area, size_t width) {
  const bool segments = any_has(lanes, &EvalRow::mean_iou);
  std::vector<std::vector<std::string>> rows{
      {"lane", "steps", "loss", "skipped", "scale", "test loss", "test acc"}};
  if (!lanes.empty() && lanes.front().detects) rows.front()[6] = "mAP50";
  if (segments) rows.front().emplace_back("mIoU");
  if (with_area) rows.front().emplace_back("AUC");
  rows.front().emplace_back("ms/step");
  for (const LaneSummary& lane : lanes) {
    std::vector<std::string>& row = rows.emplace_back();
    row = {lane.name,
           std::to_string(lane.steps),
           lane.last_loss_text(),
           std::to_string(lane.skipped),
           lane.steps > 0 ? scale_text(lane.last.loss_scale) : "-",
           lane.test_loss_text(),
           lane.accuracy_text()};
    if (segments) row.push_back(lane.mean_iou_text());
    if (with_area) row.push_back(lane.auc_text());
    row.push_back(table_number(lane.ms_per_step()));
  }
  std::vector<bool> right(rows.front().size(), true);
  right.front() = false;
  return aligned(rows, right, width);
}

/// Leaves out the area under the curve where the line would be too long for it.
std::string closing_table(std::span<const LaneSummary> lanes, size_t width) {
  const bool has_area = any_has(lanes, &EvalRow::auc);
  const std::string wide = closing_table(lanes, has_area, 0);
  const bool fits = width == 0 || wide.find('\n') <= width;
  return has_area && fits ? wide : closing_table(lanes, false, width);
}

Json closing_json(const Settings& settings, const RecordedTraining& training, bool saved,
                  const Conclusion& conclusion, const Verified& verified) {
  const auto written = [saved](const std::string& file) {
    return saved && !file.empty() ? Json(file) : Json(nullptr);
  };
  Json json;
  json["schema"] = "halfscope.train/1";
  json["version"] = kVersion;
  json["run"] = settings.out;
  json["status"] = status_name(training.status());
  json["steps_planned"] = settings.steps;
  json["seconds"] = json_number(training.seconds());
  json["save_weights"] = written(settings.save_weights);
  json["save_ema"] = written(settings.save_ema);
  const NetworkSummary& network = training.network();
  json["network"] = network.file.empty() ? Json(nullptr) : summary_json(network);
  json["lanes"] = to_json(training.lanes());
  json["verdict"] = verdict_json(conclusion);
  json["twins"] = twins_member(verified.check);
  json["proof"] = proof_member(verified.proof);
  return json;
}

/// Checks all file names before any work.
void check_training_files(const Settings& settings) {
  check_is_file_name(settings.out, "a run file");
  check_is_file_name(settings.checkpoint, "a checkpoint");
  for (const std::string& file : {settings.save_weights, settings.save_ema})
    check_is_file_name(file, "an .npz file");
  CommandFiles files{.read = input_files(settings),
                     .written = {settings.out, settings.save_weights, settings.save_ema}};
  // The run that is resumed wrote it; going on with it is what it is for.
  (resumes_own_checkpoint(settings) ? files.read : files.written).push_back(settings.checkpoint);
  check_files(files, settings.force);
}

/// Returns the settings of one process of a job, whose processes are the ranks. Only the process
/// that records writes and prints.
Settings settings_of_process(Settings settings, const MpiJob& job) {
  if (!settings.is_given("ranks")) {
    settings.ranks = job.size();
    settings.given.insert("ranks");
  }
  if (settings.threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    settings.threads = threads_of_process();
  }
  if (job.records()) return settings;
  settings.out = settings.save_weights = settings.save_ema = settings.checkpoint = "";
  settings.checkpoint_every = 0;
  settings.verify = settings.json = settings.kernels = false;
  settings.quiet = true;
  return settings;
}

/// Connects the GPUs of the processes if there are lanes on them.
DeviceConnection connect_lanes(const RecordedTraining& training, MpiJob& job, bool quiet) {
  if (!training.has_device_lanes()) return {};
  DeviceConnection connection = connect_devices(job);
  if (!quiet) fmt::print(stderr, "note: {}\n", connection.text);
  return connection;
}

/// Writes the last lane's weights. Returns false if that lane failed.
bool write_weights(const Trainer& trainer, int lane, const Settings& settings) {
  if (!trainer.has_lane(static_cast<size_t>(lane))) {
    for (const std::string& file : {settings.save_weights, settings.save_ema}) {
      if (file.empty()) continue;
      fmt::print(stderr, "note: {} was not written, because the last lane failed\n", file);
    }
    return false;
  }
  if (settings.save_weights.empty() && settings.save_ema.empty()) return true;
  NamedTensors averages = trainer.averages(lane);
  NamedTensors weights = trainer.weights(lane);
  turn_weights(averages, settings);
  turn_weights(weights, settings);
  if (!settings.save_ema.empty()) {
    NamedTensors averaged = averages;
    averaged.merge(NamedTensors(weights));  // what has no average, as it is
    write_npz(settings.save_ema, averaged);
  }
  for (const auto& [path, tensor] : averages) weights[average_path(path)] = tensor;
  if (!settings.save_weights.empty()) write_npz(settings.save_weights, weights);
  return true;
}

}  // namespace

int train(const Settings& given, const std::string& command_line,
          const std::function<void()>& started) {
  MpiJob* const job = mpi_job();
  const bool records = job == nullptr || job->records();
  const Settings settings = job == nullptr ? given : settings_of_process(given, *job);
  std::optional<RecordedTraining> prepared;
  const auto prepare = [&] {
    train_config(settings);  // reports bad settings before any work
    active_isa();            // likewise a bad HALFSCOPE_ISA
    if (records) check_training_files(settings);
    prepared.emplace(settings, command_line, nullptr, job);
  };
  if (job == nullptr) {
    prepare();
  } else {
    begin_together(*job, prepare, [&] { return prepared->facts(); });
  }
  RecordedTraining& training = *prepared;
  const DeviceConnection connection =
      job == nullptr ? DeviceConnection{} : connect_lanes(training, *job, settings.quiet);
  started();
  training.run();
  if (!records) {
    if (given.verify) serve_proofs(*job);
    return 0;
  }
  const bool saved = write_weights(training.trainer(), training.lane_count() - 1, settings);
  const bool speaks = !settings.json && !settings.quiet;
  const TextStyle style = text_style(STDOUT_FILENO);
  if (speaks) {
    std::string text = closing_table(training.lanes(), style.width);
    if (training.status() == RunStatus::interrupted) {
      text += fmt::format("stopped after {} of {} steps; they are in the run file\n",
                          training.steps_done(), settings.steps);
    }
    write_out(text);
  }
  const auto lost = static_cast<int>(training.trainer().lost_lanes().size());
  const bool proves = settings.verify && !catch_stop_signals() && lost < training.lane_count();
  Verified verified;
  std::optional<Error> not_proved;
  try {
    if (proves) verified = verify_run(settings.out, settings.quiet);
  } catch (const Error& e) {
    not_proved = e;  // still print the verdict
  }
  if (job != nullptr && given.verify) end_serving(*job);
  // After the proof, which may change the verdict.
  const Conclusion conclusion = speaks || settings.json ? conclude(settings.out) : Conclusion{};
  if (speaks) {
    const bool tells = proves && !not_proved;
    write_out(ending_text(conclusion, settings.out, tells ? proof_lines(verified) : "", style));
  }
  if (not_proved) throw *not_proved;
  if (settings.json) write_json(closing_json(settings, training, saved, conclusion, verified));
  conclusion.check();
  if (lost > 0) {
    if (!settings.checkpoint.empty()) {
      fmt::print(stderr, "note: no checkpoint was written after lane {} failed\n",
                 training.trainer().lost_lanes().front().name);
    }
    throw Error(*training.lost());
  }
  verified.check_stored();
  return verified.proof && !verified.proof->holds ? 1 : 0;
}

namespace {

/// Prints the settings as a configuration file, if they fit together.
int print_training_settings(const Settings& settings) {
  const TrainConfig config = train_config(settings);
  lane_pairs(config.errors, config.lanes);
  write_json(config_json(settings));
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Invocation& call) {
  CLI::App* sub =
      app.add_subcommand("train", "Train a network in several precisions and record it");
  sub->footer(
      "Example:  halfscope train --model lenet-hot --plan mixed_float16 --out h.hscope\n"
      "Topics:   plans, formats, accumulation, loss-scale, optimizers, reduce\n"
      "          (for example: halfscope help plans)");
  add_settings(*sub, kTrain);
  sub->callback([sub, &call] {
    call.action = [sub, line = call.line] {
      const Settings settings = read_settings(*sub, kTrain);
      return naming_keys(settings, [&] {
        return settings.print_config ? print_training_settings(settings) : train(settings, line);
      });
    };
  });
}

}  // namespace halfscope
