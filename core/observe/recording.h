// SPDX-License-Identifier: MIT
// What a run tells the world: its sites, its steps and the statistics of every site, handed to
// a TapSink by the Trainer once per lane and step. The recorder writes them to the run file,
// tests keep them in memory; whoever reads a run back gets the same structs.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/graph/site.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "core/numeric/sums/accumulation.h"
#include "core/numeric/sums/sum_diagnostics.h"

namespace halfscope {

/// Whether a backend may round products before their statistics are taken, so that what overflowed
/// or was flushed is not seen.
constexpr bool measures_after_rounding(std::string_view backend) noexcept {
  return backend == "cuda-fast";
}

/// Whether a backend computes with other code than the emulator's.
constexpr bool has_own_kernels(std::string_view backend) noexcept {
  return backend != "emulated" && backend != "float64";
}

struct LaneInfo {
  std::string name;        ///< "float32", "mixed_float16", "candidate" ...
  std::string backend;     ///< "emulated", "cuda", "float64"
  std::string plan_json;   ///< the plan, as docs/contracts.md describes it
  std::string loss_scale;  ///< as --loss-scale takes it: "dynamic:65536", "none"
  std::vector<LayerInfo> layers;
  std::vector<SiteInfo> sites;
};

struct RunInfo {
  std::string model, data, optimizer, command;
  /// Forward passes alone: steps are batches without loss, gradients and updates.
  bool inference = false;
  /// Evaluations are those of the moving averages, which stood in for the weights.
  bool evaluates_averages = false;
  int64_t batch = 0, steps_planned = 0, classes = 0, train_samples = 0, test_samples = 0;
  uint64_t seed = 0;
  int threads = 0, every = 1;
  /// The training as command-line arguments (flag, value, flag ...), lanes and output files left
  /// out; empty if it was not started from the command line.
  std::vector<std::string> settings;
  /// The lanes in the same way: "--lanes", "float32,mixed_float16", "--fp32", "conv2" ...
  std::vector<std::string> lane_settings;
  std::string isa;      ///< "avx512", "avx2", "baseline"
  std::string version;  ///< of HalfScope
  std::vector<LaneInfo> lanes;
};

/// One step of one lane. Steps count from 0. NaN stands for "not measured".
struct StepRow {
  int64_t step = 0;
  double loss = 0.0;        ///< NaN in inference
  double loss_scale = 1.0;  ///< the scale this step ran with; 1 without loss scaling
  double learning_rate = std::numeric_limits<double>::quiet_NaN();  ///< of this step's update
  bool skipped = false;    ///< the update was skipped since a gradient was not finite
  double grad_norm = 0.0;  ///< 2-norm of all weight gradients, unscaled
  double accuracy = std::numeric_limits<double>::quiet_NaN();  ///< of this batch, 0..1
  double ms = 0.0;  ///< of the lane's step: wall time, or a device's
  /// Order of the first site, states left aside, that overflowed or made a non-finite value.
  int first_bad = -1;
};

/// Accuracy and loss on the test part; a NaN accuracy where the network does not classify, a NaN
/// loss in inference.
struct EvalRow {
  int64_t step = 0;  ///< number of steps done before this evaluation
  double loss = 0.0, accuracy = 0.0;
};

/// How a tensor of one lane differs from the same tensor of another at one step. Both are compared
/// as values of the site's format, to which the other one's are rounded; a distance in ulps is the
/// number of values of the format between the two, plus one.
struct SiteError {
  /// Bin 0 counts equal elements, bin k distances in [2^(k-1), 2^k), the last bin all beyond and
  /// the elements of which only one is finite.
  static constexpr size_t kBins = 26;

