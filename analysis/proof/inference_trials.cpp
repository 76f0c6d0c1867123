// SPDX-License-Identifier: MIT
// Trials by inference: compares a lane's outputs with those of fp32 on the same samples.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/memory_sink.h"
#include "analysis/proof/trial_runner.h"
#include "analysis/rules/text.h"
#include "core/error.h"

namespace halfscope {
namespace {

constexpr double kBrokenError = std::numeric_limits<double>::infinity();
/// Lanes of a trial: fp32 and the tested one.
constexpr int kTried = 1;

/// Collects output deviations and reports the progress of a run.
class OutputSink final : public TapSink {
 public:
  OutputSink(std::string name, int count, const SharedProgress& progress)
      : name_(std::move(name)), count_(count), progress_(progress) {}

  void begin(const RunInfo&) override {}
  void step(int lane, const StepRow& row, std::span<const TensorStats>) override {
    if (lane == kTried) progress_.step(name_, count_, row);
  }
  void eval(int lane, const EvalRow& row) override { accuracy[lane == kTried] = row.accuracy; }
  void error(int, const SiteError&) override {}
  void sums(int, const SiteSums&) override {}
  void deviation(int lane, const Deviation& deviation) override {
    if (lane == kTried && deviation.of == Deviation::Of::output) outputs.push_back(deviation);
  }
  void end(RunEnd) override {}

  std::vector<Deviation> outputs;
  double accuracy[2] = {std::nan(""), std::nan("")};  ///< of fp32 and of the tested lane

 private:
  std::string name_;
  int count_;
  const SharedProgress& progress_;
};

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

double error_of(const Deviation& output) { return output.broken > 0 ? kBrokenError : output.error; }

/// Returns the output that differs most; null without outputs.
const Deviation* worst_of(std::span<const Deviation> outputs) {
  const auto worst =
      std::max_element(outputs.begin(), outputs.end(), [](const Deviation& a, const Deviation& b) {
        // NaN means not compared.
        return std::isnan(error_of(a)) ? !std::isnan(error_of(b)) : error_of(a) < error_of(b);
      });
  return worst == outputs.end() ? nullptr : &*worst;
}

class InferenceTrials final : public TrialRunner {
 public:
  InferenceTrials(const InferenceProofRequest& request, const Dataset& data,
                  const ProofProgress& progress, const std::atomic<bool>& stop)
      : request_(request), data_(data), progress_(progress), stop_(stop), config_(request.run) {
    config_.every = 0;
    config_.keep_outputs = false;
    // On sampled batches, fp32 runs again with inputs and weights moved by one ulp.
    config_.errors.enabled = true;
    config_.errors.pairs.clear();
    config_.errors.emulator = nullptr;
  }

  std::string prepare(const LaneConfig& original, Proof& proof) override {
    if (stop_) return "";
    original_ = run(original, true);
    proof.steps = batches_;
    proof.twin_spread = spread_;
    proof.tolerance = tolerance_;
    if (!any_) return "Nothing can be proved: no output was compared with fp32's.";
    return "";
  }

  int at_once() const override { return trials_at_once(request_.backend, request_.search); }

  Outcome run(const LaneConfig& lane, bool is_original) override {
    if (is_original && original_) return *original_;
    RunnerConfig config = config_;
    config.lanes = beside_reference(lane);
    Runner runner(request_.network(), config, data_);
    OutputSink sink(lane.plan.name, progress_.begin(), progress_);
    runner.run(&sink, {}, stop_);
    if (!runner.lost_lanes().empty()) {
      const FailedLane& lost = runner.lost_lanes().front();
      throw Error(fmt::format("{} stopped at batch {}: {}", lost.name, lost.step, lost.why),
                  lost.hint);
    }
    if (stop_) return {};
    const LaneInfo info = runner.describe().lanes[kTried];
    if (is_original) {
      check_repeated(sink.outputs);
      note(info, sink.outputs);
      batches_ = runner.batches();
    }
    const std::vector<HarmItem> wrong = wrong_outputs(info, sink.outputs);
    Outcome outcome;
    const Deviation* worst = worst_of(sink.outputs);
    outcome.trial.gap = worst != nullptr ? error_of(*worst) : std::nan("");
    outcome.trial.passes = worst != nullptr && wrong.empty();
    if (!wrong.empty()) outcome.why = wrong.front().text;
    judge_accuracy(sink, runner.describe().test_samples, outcome);
    return outcome;
  }

