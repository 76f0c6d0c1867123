// SPDX-License-Identifier: MIT
// Trials by training: compares their losses with those of fp32. If the lane has harm that its loss
// does not show, gradients, weights and averages are compared as well.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "analysis/loss_gap.h"
#include "analysis/memory_sink.h"
#include "analysis/proof/trial_runner.h"
#include "analysis/rules/baseline.h"
#include "analysis/rules/text.h"
#include "analysis/skipped_steps.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// After this many lost steps in a row a lane does not recover, unless its dynamic scale started
/// above kFarUp and is still falling.
constexpr int64_t kHopelessSteps = 64;
constexpr double kFarUp = 65536.0;
/// Fewer steps show it where losses are NaN or infinite: no loss scale changes the forward pass,
/// and skipped steps change no weights.
constexpr int64_t kHopelessLosses = 24;
/// In a training this many times longer than its calibration, the skipped steps hardly matter.
constexpr int64_t kFewForSkips = 50;

/// Keeps a training in memory, reports its progress, and stops hopeless ones.
class TrialSink final : public MemorySink {
 public:
  /// `lane` is the lane being tried. `patience`: it is hopeless after this many losses in a row
  /// that are NaN or infinite.
  TrialSink(int lane, int64_t patience, std::string name, int count, const SharedProgress& progress,
            const std::atomic<bool>& stop, std::span<const StepRow> recorded)
      : check(recorded),
        lane_(lane),
        patience_(patience),
        name_(std::move(name)),
        count_(count),
        progress_(progress),
        stop_(stop) {}

  void step(int lane, const StepRow& row, std::span<const TensorStats> stats) override {
    MemorySink::step(lane, row, stats);
    if (lane != lane_) return;
    if (!check.add(row)) give_up = true;
    const bool comes_down = row.skipped && row.loss_scale > kFarUp && row.loss_scale < last_scale_;
    const bool lost = (row.skipped && !comes_down) || !std::isfinite(row.loss);
    lost_ = lost ? lost_ + 1 : 0;
    lost_losses_ = std::isfinite(row.loss) ? 0 : lost_losses_ + 1;
    last_scale_ = row.loss_scale;
    if (lost_ >= kHopelessSteps || lost_losses_ >= patience_ || stop_) give_up = true;
    progress_.step(name_, count_, row);
  }

  RepetitionCheck check;
  std::atomic<bool> give_up{false};

 private:
  int lane_;
  int64_t patience_;
  std::string name_;
  int count_;
  const SharedProgress& progress_;
  const std::atomic<bool>& stop_;
  int64_t lost_ = 0, lost_losses_ = 0;
  double last_scale_ = std::numeric_limits<double>::infinity();
};

bool shows_in_the_loss(const HarmItem& item) {
  return item.of == HarmItem::Of::training || item.of == HarmItem::Of::steps;
}

class TrainingTrials final : public TrialRunner {
 public:
  TrainingTrials(const ProofRequest& request, const Dataset& data, const ProofProgress& progress,
                 const std::atomic<bool>& stop)
      : request_(request),
        data_(data),
        progress_(progress),
        stop_(stop),
        config_(request.training),
        measures_(!std::all_of(request.harm.begin(), request.harm.end(), shows_in_the_loss)) {
    const auto of_evaluations = [](const HarmItem& item) {
      return item.of == HarmItem::Of::test_loss || item.of == HarmItem::Of::accuracy;
    };
    config_.every = 0;
    config_.errors.enabled = measures_;
    config_.errors.extent = ErrorSampling::Extent::batches;
    config_.errors.pairs.clear();
    config_.errors.emulator = nullptr;
    config_.evaluate = std::any_of(request.harm.begin(), request.harm.end(), of_evaluations);
    config_.evaluate_every = config_.patience = config_.checkpoint_every = 0;
    config_.checkpoint.clear();
  }