  int64_t step = 0;
  int site = 0;        ///< SiteInfo::order in the lane
  int other_lane = 0;  ///< the lane it is compared with
  int other_site = 0;  ///< the site of the same name there
  int64_t n = 0;
  int64_t differing = 0;   ///< elements that are not equal
  int64_t sign_flips = 0;  ///< of an activation: elements positive in one lane and not in the other
  double total = 0.0;      ///< ||x - other|| / ||other||, 2-norms over elements finite in both
  double max_ulps = 0.0;
  /// ||x - f(operands)|| / ||f(operands)||: the operator once more on this lane's own operands, as
  /// they were before they were narrowed for it, in fp32 and in double, over elements finite in
  /// both. NaN: not measured. Infinite: f(operands) is zero and x is not.
  double local_fp32 = std::numeric_limits<double>::quiet_NaN();
  double local_fp64 = std::numeric_limits<double>::quiet_NaN();
  /// ||f(operands) - other|| / ||other|| with f in double: what came in with the operands.
  double inherited = std::numeric_limits<double>::quiet_NaN();
  /// x is not finite where f(operands) is a number of its format, and the node sums in fp32 or
  /// wider: then the local errors are infinite, and what was inherited is not measured.
  bool operator_fails() const noexcept {
    return std::isinf(local_fp32) && std::isinf(local_fp64) && std::isnan(inherited);
  }
  std::array<int64_t, kBins> ulps{};
};

/// What happened inside the sums of products behind a tensor in one step, under the accumulation
/// of its node and on the operands that it read.
struct SiteSums {
  int64_t step = 0;
  int site = 0;         ///< SiteInfo::order of the tensor of sums
  std::string layer{};  ///< path of the node that sums, which the accumulation of a plan is for
  Accumulation accumulation{};
  SumDiagnostics counts{};
};

/// A tensor that a kernel made which is not the emulator's, beside what the emulator makes of the
/// very operands that the kernel read; both rounded to the site's format.
struct KernelCheck {
  int64_t step = 0;
  int site = 0;  ///< SiteInfo::order
  int64_t n = 0;
  int64_t differing = 0;  ///< elements with other bits; NaNs are equal
  double max_ulps = 0.0;  ///< infinite if an element is finite in one of the two only
  int64_t worst = -1;     ///< the element furthest away, not finite ones first; -1: all are equal
  /// Of sums of products: elements further from the exact sum than any order of summing explains
  /// (core/numeric/sums/sum_bound.h). -1: no sums of products, or in a format of their own.
  int64_t beyond = -1;
  std::string kernel{};  ///< what computed a product, if a library did; "" if it was ours
  /// Where bits differ, the order of sums that explains most of `sampled` elements to the last bit.
  std::string order{};
  int64_t sampled = 0, explained = 0;
  std::string unexplained{};  ///< why the kernel's own order was not found, where that was tried
};

/// How far a result of a lane is from the truth: what the lane's reference makes of the same
/// samples and the same weights, with every reduced-precision setting off. NaN stands for "not
/// measured".
struct Deviation {
  enum class Of : uint8_t {
    output,    ///< of inference, over all samples that were compared
    loss,      ///< of one batch, at the lane's weights
    gradient,  ///< of one batch, at the lane's weights; one variable's, or all of them
    weight,    ///< how far training has moved a variable from its start
    average,   ///< the same of its moving average
    buffer,    ///< a running statistic, after training
    training,  ///< the loss over the last fifth of the steps; comes from further trainings
  };
  int64_t step = 0;  ///< that was measured; of weights, averages and buffers the steps done
  Of of = Of::output;
  /// Of the output or the variable: "logits", "fc1.weight"; "" of the loss and of all gradients.
  std::string name{};
  int64_t n = 0;       ///< elements
  int64_t broken = 0;  ///< elements that are finite in the reference and not in the lane
  /// ||x - truth|| / ||truth||, 2-norms over elements finite in both. Infinite: the truth is zero.
  double error = std::numeric_limits<double>::quiet_NaN();
  /// Of outputs: the error of the sample that exceeds its tolerance most, and of such a channel.
  double worst = std::numeric_limits<double>::quiet_NaN();
  double worst_channel = std::numeric_limits<double>::quiet_NaN();
  int64_t channel_axis = -1, channel = -1;  ///< which that is; -1: none was measured
  /// Of outputs [samples, numbers]: the error of the differences between the numbers of a sample.
  double differences = std::numeric_limits<double>::quiet_NaN();
  double ratio = std::numeric_limits<double>::quiet_NaN();  ///< ||x|| / ||truth||
  /// The same of the reference itself, after its inputs and weights were moved by one ulp of
  /// the formats that the lane reads them in: how far apart right results are.
  double spread = std::numeric_limits<double>::quiet_NaN();
  double worst_spread = std::numeric_limits<double>::quiet_NaN();
  double worst_channel_spread = std::numeric_limits<double>::quiet_NaN();
  double differences_spread = std::numeric_limits<double>::quiet_NaN();
  double ratio_spread = std::numeric_limits<double>::quiet_NaN();
  /// Of outputs that are further off than roundings usually make them: how far one ulp of fp32
  /// moves the reference. Where that is more than kNoise the reference is no truth, and there are
  /// no errors.
  double noise = std::numeric_limits<double>::quiet_NaN();
};
const char* deviation_name(Deviation::Of of) noexcept;  // "output"
std::optional<Deviation::Of> parse_deviation(std::string_view name) noexcept;

/// How the reduction over data-parallel ranks changed one variable's gradient in one step: beside
/// the mean of the same gradients in double. Of fewer ranks than there are: what the same reduction
/// makes of the first ones alone.
struct ReductionError {
  int64_t step = 0;
  int site = 0;       ///< SiteInfo::order of the reduced gradient
  int64_t ranks = 0;  ///< whose gradients were summed
  int64_t n = 0;
  int64_t broken = 0;     ///< elements that are not finite although their mean is
  double error = 0.0;     ///< ||x - mean|| / ||mean||, 2-norms over elements finite in both
  double stored = 0.0;    ///< the same of a sum in fp32 that is stored once in the same format
  int64_t additions = 0;  ///< of numbers that are not zero
  int64_t swamped = 0;    ///< of these, which left the larger of the two as it was
};

/// A step at which ranks did not all do the same, or after which their weights differ.
struct RankSpread {
  int64_t step = 0;
  int64_t ranks = 0, skipped = 0;  ///< how many there are, and skipped the step
  double distance = 0.0;  ///< ||w - w_0|| / ||w_0|| of the rank furthest from rank 0, all weights
};

/// A lane whose backend failed.
struct LostLane {
  int64_t step = 0;  ///< the first that is missing; in inference a batch
  std::string why{};
  // Not in run files.
  std::string name{}, hint{};
  ErrorKind kind = ErrorKind::runtime;
};

/// How a run came to its end.
enum class RunEnd : uint8_t {
  complete,     ///< all steps
  interrupted,  ///< the user stopped it
  early_stop,   ///< its own rule stopped it
};

/// Receives a run while it happens. Calls come from one thread.
class TapSink {
 public:
  virtual ~TapSink() = default;
  /// Once, before the first step.
  virtual void begin(const RunInfo& run) = 0;
  /// Once per lane and step, in lane order. `stats` is indexed by SiteInfo::order and empty on
  /// steps that are not recorded; an entry with n == 0 was not measured in this step (updates
  /// of a skipped step).
  virtual void step(int lane, const StepRow& row, std::span<const TensorStats> stats) = 0;
  virtual void eval(int lane, const EvalRow& row) = 0;
  /// Before the step() calls of a sampled step, once per compared site, in any order.
  virtual void error(int lane, const SiteError& error) = 0;
  /// Likewise, once per tensor of sums of products whose accumulation has diagnostics.
  virtual void sums(int lane, const SiteSums& sums) = 0;
  /// Likewise, once per tensor of a lane with kernels of its own.
  virtual void kernel(int /*lane*/, const KernelCheck& /*check*/) {}
  /// Likewise, per variable of a lane with several ranks and number of them.
  virtual void reduction(int /*lane*/, const ReductionError& /*error*/) {}
  /// At any time between begin() and end(), at most once per lane and step.
  virtual void ranks(int /*lane*/, const RankSpread& /*spread*/) {}
  /// At any time between begin() and end(), at most once per lane, step, kind and name.
  virtual void deviation(int /*lane*/, const Deviation& /*deviation*/) {}
  /// A lane's backend failed in that step, of which there is no step() of it then; the lane does
  /// not come any more, and the others go on.
  virtual void lost(int /*lane*/, int64_t /*step*/, const std::string& /*why*/) {}
  /// Once, at the end.
  virtual void end(RunEnd how) = 0;
};

}  // namespace halfscope
