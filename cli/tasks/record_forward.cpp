// SPDX-License-Identifier: MIT
#include "cli/tasks/record_forward.h"

#include <fmt/format.h>
#include <omp.h>

#include <atomic>
#include <utility>

#include "analysis/recorder.h"
#include "cli/args/network.h"
#include "cli/tasks/training.h"
#include "cli/terminal/kernel_lines.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/stop.h"
#include "core/models/zoo/zoo.h"
#include "emulation/isa.h"

namespace halfscope {
namespace {

/// A --batch that a network's file does not follow is no wish that may be ignored. What one sample
/// is depends on the samples, so that the runner knows best.
void check_batch(const Settings& settings, const NetworkOptions& wanted, const Runner& runner) {
  if (settings.batch == 0 || runner.batch() == settings.batch) return;
  if (zoo::is_zoo(settings.model)) {
    throw usage_error(fmt::format("{} takes {} samples at once, not the {} of --batch",
                                  settings.model, runner.batch(), settings.batch),
                      "leave --batch out")
        .about({"batch"});
  }
  if (!is_network_file(settings.model)) return;
  const OnnxImport import = load_network_file(settings.model, wanted);
  // Random samples may have all of an input's shape.
  const bool whole = settings.random_input && runner.batch() == 1;
  throw batch_error(settings.model, import, settings.batch,
                    whole ? samples_at_once(import) : runner.batch());
}

}  // namespace

void check_sources(const Settings& settings) {
  const int sources = !settings.inputs.empty() + !settings.data.empty() +
                      static_cast<int>(settings.random_input.has_value());
  if (sources == 0) {
    throw usage_error("run needs samples", "add --data, --input or --random-input");
  }
  if (sources > 1) {
    throw usage_error("--input, --data and --random-input exclude each other", "keep one of them")
        .about({"input", "data", "random_input"});
  }
  if (!settings.normalize.empty() && settings.data.empty()) {
    throw usage_error("--normalize is for the images of --data", "leave it out")
        .about({"normalize"});
  }
  if (settings.random_input && !settings.labels.empty()) {
    throw usage_error("random samples have no labels", "leave out --labels").about({"labels"});
  }
}

ForwardRun::ForwardRun(const Settings& settings, const std::string& command_line)
    : settings_(settings) {
  RunnerConfig config = runner_config(settings);
  config.init = read_initial_weights(settings);
  if (settings.threads > 0) omp_set_num_threads(settings.threads);
  work_ = read_work(settings);
  const std::string note = random_weights_note(settings, work_.network);
  const Samples& samples = work_.samples;
  config.labels = samples.labels;
  try {
    runner_ = std::make_unique<Runner>(std::move(work_.network), config, samples.data);
  } catch (const Error& e) {
    throw e.with_text(settings.model + ": " + e.what());
  }
  check_batch(settings, work_.wanted, *runner_);
  fmt::print(stderr, "{}", note);
  info_ = runner_->describe();
  info_.data = settings.data.empty() ? samples.data.name : settings.data;
  info_.command = command_line;
  Settings used = settings;
  used.batch = info_.batch;
  info_.settings = settings_words(used);
  info_.lane_settings = lane_settings_words(settings);
  info_.version = HALFSCOPE_VERSION;
  info_.threads = omp_get_max_threads();
  info_.isa = isa_name(active_isa());
}

void ForwardRun::run() {
  const std::atomic<bool>& stop = catch_stop_signals();
  std::optional<Recorder> recorder;
  if (!settings_.record.empty()) {
    recorder.emplace(settings_.record, Recorder::Options{.force = settings_.force});
    recorder->begin(info_);
  }
  if (settings_.kernels) print_kernels(runner_->product_kernels());
  {
    ProgressLine progress(info_.steps_planned, info_, settings_.quiet);
    runner_->run(recorder ? &*recorder : nullptr, std::ref(progress), stop);
  }
  if (settings_.kernels) print_launches(runner_->entry_launches());
}

std::optional<Error> ForwardRun::lost() const {
  if (runner_->lost_lanes().empty()) return std::nullopt;
  std::string text;
  for (const FailedLane& lost : runner_->lost_lanes()) {
    text += fmt::format("{}lane {} failed at batch {}: {}", text.empty() ? "" : "; ", lost.name,
                        lost.step, lost.why);
  }
  return Error(text, runner_->lost_lanes().front().hint);
}

}  // namespace halfscope