  std::string prepare(const LaneConfig& original, Proof& proof) override {
    std::optional<Twins> twins = request_.twins;
    if (!twins) {
      const TwinRequest request{.training = request_.training,
                                .plan = original.plan,
                                .backend = request_.backend,
                                .recorded_reference = request_.recorded_reference,
                                .skips = normal_skips(request_.recorded)};
      const auto count = [&](const std::string& name, int lane, const StepRow& row) {
        progress_.go_on_from(lane);
        progress_.step(name, lane, row);
      };
      twins = train_twins(request, data_, count, stop_);
    }
    if (!twins) return "";  // stopped early
    twins_ = std::move(*twins);
    const bool whole = static_cast<int64_t>(twins_.reference.size()) == config_.steps;
    const bool trains = whole && std::isfinite(loss_gap(twins_.reference, twins_.reference));
    proof.twin_spread = trains ? twins_.spread : std::numeric_limits<double>::infinity();
    proof.tolerance = kLossFloor;
    if (!trains) {
      return "Nothing can be proved: fp32 itself does not train. Its loss becomes NaN or infinite.";
    }
    if (!std::isfinite(twins_.spread)) {
      return fmt::format(
          "Nothing can be proved: two fp32 runs that start one ulp apart drift apart without bound "
          "{}.",
          over());
    }
    proof.tolerance = tolerance_ = std::max(kLossFloor, kHarmFactor * twins_.spread);
    const std::vector<StepRow>& recorded = request_.recorded;
    // Twins of another length cannot be compared with a run that ended early.
    if (!recorded.empty() && recorded.back().step + 1 == config_.steps) {
      proof.deviations =
          rows_beside(twins_, recorded, request_.recorded_reference, request_.deviations);
    }
    return "";
  }

  int at_once() const override { return trials_at_once(request_.backend, request_.search); }

  Outcome run(const LaneConfig& lane, bool is_original) override {
    TrainConfig config = config_;
    config.lanes = measures_ ? beside_reference(lane) : std::vector<LaneConfig>{lane};
    const int which = measures_ ? 1 : 0;
    if (measures_) config.lanes[0].trained = trained_reference(config.lanes[0].plan);
    Trainer trainer(config, data_);
    TrialSink sink(
        which, kHopelessLosses, lane.plan.name, progress_.begin(), progress_, stop_,
        is_original ? std::span<const StepRow>(request_.recorded) : std::span<const StepRow>());
    sink.begin(trainer.describe());
    trainer.run(&sink, {}, sink.give_up);
    const std::span<const StepRow> rows = sink.view().steps(which);
    if (sink.check.other()) throw_not_repeated(lane.plan.name, rows.back(), *sink.check.other());
    if (measures_) keep_reference(config.lanes[0], trainer, sink.view().steps(0));

    const SkippedSteps skipped = skipped_steps(rows);
    Outcome outcome;
    Trial& trial = outcome.trial;
    trial.gap = loss_gap(rows, twins_.reference);
    trial.skipped = skipped.total();
    trial.calibration_skips = skipped.calibration;
    trial.better = is_better(rows, twins_.reference, loss_sign(sink.view().info()));
    const double allowed = tolerance_ + calibration_gap(rows, twins_.reference);
    trial.passes = (trial.better || trial.gap <= allowed) && skips_are_normal(skipped, rows);
    if (!rows.empty()) outcome.last_scale = rows.back().loss_scale;
    if (measures_ && !stop_) {
      outcome.why = harm_beside_the_loss(sink.view());
      trial.passes = trial.passes && outcome.why.empty();
    }
    return outcome;
  }

  std::optional<RunView> record(const LaneConfig& lane) override {
    TrainConfig config = config_;
    config.every = std::max(request_.training.every, 1);
    config.errors.enabled = true;
    config.errors.extent = ErrorSampling::Extent::tensors;
    config.lanes = beside_reference(lane);
    Trainer trainer(config, data_);
    TrialSink sink(1, kHopelessSteps, lane.plan.name, progress_.begin(), progress_, stop_, {});
    sink.begin(trainer.describe());
    trainer.run(&sink, {}, sink.give_up);
    if (stop_) return std::nullopt;
    return sink.view();
  }

  std::string distance(const Outcome& outcome) const override {
    const double gap = outcome.trial.gap;
    if (!std::isfinite(gap)) return "the loss becomes NaN or infinite";
    if (outcome.trial.better && gap > tolerance_) {
      return fmt::format("the loss is better than fp32's by {}", by_text(gap));
    }
    const double delay = delay_gap(twins_.reference, outcome.trial.calibration_skips);
    const bool explains = outcome.trial.passes && gap > tolerance_;
    std::string text =
        gap > tolerance_ ? fmt::format("the loss differs from fp32's by {}", by_text(gap))
        : gap == 0.0     ? std::string("the loss equals fp32's")
                         : fmt::format("the loss stays within {} of fp32's", within_text(gap));
    if (explains) {
      const std::string skips = counted(outcome.trial.calibration_skips, "skipped step");
      text += delay >= gap ? fmt::format(", only because {} looked for a loss scale", skips)
                           : fmt::format(", {} of it because {} looked for a loss scale",
                                         percent(delay), skips);
    }
    return text;
  }

