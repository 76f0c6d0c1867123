// SPDX-License-Identifier: MIT
// Probe: measures the error of one batch of one lane. The lane's reference gets the lane's own
// weights and the same samples, so differences come from reduced precision in this batch, not from
// drift of the training. The reference then runs once more with weights and inputs moved by one ulp
// of the formats that the lane reads them in. A lane whose outputs are further from the reference's
// than this second run is wrong.
//
//   lane: begin, grad ... | reference: lane's weights -> grad -> moved by an ulp -> grad ->
//   restored
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/observe/deviation.h"
#include "core/observe/worst_slice.h"
#include "core/train/lane.h"

namespace halfscope {

/// Returns the reference lane of `lanes[which]`: the first in full precision that expands
/// composites in the same way, else the first in fp32, else the first in double. Returns -1 for
/// that lane itself, and if there is none.
int reference_for(std::span<const LaneConfig> lanes, size_t which);

/// Distance by which inputs and weights are moved: an ulp of the format in which the lane reads
/// each of them, or of fp32, which shows whether the reference itself is more than rounding noise.
enum class Ulp : uint8_t { of_lane, of_fp32 };

/// Holds the variables of a program and restores them when it is destroyed.
class KeptVariables {
 public:
  KeptVariables(Program& program, const Graph& graph);
  KeptVariables(const KeptVariables&) = delete;
  ~KeptVariables();

  /// Writes the other program's variables with the same paths.
  void take(const Program& other, const Graph& other_graph);
  /// Moves every variable except buffers by one ulp of the format in `bits`, or of fp32.
  void move(const std::map<std::string, int>& bits, uint64_t seed, Ulp ulp = Ulp::of_lane);

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

/// Moves the values that have just been written to the inputs of a program.
void move_inputs(Program& program, const Executable& executable,
                 const std::map<std::string, int>& bits, uint64_t seed, Ulp ulp = Ulp::of_lane);

/// Measures lanes that train.
class TrainingProbe {
 public:
  /// `lane` and `reference` must be built from the same model and outlive this.
  TrainingProbe(const Lane& lane, const Lane& reference);

  /// Writes the samples of a micro-batch to the reference.
  using Feeder = std::function<void(int64_t part, Program& program)>;
  struct Batch {
    int64_t step = 0, parts = 1;  ///< of all ranks
    int64_t ranks = 1;
    uint64_t seed = 0;
    bool own_weights = true;  ///< the reference gets the lane's; else both have initial weights
    Exchange* exchange =
        nullptr;  ///< if not null, ranks are processes, and this one runs its parts
    Feeder feed{};
  };

  /// Returns the deviations of loss and gradients, or of the loss alone if a gradient is not
  /// finite, as happens while the loss scale is being found. `lane` must have run the gradients of
  /// this batch but not the update; `reference` must not have begun the batch.
  std::vector<Deviation> measure(const Batch& batch);
  /// Returns whether gradients have been measured.
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
  /// `moved_inputs`: significand bits of the ulp that inputs are moved by, up or down by bits of
  /// `seed`; null: they are not moved.
  Result run_reference(const Batch& batch, const std::map<std::string, int>* moved_inputs,
                       uint64_t seed = 0) const;
  Result run_moved(const Batch& batch, uint64_t seed) const;
  std::vector<Deviation> compare(const Batch& batch, const Result& truth,
                                 std::span<const Result> moved);

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

  /// Compares the outputs of a batch's first `samples` samples. `has_batch_axis`: whether the
  /// network's inputs have a dimension for samples. `keeps`: move() follows, after all lanes of the
  /// same reference have been compared.
  void compare(int64_t batch, int64_t samples, bool has_batch_axis, bool keeps);
  using Feeder = std::function<void(Program&)>;
  /// Runs the reference once more with weights and inputs moved; `feed` writes its inputs. If an
  /// output differs by more than roundings usually cause, further runs show how far apart correct
  /// outputs are, and whether the reference is more than rounding noise.
  void move(int64_t batch, int64_t samples, bool has_batch_axis, uint64_t seed, const Feeder& feed);
  std::vector<Deviation> results(int64_t steps) const;

 private:
  struct Output {
    std::string name;
    ValueId lane, reference;
    bool real = true;
    DeviationMeter difference{}, spread{}, noise{};
    WorstSlice sample{}, channel{}, differences{};
    /// Outputs of the batch that move() works on.
    Tensor kept_own{}, kept_truth{}, moved_in_fp32{};
    std::vector<Tensor> moved{};
  };
  /// The worst slices of one batch.
  struct Slices {
    WorstSlice sample{}, channel{}, differences{};
  };
  static Slices find_slices(const Output& output, int64_t batch, int64_t samples,
                            bool has_batch_axis);
  static void add(DeviationMeter& meter, const Output& output, const Tensor& x, const Tensor& truth,
                  int64_t batch, int64_t samples, bool has_batch_axis);
  void run_moved(uint64_t seed, Ulp ulp, const Feeder& feed) const;

  const Lane& lane_;
  const Lane& reference_;
  ReadPrecision precision_;
  std::vector<Output> outputs_;
};

/// Compares how far training has moved the variables and averages of a lane and of its reference,
/// and the contents of running statistics. `start`: the weights before the first step.
std::vector<Deviation> training_deviations(int64_t steps, const Lane& lane, const Lane& reference,
                                           const NamedTensors& start);

}  // namespace halfscope
