// SPDX-License-Identifier: MIT
// The harm that a plan does to a case, measured without HalfScope's rules: against the same
// computation in double with every reduced-precision setting off. Puzzles are judged by it, and the
// verdicts of the rules are scored against it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/models/zoo/zoo.h"
#include "core/observe/recording.h"
#include "core/tensor.h"
#include "core/train/runner.h"

namespace halfscope::zoo {

enum class Harm : uint8_t {
  none,     ///< within Case::ok, or twice the drift of correct runs
  unclear,  ///< in between: not judged
  real,     ///< beyond Case::harm and four times that drift, or not finite
};

struct Truth {
  Harm harm = Harm::none;
  double error = 0.0;  ///< relative; infinite where a result is not finite and should be
  /// Same for runs without a problem: in fp32, and in double starting from weights one ulp away.
  double drift = 0.0;
  double moved = 0.0;      ///< training: relative difference of the weights' movement
  int64_t non_finite = 0;  ///< elements or steps
};

/// Results of a lane that are judged.
struct Results {
  NamedTensors outputs, start, weights, averages;
  std::vector<double> losses;
};

/// Relative distance of two sets of tensors, ||x - reference|| / ||reference||, over the elements
/// that are finite in both. Counts elements that are not finite although the reference's are.
double distance(const NamedTensors& x, const NamedTensors& reference, int64_t& non_finite);

/// Returns end - start of every tensor of `end`.
NamedTensors way(const NamedTensors& start, const NamedTensors& end);

/// Returns the losses that say how a training ended: the last fifth, at least one. `losses` must
/// not be empty.
std::span<const double> last_fifth(std::span<const double> losses);
/// Returns the mean of last_fifth().
double final_loss(std::span<const double> losses);

/// Returns the distance of the losses in the last fifth of the steps from the reference's: the
/// difference of their means over the reference's, which counts as at least 5% of its first loss.
double loss_distance(const std::vector<double>& losses, const std::vector<double>& reference,
                     int64_t& non_finite);

/// The harm of an error, by the tolerances of a case. Nothing is called healthy whose weights went
/// another way by more than half.
Harm harm_of(const Truth& truth, double ok, double harm);

/// Where lanes run, and where the reference does.
struct Backends {
  const Backend* emulated = nullptr;
  const Backend* in_double = nullptr;
};

/// Makes the sink that records a run.
using MakeSink = std::function<std::unique_ptr<TapSink>(const RunInfo&)>;

/// Returns the training settings of a case, without lanes.
TrainConfig train_config(const Setup& setup);
/// Train or run the lanes of the configuration; `make_sink` may be empty. Return the results of the
/// last lane. Throw Error if `stop`, which may be null, becomes true.
Results train(const TrainConfig& config, const Dataset& data, const MakeSink& make_sink,
              const std::atomic<bool>* stop = nullptr);
Results infer(const Setup& setup, const RunnerConfig& config, const MakeSink& make_sink,
              const std::atomic<bool>* stop = nullptr);

/// Measures the harm of one lane after another in a case, and keeps the data that all of them need.
class Judge {
 public:
  /// Runs the reference. Once `stop` is true, which may be null and must outlive the judge, runs
  /// end with an Error.
  Judge(const Case& which, Backends backends, const std::atomic<bool>* stop = nullptr);

  /// Returns the results of a lane alone.
  Results results(const LaneChoice& lane) const;
  /// Returns the harm of a lane with these results.
  Truth judge(const LaneChoice& lane, const Results& results);
  Truth truth(const LaneChoice& lane) { return judge(lane, results(lane)); }

  bool stopped() const noexcept { return stop_ != nullptr && *stop_; }
  const Setup& setup() const { return setup_; }
  const Results& reference() const { return reference_; }  ///< in double

 private:
  Results full_precision(const LaneConfig& lane, const NamedTensors& init) const;
  double error_of(const Results& x, int64_t& non_finite) const;
  double moved_by(const Results& x) const;
  double drift_of(const std::string& format, double unit);

  Measure measure_;
  double ok_, harm_;
  Backends backends_;
  const std::atomic<bool>* stop_;
  Setup setup_;
  Results reference_;
  std::map<std::string, double> drifts_;  ///< by format
};

}  // namespace halfscope::zoo