  std::optional<RunView> record(const LaneConfig& lane) override {
    RunnerConfig config = config_;
    config.every = 1;
    config.lanes = beside_reference(lane);
    Runner runner(request_.network(), config, data_);
    MemorySink sink;
    sink.begin(runner.describe());
    runner.run(&sink, {}, stop_);
    if (stop_) return std::nullopt;
    return sink.view();
  }

  std::string distance(const Outcome& outcome) const override {
    const double gap = outcome.trial.gap;
    if (!std::isfinite(gap)) return "outputs are NaN or infinite where fp32's are finite";
    return gap > tolerance_ ? fmt::format("the outputs differ from fp32's by {}", by_text(gap))
                            : fmt::format("the outputs are within {} of fp32's{}", within_text(gap),
                                          outcome.beside);
  }

  std::string allowed(const Proof& proof) const override {
    return percent(proof.tolerance) + " is allowed";
  }

  std::string failure(const Outcome& original, const Proof& proof) const override {
    const double gap = original.trial.gap;
    if (!std::isfinite(gap)) return "outputs are NaN or infinite where fp32's are finite";
    const std::string off = fmt::format("they differ by {}", by_text(gap));
    if (gap > proof.tolerance) return off;
    return off + (original.why.empty() ? kDoubtful : ", but " + original.why);
  }

  std::string proved() const override { return "Tested by running it"; }

  std::string healthy(const std::string& lane) const override {
    return lane + " matches fp32 without any change";
  }

  std::string hint(const Outcome&) const override { return ""; }

 private:
  /// Adds the accuracy where samples have labels. A lane that is less accurate than chance explains
  /// does not pass.
  static void judge_accuracy(const OutputSink& sink, int64_t samples, Outcome& outcome) {
    const double right = sink.accuracy[0], own = sink.accuracy[kTried];
    if (!std::isfinite(right) || !std::isfinite(own)) return;
    const std::string both = fmt::format("{} instead of {}", percent(own), percent(right));
    outcome.beside = ", with an accuracy of " + both;
    if (right - own <= accuracy_tolerance(right, samples)) return;
    outcome.trial.passes = false;
    if (outcome.why.empty()) outcome.why = "the accuracy is " + both;
  }

  /// Throws Error if the outputs of the original and fp32 differ from the recorded ones.
  void check_repeated(std::span<const Deviation> outputs) const {
    for (const Deviation& recorded : request_.recorded) {
      for (const Deviation& now : outputs) {
        if (now.name != recorded.name) continue;
        const bool same = now.n == recorded.n && now.broken == recorded.broken &&
                          same_number(now.error, recorded.error);
        if (same) continue;
        throw Error(fmt::format("the run is not repeatable: the error of output {} is {}, but the "
                                "run file has {}",
                                now.name, now.error, recorded.error),
                    "record the run again; its samples, its weights or the HalfScope version have "
                    "changed");
      }
    }
  }

  /// Sets spread and tolerance from the original's worst output.
  void note(const LaneInfo& info, std::span<const Deviation> outputs) {
    const Deviation* worst = worst_of(outputs);
    any_ = worst != nullptr;
    if (!any_) return;
    spread_ = worst->spread;
    tolerance_ = output_tolerance(info, *worst);
  }

  const InferenceProofRequest& request_;
  const Dataset& data_;
  SharedProgress progress_;
  const std::atomic<bool>& stop_;
  RunnerConfig config_;
  std::optional<Outcome> original_;
  bool any_ = false;
  double spread_ = 0.0, tolerance_ = kOutputFloor;
  int64_t batches_ = 0;
};

}  // namespace

std::unique_ptr<TrialRunner> inference_trials(const InferenceProofRequest& request,
                                              const Dataset& data, const ProofProgress& progress,
                                              const std::atomic<bool>& stop) {
  return std::make_unique<InferenceTrials>(request, data, progress, stop);
}

}  // namespace halfscope
