// SPDX-License-Identifier: MIT
// Probe: the truth about one batch of one lane. The lane's reference gets the lane's own weights
// and the same samples, so that what differs is what reduced precision did in this batch, not where
// training has drifted to. It then runs once more with weights and inputs moved by one ulp of the
// formats that the lane reads them in: results further apart than that has made right ones are
// wrong.
//
//   lane: begin, grad ... | reference: lane's weights -> grad -> moved by an ulp -> grad ->
//   restored
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/observe/deviation.h"
#include "core/train/lane.h"

namespace halfscope {

/// The lane that `lanes[which]` is judged by: the first in full precision that takes composites
/// apart in the same way, else the first in fp32, else the first in double. -1 for that lane
/// itself, and where there is none.
int reference_for(std::span<const LaneConfig> lanes, size_t which);

/// Puts the variables of a program back as they were when it goes.
class KeptVariables {
 public:
  KeptVariables(Program& program, const Graph& graph);
  KeptVariables(const KeptVariables&) = delete;
  ~KeptVariables();

  /// Writes the other program's variables of the same paths.
  void take(const Program& other, const Graph& other_graph);
  /// Moves every variable but buffers by one ulp of so many significand bits.
  void move(const std::map<std::string, int>& bits, uint64_t seed);

 private:
  struct Kept {
    std::string path;
    ValueId value;
    bool buffer;
    std::vector<double> data;
  };
  Program& program_;
  std::vector<Kept> kept_;
};

/// Moves what has just been written to the inputs of a program.
void move_inputs(Program& program, const Executable& executable,
                 const std::map<std::string, int>& bits, uint64_t seed);

/// Measures lanes that train.
class TrainingProbe {
 public:
  /// `lane` and `reference` are of the same model and outlive this.
  TrainingProbe(const Lane& lane, const Lane& reference);

  /// Writes the samples of a micro-batch to the reference.
  using Feeder = std::function<void(int64_t part, Program& program)>;
  struct Batch {
    int64_t step = 0, parts = 1;
    uint64_t seed = 0;
    bool own_weights = true;  ///< the reference gets the lane's; else both are where they began
    Feeder feed{};
  };

  /// `lane` has run the gradients of this batch and not updated, `reference` has not begun it. The
  /// deviations of loss and gradients; of the loss alone where a gradient is not finite, as happens
  /// while the loss scale is found.
  std::vector<Deviation> measure(const Batch& batch);
  /// Whether gradients have been measured.
  bool has_gradients() const noexcept { return has_gradients_; }

 private:
  struct Gradient {
    std::string path;
    ValueId lane, reference;
  };
  struct Result {
    double loss = 0.0;
    std::vector<std::vector<float>> gradients;
  };
  Result run_reference(const Batch& batch, const std::map<std::string, int>* moved_inputs) const;

  const Lane& lane_;
  const Lane& reference_;
  ReadPrecision precision_;
  std::vector<Gradient> gradients_;
  double first_loss_ = 0.0;
  bool has_gradients_ = false;
};

/// Measures lanes that infer.
class InferenceProbe {
 public:
  InferenceProbe(const Lane& lane, const Lane& reference);

  /// Compares the outputs of a batch's first `samples` samples. `has_batch_axis`: of the network's
  /// inputs. `keeps`: move() follows, after the lanes of the same reference were compared, too.
  void compare(int64_t batch, int64_t samples, bool has_batch_axis, bool keeps);
  /// Runs the reference once more with everything moved; `feed` writes its inputs.
  void move(int64_t batch, bool has_batch_axis, uint64_t seed,
            const std::function<void(Program&)>& feed);
  std::vector<Deviation> results(int64_t steps) const;

 private:
  struct Output {
    std::string name;
    ValueId lane, reference;
    bool real = true;
    DeviationMeter difference{}, spread{};
    Tensor kept_own{}, kept_truth{};  ///< of the batch that move() is about
    /// The sample that is furthest off beside what moving does to it.
    double worst = std::numeric_limits<double>::quiet_NaN();
    double worst_spread = std::numeric_limits<double>::quiet_NaN();
  };
  static void find_worst(Output& output, const Tensor& moved, int64_t rows);
  static void add(DeviationMeter& meter, const Output& output, const Tensor& x, const Tensor& truth,
                  int64_t batch, int64_t samples, bool has_batch_axis);

  const Lane& lane_;
  const Lane& reference_;
  ReadPrecision precision_;
  std::vector<Output> outputs_;
};

/// How far training has moved the variables and averages of a lane, beside its reference, and what
/// running statistics hold. `start`: the weights before the first step.
std::vector<Deviation> training_deviations(int64_t steps, const Lane& lane, const Lane& reference,
                                           const NamedTensors& start);

}  // namespace halfscope
