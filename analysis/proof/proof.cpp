// SPDX-License-Identifier: MIT
#include "analysis/proof/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/proof/trial.h"
#include "analysis/rules/text.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// A lane that has lost for so many steps on end does not come back...
constexpr int64_t kHopelessSteps = 64;
/// ...unless its dynamic scale started far up: above this, coming down is no loss.
constexpr double kFarUp = 65536.0;
/// A training this many times as long as its calibration hardly shows it any more.
constexpr int64_t kFewForSkips = 50;

/// Layers by name, then the storage, then the loss scale.
std::vector<PlanEdit> sorted_members(const PlanEdit& edit) {
  std::vector<PlanEdit> members = edit.members();
  const auto end = members.begin() + static_cast<int64_t>(edit.fp32_layers.size());
  std::sort(members.begin(), end,
            [](const PlanEdit& a, const PlanEdit& b) { return a.member_name() < b.member_name(); });
  return members;
}

std::string in_words(const PlanEdit& member) {
  if (!member.fp32_layers.empty()) return member.fp32_layers.front();
  return member.fp32_storage ? "the fp32 variables" : "the loss scale";
}

/// Bit for bit, but for NaN, which is as good as any other.
bool same_loss(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Keeps the rows of one lane and gives up on hopeless ones.
class LossSink final : public TapSink {
 public:
  LossSink(std::string name, int lane, const ProofProgress& progress, const std::atomic<bool>& stop,
           std::span<const StepRow> recorded)
      : name_(std::move(name)),
        lane_(lane),
        progress_(progress),
        stop_(stop),
        recorded_(recorded) {}

  void begin(const RunInfo&) override {}
  void step(int, const StepRow& row, std::span<const TensorStats>) override {
    rows.push_back(row);
    while (!recorded_.empty() && recorded_.front().step < row.step)
      recorded_ = recorded_.subspan(1);
    if (!recorded_.empty() && recorded_.front().step == row.step &&
        !same_loss(recorded_.front().loss, row.loss)) {
      other = recorded_.front();
      give_up = true;
    }
    const bool comes_down = row.skipped && row.loss_scale > kFarUp && row.loss_scale < last_scale_;
    const bool lost = (row.skipped && !comes_down) || !std::isfinite(row.loss);
    lost_ = lost ? lost_ + 1 : 0;
    last_scale_ = row.loss_scale;
    if (lost_ >= kHopelessSteps || stop_) give_up = true;
    if (progress_) progress_(name_, lane_, row);
  }
  void eval(int, const EvalRow&) override {}
  void error(int, const SiteError&) override {}
  void sums(int, const SiteSums&) override {}
  void end(RunEnd) override {}

  std::vector<StepRow> rows;
  std::atomic<bool> give_up{false};
  std::optional<StepRow> other;  ///< the first recorded step that came out differently

 private:
  std::string name_;
  int lane_;
  const ProofProgress& progress_;
  const std::atomic<bool>& stop_;
  std::span<const StepRow> recorded_;  ///< what is left to compare with
  int64_t lost_ = 0;
  double last_scale_ = std::numeric_limits<double>::infinity();
};

class Prover {
 public:
  Prover(const ProofRequest& request, const Dataset& data, const ProofProgress& progress,
         const std::atomic<bool>& stop)
      : request_(request), data_(data), progress_(progress), stop_(stop) {
    config_ = request.training;
    config_.every = 0;
    config_.errors = {};
    config_.evaluate = false;
    config_.evaluate_every = config_.patience = config_.checkpoint_every = 0;
    config_.checkpoint.clear();
    edit_ = request.advice.edit;
    edit_.fp32_storage = edit_.fp32_storage && request.original.storage != kFp32;
    if (edit_.loss_scale && finds_its_scale()) edit_.loss_scale.reset();
    const std::string advised = plan_from_json(request.advice.plan_json).name;
    advised_name_ = advised == request.original.name ? advised + "+advice" : advised;
  }

  std::optional<Proof> run() {
    Proof proof;
    proof.lane = request_.original.name;
    proof.advised = advised_name_;
    proof.steps = config_.steps;
    proof.seed = config_.seed;
    train_references(proof);

    const Trial original = trial({}, Trial::Kind::original, request_.original.name);
    const bool cures = trial(edit_, Trial::Kind::advised, advised_name_).passes;
    proof.holds = cures && (!original.passes || edit_.members().empty());
    if (proof.holds) drop_needless(proof);
    proof.trials = {original, trial(edit_, Trial::Kind::advised, advised_name_)};
    if (proof.holds) {
      for (const PlanEdit& member : sorted_members(edit_)) proof.trials.push_back(without(member));
    }
    if (stop_) return std::nullopt;
    proof.edit = edit_;
    proof.plan_json = plan_to_json(lane(edit_, advised_name_).plan);
    proof.text = sentence(proof);
    return proof;
  }

 private:
  /// Dynamic scaling comes down to a scale that suits the advised plan by itself, unless it starts
  /// far above; it hardly ever climbs. Where the scale is all there is to the advice, it counts.
  bool finds_its_scale() const {
    constexpr double kComesDown = 0x1p16;
    const double start = static_cast<double>(request_.scaler.initial);
    const double advised = *edit_.loss_scale;
    const bool alone = edit_.fp32_layers.empty() && !edit_.fp32_storage;
    return request_.scaler.kind == LossScalerConfig::Kind::dynamic && !alone && start >= advised &&
           start <= kComesDown * advised;
  }

  /// fp32 and its twins, and from them the tolerance.
  void train_references(Proof& proof) {
    reference_ = train({.plan = Plan{}, .scaler = {}, .backend = request_.backend},
                       request_.recorded_reference);
    fp32_trains_ = static_cast<int64_t>(reference_.size()) == config_.steps &&
                   std::isfinite(loss_gap(reference_, reference_));
    if (!fp32_trains_) proof.twin_spread = std::numeric_limits<double>::infinity();
    for (const uint64_t twin : {1, 2}) {
      if (!std::isfinite(proof.twin_spread)) break;
      Plan plan;
      plan.name = fmt::format("float32~{}", twin);
      const std::vector<StepRow> rows = train({plan, {}, request_.backend, twin}, {});
      proof.twin_spread = std::max(proof.twin_spread, loss_gap(rows, reference_));
    }
    // Where right runs drift apart without bound there is nothing to compare with.
    comparable_ = std::isfinite(proof.twin_spread);
    proof.tolerance =
        comparable_ ? std::max(kGapFloor, kTwinFactor * proof.twin_spread) : kGapFloor;
    tolerance_ = proof.tolerance;
  }

  /// The original lane with some members of the advice.
  LaneConfig lane(const PlanEdit& edit, const std::string& name) const {
    LaneConfig lane{edit.apply(request_.original), request_.scaler, request_.backend, 0};
    lane.plan.name = name;
    if (edit.loss_scale) {
      lane.scaler = {.kind = LossScalerConfig::Kind::constant,
                     .initial = static_cast<float>(*edit.loss_scale)};
    }
    return lane;
  }

  /// `recorded`: what this lane did in the run, if it was part of it.
  std::vector<StepRow> train(const LaneConfig& lane, std::span<const StepRow> recorded) {
    if (stop_) return {};
    TrainConfig config = config_;
    config.lanes = {lane};
    Trainer trainer(config, data_);
    LossSink sink(lane.plan.name, ++trained_, progress_, stop_, recorded);
    trainer.run(&sink, {}, sink.give_up);
    if (sink.other) throw_changed(lane.plan.name, sink.rows.back(), *sink.other);
    return std::move(sink.rows);
  }

  [[noreturn]] static void throw_changed(const std::string& lane, const StepRow& now,
                                         const StepRow& recorded) {
    throw Error(
        fmt::format("the training does not repeat itself: at step {} the loss of {} is {}, the run "
                    "recorded {}",
                    now.step, lane, now.loss, recorded.loss),
        "the data or the initial weights have changed since, or it was another version; record the "
        "run again");
  }

  Trial trial(const PlanEdit& edit, Trial::Kind kind, const std::string& name) {
    std::vector<std::string> members;
    for (const PlanEdit& member : sorted_members(edit)) members.push_back(member.member_name());
    const auto [place, is_new] = trials_.try_emplace(std::move(members));
    if (is_new) {
      const bool is_original = kind == Trial::Kind::original;
      const std::vector<StepRow> rows =
          train(lane(edit, name), is_original ? std::span<const StepRow>(request_.recorded)
                                              : std::span<const StepRow>());
      const SkippedSteps skipped = skipped_steps(rows);
      place->second.gap = loss_gap(rows, reference_);
      place->second.skipped = skipped.total();
      place->second.calibration_skips = skipped.calibration;
      if (kind == Trial::Kind::advised && !rows.empty()) last_scale_ = rows.back().loss_scale;
      place->second.passes =
          comparable_ && place->second.gap <= tolerance_ && skips_are_normal(skipped, rows);
    }
    Trial result = place->second;
    result.kind = kind;
    result.name = name;
    return result;
  }

  Trial without(const PlanEdit& member) {
    const std::string name = member.member_name();
    Trial result = trial(edit_.without(member), Trial::Kind::leave_one_out,
                         advised_name_ + " without " + name);
    result.without = name;
    return result;
  }

  /// Takes out members one after the other as long as the rest still cures. What was needed beside
  /// a member may not be without it, so it goes round until none can be spared.
  void drop_needless(Proof& proof) {
    for (bool dropped = true; dropped && !stop_;) {
      dropped = false;
      for (const PlanEdit& member : sorted_members(edit_)) {
        if (stop_ || !without(member).passes) continue;
        edit_ = edit_.without(member);
        dropped_.push_back(in_words(member));
        proof.dropped.push_back(member.member_name());
        dropped = true;
      }
    }
  }

  static std::string gap_text(double gap) {
    return std::isfinite(gap) ? percent(gap) : "without bound";
  }

  std::string sentence(const Proof& proof) const {
    const Trial& original = proof.trials[0];
    const Trial& advised = proof.trials[1];
    const std::string over = fmt::format("over the last fifth of {}", counted(proof.steps, "step"));
    if (!fp32_trains_) {
      return "Nothing can be proved: fp32 itself does not train, its loss does not stay finite.";
    }
    if (!comparable_) {
      return fmt::format(
          "Nothing can be proved: two fp32 runs one ulp apart drift apart without bound {}.", over);
    }
    const std::string allowed =
        fmt::format("{} is allowed, {} is how far two fp32 runs one ulp apart drift",
                    percent(proof.tolerance), percent(proof.twin_spread));
    if (original.passes && edit_.members().empty()) {
      return "The advice changes what evaluations see, not the training itself: no loss can prove "
             "it.";
    }
    if (original.passes) {
      return fmt::format("{} trains as fp32 does as it is: its loss is {} from fp32's {} ({}).",
                         proof.lane, percent(original.gap), over, allowed);
    }
    if (!advised.passes) {
      std::string text = fmt::format(
          "Not proved: with the advice the loss is {} from fp32's {} ({}), with {}.",
          gap_text(advised.gap), over, allowed, counted(advised.skipped, "skipped step"));
      // Skipped steps put a lane behind fp32, which a longer training makes up for.
      if (std::isfinite(advised.gap) && advised.skipped > 0 &&
          advised.skipped == advised.calibration_skips &&
          proof.steps < kFewForSkips * advised.skipped) {
        text += fmt::format(
            " All were spent on finding the loss scale, which puts it behind fp32: train for at "
            "least {} steps, or start nearer with --loss-scale dynamic:{}.",
            kFewForSkips * advised.skipped, short_number(last_scale_));
      }
      return text;
    }
    std::string before = std::isfinite(original.gap) ? percent(original.gap) : "training fails";
    // The loss alone would not have told.
    if (original.gap <= proof.tolerance) {
      before += fmt::format(" with {}", counted(original.skipped, "skipped step"));
    }
    std::string text = fmt::format(
        "Proved by training: with the advice the loss is {} from fp32's {} ({}); without it, {}.",
        percent(advised.gap), over, allowed, before);
    std::vector<std::string> names;
    for (const PlanEdit& member : sorted_members(edit_)) names.push_back(in_words(member));
    text += fmt::format(" Taking {} away breaks it again.",
                        names.size() == 1 ? names[0] : "any one of " + name_list(names));
    if (!dropped_.empty()) {
      text += fmt::format(" Needless, and dropped: {}.", name_list(dropped_));
    }
    return text;
  }

  const ProofRequest& request_;
  const Dataset& data_;
  const ProofProgress& progress_;
  const std::atomic<bool>& stop_;
  TrainConfig config_;
  PlanEdit edit_;  ///< what is left of the advice
  std::string advised_name_;
  std::vector<StepRow> reference_;
  bool fp32_trains_ = false, comparable_ = false;
  double tolerance_ = 0.0;
  std::map<std::vector<std::string>, Trial> trials_;  ///< by members
  std::vector<std::string> dropped_;                  ///< in words
  double last_scale_ = 1.0;  ///< where the loss scale of the advised lane ended
  int trained_ = 0;
};

}  // namespace

std::optional<Proof> prove(const ProofRequest& request, const Dataset& data,
                           const ProofProgress& progress, const std::atomic<bool>& stop) {
  return Prover(request, data, progress, stop).run();
}

}  // namespace halfscope
