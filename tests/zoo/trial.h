// SPDX-License-Identifier: MIT
// A trial: one case under one plan. What HalfScope says of the recorded run, beside the harm that
// is measured without it, against the same computation in double with every reduced-precision
// setting off.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/models/zoo/zoo.h"
#include "core/tensor.h"
#include "emulation/backends.h"

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

struct Trial {
  std::string case_id, plan;
  bool right_kind = false;  ///< one of Case::right
  bool control = false;
  Truth truth;
  std::string verdict;   ///< the lane's
  std::string headline;  ///< the run's
  bool alarm = false;    ///< HalfScope says that something is wrong
  double seconds = 0.0;
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

/// Returns the distance of the losses in the last fifth of the steps from the reference's: the
/// difference of their means over the reference's, which counts as at least 5% of its first loss.
double loss_distance(const std::vector<double>& losses, const std::vector<double>& reference,
                     int64_t& non_finite);

/// The harm of an error, by the tolerances of a case. Nothing is called healthy whose weights went
/// another way by more than half.
Harm harm_of(const Truth& truth, double ok, double harm);

/// Runs one case under one plan after another and caches the data that all of them need.
class Stage {
 public:
  Stage(const Case& which, std::filesystem::path folder);
  Trial run(const std::string& plan, const Backend& backend = emulation_backend());
  /// Runs it without HalfScope's rules, and judges the harm alone.
  Truth truth(const LaneChoice& lane);
  const Setup& setup() const { return setup_; }

 private:
  Results full_precision(const LaneConfig& lane, const NamedTensors& init) const;
  Truth judge(const LaneChoice& lane, const Results& results);
  double error_of(const Results& x, int64_t& non_finite) const;
  double moved_by(const Results& x) const;
  double drift_of(const std::string& format, double unit);

  const Case& case_;
  std::filesystem::path folder_;
  Setup setup_;
  Results reference_;
  std::map<std::string, double> drifts_;  ///< by format
};

/// Returns whether that state of a lane or a run means that something is wrong.
bool is_alarm(const std::string& state);

}  // namespace halfscope::zoo
