// SPDX-License-Identifier: MIT
#include "cli/tasks/record_training.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "analysis/output_file.h"
#include "analysis/recorder.h"
#include "cli/tasks/training.h"
#include "cli/terminal/kernel_lines.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/stop.h"
#include "core/hash.h"
#include "core/observe/null_sink.h"
#include "core/observe/recording.h"
#include "core/policy/policy.h"
#include "core/train/content_hash.h"
#include "emulation/isa.h"

namespace halfscope {
namespace {

/// Passes everything on and remembers what the closing table needs.
class Summary final : public TapSink {
 public:
  explicit Summary(TapSink& next) : next_(next) {}
  void begin(const RunInfo& run) override {
    lanes_ = untrained_lanes(run);
    next_.begin(run);
  }
  void step(int lane, const StepRow& row, std::span<const TensorStats> stats) override {
    lanes_[static_cast<size_t>(lane)].add(row);
    next_.step(lane, row, stats);
  }
  void eval(int lane, const EvalRow& row) override {
    lanes_[static_cast<size_t>(lane)].eval = row;
    next_.eval(lane, row);
  }
  void error(int lane, const SiteError& error) override { next_.error(lane, error); }
  void sums(int lane, const SiteSums& sums) override { next_.sums(lane, sums); }
  void deviation(int lane, const Deviation& deviation) override {
    next_.deviation(lane, deviation);
  }
  void kernel(int lane, const KernelCheck& check) override { next_.kernel(lane, check); }
  void reduction(int lane, const ReductionError& error) override { next_.reduction(lane, error); }
  void ranks(int lane, const RankSpread& spread) override { next_.ranks(lane, spread); }
  void lost(int lane, int64_t step, const std::string& why) override {
    lanes_[static_cast<size_t>(lane)].lost = FailedLane{step, why};
    next_.lost(lane, step, why);
  }
  void end(RunEnd how) override {
    next_.end(how);
    status_ = status_after(how);
  }

  std::span<const LaneSummary> lanes() const { return lanes_; }
  RunStatus status() const { return status_; }
  /// By the lane that came furthest.
  int64_t steps_done() const {
    int64_t most = 0;
    for (const LaneSummary& lane : lanes_) most = std::max(most, lane.steps_done());
    return most;
  }

 private:
  TapSink& next_;
  std::vector<LaneSummary> lanes_;
  RunStatus status_ = RunStatus::running;
};

/// Prints lanes that failed before the first step. Otherwise a long training would say so at its
/// end.
void print_lost(const Trainer& trainer, const Settings& settings) {
  for (const FailedLane& lost : trainer.lost_lanes()) {
    fmt::print(stderr, "note: lane {} failed: {}; the other lanes continue{}\n", lost.name,
               lost.why, settings.checkpoint.empty() ? "" : ", without checkpoints");
  }
}

}  // namespace

RecordedTraining::RecordedTraining(const Settings& settings, const std::string& command_line,
                                   std::shared_ptr<const Dataset> data, Exchange* exchange)
    : settings_(settings), config_(train_config(settings)), data_(std::move(data)) {
  config_.exchange = exchange;
  config_.init = read_initial_weights(settings);
  if (settings.threads > 0) omp_set_num_threads(settings.threads);
  if (data_ == nullptr) data_ = std::make_shared<Dataset>(load_training_data(settings));
  attach_network(config_, settings, *data_, &network_);
  trainer_ = make_trainer(config_, *data_, settings.init);
  info_ = trainer_->describe();
  info_.data = settings.data;
  info_.command = command_line;
  info_.settings = settings_words(settings);
  info_.lane_settings = lane_settings_words(settings);
  info_.version = HALFSCOPE_VERSION;
  info_.threads = omp_get_max_threads();
  info_.isa = isa_name(active_isa());
  if (!settings.resume.empty()) trainer_->resume(load_checkpoint(settings.resume));
}

bool RecordedTraining::has_device_lanes() const {
  return std::any_of(config_.lanes.begin(), config_.lanes.end(),
                     [](const LaneConfig& lane) { return has_own_kernels(lane.backend->name()); });
}

std::string RecordedTraining::facts() const {
  uint64_t network = fnv1a(network_.file);
  for (size_t lane = 0; lane < config_.lanes.size(); ++lane) {
    network = fnv1a(plan_to_json(config_.lanes[lane].plan), network);
    if (!trainer_->has_lane(lane)) continue;
    for (const auto& [path, weights] : trainer_->weights(static_cast<int>(lane))) {
      network = hash_values(weights.data, fnv1a(path, network));
    }
  }
  std::string settings;
  for (const std::vector<std::string>& words : {info_.settings, info_.lane_settings}) {
    for (const std::string& word : words) settings += word + " ";
  }
  uint64_t training = hash_values(config_.schedule.rates, fnv1a(settings));
  for (const OptionSeries& each : config_.schedule.series) {
    training = hash_values(each.values, fnv1a(scheduled_option_text(each.option), training));
  }
  return fmt::format("version={}\nsettings={:016x}\nnetwork={:016x}\ndata set={:016x}\n",
                     HALFSCOPE_VERSION, training, network,
                     hash_samples(data_->test, hash_samples(data_->train, 0)));
}

void RecordedTraining::run() {
  const bool from_file = !network_.file.empty();
  if (from_file && !settings_.quiet) fmt::print(stderr, "{}", summary_text(network_));
  if (!settings_.quiet) print_lost(*trainer_, settings_);
  if (settings_.kernels) print_kernels(trainer_->product_kernels());

  const std::atomic<bool>& stop = catch_stop_signals();
  if (config_.exchange == nullptr || config_.exchange->records()) {
    Recorder recorder(settings_.out, {.force = settings_.force});
    run(recorder, stop);
  } else {
    NullSink unrecorded;
    run(unrecorded, stop);
  }
  if (settings_.kernels) print_launches(trainer_->entry_launches());
}

void RecordedTraining::run(TapSink& sink, const std::atomic<bool>& stop) {
  Summary summary(sink);
  summary.begin(info_);
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressLine progress(config_.steps, info_, settings_.quiet);
    try {
      trainer_->run(&summary, std::ref(progress), stop);
    } catch (const Error&) {
      // After the last lane has failed, the run has ended: it is reported as any other.
      if (summary.status() == RunStatus::running) throw;
    }
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  seconds_ = elapsed.count();
  lanes_.assign(summary.lanes().begin(), summary.lanes().end());
  status_ = summary.status();
  steps_done_ = summary.steps_done();
}

std::optional<Error> RecordedTraining::lost() const {
  if (trainer_->lost_lanes().empty()) return std::nullopt;
  std::string text;
  for (const FailedLane& lost : trainer_->lost_lanes()) {
    text += fmt::format("{}lane {} failed at step {}: {}", text.empty() ? "" : "; ", lost.name,
                        lost.step, lost.why);
  }
  return Error(text, trainer_->lost_lanes().front().hint);
}

}  // namespace halfscope