  std::string allowed(const Proof& proof) const override {
    return percent(proof.tolerance) + " is allowed";
  }

  std::string failure(const Outcome& original, const Proof& proof) const override {
    const Trial& trial = original.trial;
    if (!std::isfinite(trial.gap)) return "training fails";
    const std::string text = fmt::format("it differs by {}", by_text(trial.gap));
    // The loss alone does not show this harm.
    if (trial.gap > proof.tolerance) return text;
    if (!original.why.empty()) return text + ", but " + original.why;
    if (trial.skipped == 0) return text + kDoubtful;
    return text + fmt::format(" with {}", counted(trial.skipped, "skipped step"));
  }

  std::string proved() const override {
    return "Tested by training " + counted(config_.steps, "step");
  }

  std::string healthy(const std::string& lane) const override {
    return lane + " matches fp32 without any change";
  }

  std::string hint(const Outcome& advised) const override {
    const Trial& trial = advised.trial;
    if (trial.skipped == 0) return "";
    std::string text = fmt::format("It skips {}.", counted(trial.skipped, "step"));
    // Skipped steps put a lane behind fp32, but a longer training makes up for them.
    if (std::isfinite(trial.gap) && trial.skipped == trial.calibration_skips &&
        config_.steps < kFewForSkips * trial.skipped) {
      text += fmt::format(
          " All of them look for the loss scale, which puts it behind fp32. Train at least {} "
          "steps, or start closer with --loss-scale dynamic:{}.",
          kFewForSkips * trial.skipped, short_number(advised.last_scale));
    }
    return text;
  }

 private:
  /// Returns the training of this reference if an earlier trial has done it, else null.
  std::shared_ptr<const TrainedLane> trained_reference(const Plan& plan) const {
    const std::lock_guard lock(references_mutex_);
    const auto found = references_.find(plan_to_json(plan));
    return found == references_.end() ? nullptr : found->second;
  }

  /// Keeps the training of a reference for later trials, if it is whole.
  void keep_reference(const LaneConfig& reference, const Trainer& trainer,
                      std::span<const StepRow> rows) {
    const bool whole = static_cast<int64_t>(rows.size()) == config_.steps && trainer.has_lane(0);
    const bool simulates = config_.ranks > 1 || config_.exchange != nullptr;
    if (!whole || simulates || reference.trained != nullptr) return;
    auto trained = std::make_shared<const TrainedLane>(
        TrainedLane{{rows.begin(), rows.end()}, trainer.variables(0)});
    const std::lock_guard lock(references_mutex_);
    references_.try_emplace(plan_to_json(reference.plan), std::move(trained));
  }

  std::string over() const {
    return fmt::format("over the last fifth of {}", counted(config_.steps, "step"));
  }

  /// Returns what rules/harm reports about a trial apart from its loss, as half a sentence, or "".
  std::string harm_beside_the_loss(RunView run) const {
    const std::vector<Deviation> rows =
        rows_beside(twins_, run.steps(1), run.steps(0), run.deviations(1));
    RunView judged(run.info(), RunStatus::complete);
    for (const int lane : {0, 1}) {
      for (const StepRow& row : run.steps(lane)) judged.add_step(lane, row);
      for (const EvalRow& row : run.evals(lane)) judged.add_eval(lane, row);
    }
    const auto is_replaced = [&](const Deviation& each) {
      return std::any_of(rows.begin(), rows.end(), [&](const Deviation& row) {
        return row.of == each.of && row.name == each.name;
      });
    };
    for (const Deviation& each : run.deviations(1)) {
      if (!is_replaced(each)) judged.add_deviation(1, each);
    }
    for (const Deviation& each : rows) judged.add_deviation(1, each);
    for (const HarmItem& item : harm_of(LaneFacts(judged, 1)).items) {
      if (!shows_in_the_loss(item)) return item.text;
    }
    return "";
  }

  const ProofRequest& request_;
  const Dataset& data_;
  SharedProgress progress_;
  const std::atomic<bool>& stop_;
  TrainConfig config_;
  bool measures_;
  Twins twins_;
  double tolerance_ = kLossFloor;
  /// Each reference is trained once. Later trials that compare with it use that training.
  std::map<std::string, std::shared_ptr<const TrainedLane>> references_;  ///< by plan
  mutable std::mutex references_mutex_;
};

}  // namespace

std::unique_ptr<TrialRunner> training_trials(const ProofRequest& request, const Dataset& data,
                                             const ProofProgress& progress,
                                             const std::atomic<bool>& stop) {
  return std::make_unique<TrainingTrials>(request, data, progress, stop);
}

}  // namespace halfscope
