// SPDX-License-Identifier: MIT
// The report of a run: its sites, its steps and the statistics of every site. The Trainer hands
// them to a TapSink once per lane and step. The recorder writes them to the run file, tests keep
// them in memory, and code that reads a run back gets the same structs.
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

/// Returns whether a lane was captured from another framework (python/). Its tensors were rounded
/// before they were measured: what overflowed is infinite and what underflowed is 0. Weights that a
/// narrower format reads are the exception.
constexpr bool is_capture(std::string_view backend) noexcept {
  return backend == "pytorch" || backend == "keras";
}

/// Returns whether a backend may round products before their statistics are taken, which hides
/// overflow and flushes.
constexpr bool measures_after_rounding(std::string_view backend) noexcept {
  return backend == "cuda-fast" || is_capture(backend);
}

/// Returns whether a backend runs other code than the emulator's.
constexpr bool has_own_kernels(std::string_view backend) noexcept {
  return backend != "emulated" && backend != "float64";
}

struct LaneInfo {
  std::string name;        ///< "float32", "mixed_float16", "candidate" ...
  std::string backend;     ///< "emulated", "cuda", "float64"; of captures "pytorch", "keras"
  std::string plan_json;   ///< the plan, in the JSON form of docs/reference/plans.md
  std::string loss_scale;  ///< as --loss-scale accepts it: "dynamic:65536", "none"
  std::vector<LayerInfo> layers;
  std::vector<SiteInfo> sites;
};

/// Facts about a training script that its recorder saw, besides numbers.
namespace observed {
/// Steps have a loss; otherwise NaN may also mean that none was found.
inline constexpr const char* kLoss = "loss";
/// A loss scaler scaled the loss, but the optimizer stepped with the scaled gradients.
inline constexpr const char* kScaledStep = "scaled_step";
/// Autocast was on when the optimizer stepped, and was not left before its next step.
inline constexpr const char* kAutocastKept = "autocast_kept";
}  // namespace observed

struct RunInfo {
  std::string model, data, optimizer, command;
  /// Forward passes only: steps are batches without loss, gradients and updates.
  bool inference = false;
  /// Evaluations used the moving averages in place of the weights.
  bool evaluates_averages = false;
  /// Captures: facts about the training script (namespace observed).
  std::vector<std::string> observed;
  /// EvalRow::accuracy is the mean average precision of boxes with an IoU of at least 0.5 (mAP50).
  bool detects = false;
  int64_t batch = 0, steps_planned = 0, classes = 0, train_samples = 0, test_samples = 0;
  uint64_t seed = 0;
  int threads = 0, every = 1;
  /// The training as command-line arguments (flag, value, flag ...), without lanes and output
  /// files. Empty if it was not started from the command line.
  std::vector<std::string> settings;
  /// The lanes as command-line arguments: "--lanes", "float32,mixed_float16", "--fp32", "conv2" ...
  std::vector<std::string> lane_settings;
  std::string isa;      ///< "avx512", "avx2", "baseline"
  std::string version;  ///< HalfScope's version
  std::vector<LaneInfo> lanes;
};

/// Returns what EvalRow::accuracy of the run is: "accuracy" or "mAP50".
inline const char* quality_name(const RunInfo& run) noexcept {
  return run.detects ? "mAP50" : "accuracy";
}

/// One step of one lane. Steps count from 0. NaN means "not measured".
struct StepRow {
  int64_t step = 0;
  double loss = 0.0;        ///< NaN in inference
  double loss_scale = 1.0;  ///< the scale this step ran with; 1 without loss scaling
  double learning_rate = std::numeric_limits<double>::quiet_NaN();  ///< of this step's update
  bool skipped = false;    ///< the update was skipped because a gradient was not finite
  double grad_norm = 0.0;  ///< 2-norm of all weight gradients, unscaled; in captures maybe NaN
  double accuracy = std::numeric_limits<double>::quiet_NaN();  ///< accuracy on this batch, 0..1
  double ms = 0.0;  ///< duration of the lane's step: wall time, or device time
  /// Order of the first site that overflowed or computed a non-finite value; states do not count.
  int first_bad = -1;
};

/// Loss and scores on the test part. NaN means "not measured": the loss in inference, the accuracy
/// if the network does not classify.
struct EvalRow {
  int64_t step = 0;  ///< number of steps completed before this evaluation
  double loss = 0.0;
  double accuracy = 0.0;  ///< or what RunInfo says it is
  /// Mean area under the ROC curve of the classes (numeric/statistics/auc.h), if a sample has one
  /// label; mean intersection over union of the classes, if it has a label for each pixel.
  double auc = std::numeric_limits<double>::quiet_NaN();
  double mean_iou = std::numeric_limits<double>::quiet_NaN();
};

/// Differences between a tensor of one lane and the same tensor of another lane at one step. The
/// other tensor is first rounded to the site's format. A distance in ulps is the number of values
/// of that format between the two elements, plus one.
struct SiteError {
  /// Bin 0 counts equal elements, bin k counts distances in [2^(k-1), 2^k). The last bin counts
  /// everything beyond, and elements that are finite in only one lane.
  static constexpr size_t kBins = 26;

  int64_t step = 0;
  int site = 0;        ///< SiteInfo::order in the lane
  int other_lane = 0;  ///< the other lane in the comparison
  int other_site = 0;  ///< the site with the same name in that lane
  int64_t n = 0;
  int64_t differing = 0;   ///< elements that are not equal
  int64_t sign_flips = 0;  ///< activations: elements positive in one lane and not in the other
  double total = 0.0;      ///< ||x - other|| / ||other||, 2-norms over elements finite in both
  double max_ulps = 0.0;
  /// ||x - f(operands)|| / ||f(operands)||, in fp32 and in double, over elements finite in both. f
  /// is the operator run again on this lane's own operands, taken before they were narrowed for it.
  /// NaN: not measured. Infinite: f(operands) is zero and x is not.
  double local_fp32 = std::numeric_limits<double>::quiet_NaN();
  double local_fp64 = std::numeric_limits<double>::quiet_NaN();
  /// ||f(operands) - other|| / ||other|| with f in double: the error that arrived with the
  /// operands.
  double inherited = std::numeric_limits<double>::quiet_NaN();
  /// Returns whether x is not finite where f(operands) is representable in its format, and the node
  /// sums in fp32 or better. The local errors are then infinite, and the inherited one is not
  /// measured.
  bool operator_fails() const noexcept {
    return std::isinf(local_fp32) && std::isinf(local_fp64) && std::isnan(inherited);
  }
  std::array<int64_t, kBins> ulps{};
};

/// Diagnostics of the sums of products behind a tensor in one step, under the accumulation of its
/// node and on the operands that it read.
struct SiteSums {
  int64_t step = 0;
  int site = 0;         ///< SiteInfo::order of the tensor of sums
  std::string layer{};  ///< path of the node that sums; its accumulation in the plan applies
  Accumulation accumulation{};
  SumDiagnostics counts{};
};

/// A tensor computed by another kernel than the emulator's, compared with the emulator's result for
/// exactly the operands that the kernel read. Both are rounded to the site's format.
struct KernelCheck {
  int64_t step = 0;
  int site = 0;  ///< SiteInfo::order
  int64_t n = 0;
  int64_t differing = 0;  ///< elements with different bits; NaNs count as equal
  double max_ulps = 0.0;  ///< infinite if an element is finite in only one of the two
  int64_t worst = -1;     ///< the element furthest away, non-finite ones first; -1: all are equal
  /// Sums of products: elements further from the exact sum than any summation order explains
  /// (core/numeric/sums/sum_bound.h). -1: not sums of products, or sums in a reduced format.
  int64_t beyond = -1;
  std::string kernel{};  ///< the library kernel that computed a product; "" for our own kernels
  /// The summation order that explains most of the `sampled` elements to the last bit, if bits
  /// differ.
  std::string order{};
  int64_t sampled = 0, explained = 0;
  std::string unexplained{};  ///< why the kernel's own order was not found, if it was searched
};

/// Deviation of a lane's result from the truth. The truth is the result of the lane's reference for
/// the same samples and weights, with every reduced-precision setting off. NaN means "not
/// measured".
struct Deviation {
  enum class Of : uint8_t {
    output,    ///< of inference, over all compared samples
    loss,      ///< of one batch, at the lane's weights
    gradient,  ///< of one batch, at the lane's weights; one variable's, or all of them
    weight,    ///< how far training has moved a variable from its start
    average,   ///< the same for its moving average
    buffer,    ///< a running statistic, after training
    training,  ///< loss over the last fifth of the steps; needs further trainings
  };
  int64_t step =
      0;  ///< the measured step; for weights, averages and buffers the number of steps done
  Of of = Of::output;
  /// Name of the output or variable: "logits", "fc1.weight"; "" for the loss and for all gradients.
  std::string name{};
  int64_t n = 0;       ///< elements
  int64_t broken = 0;  ///< elements that are finite in the reference but not in the lane
  /// ||x - truth|| / ||truth||, 2-norms over elements finite in both. Infinite: the truth is zero.
  double error = std::numeric_limits<double>::quiet_NaN();
  /// Outputs: the error of the sample that exceeds its tolerance most, and that of the worst
  /// channel.
  double worst = std::numeric_limits<double>::quiet_NaN();
  double worst_channel = std::numeric_limits<double>::quiet_NaN();
  int64_t channel_axis = -1, channel = -1;  ///< the worst channel; -1: none was measured
  /// Outputs [samples, numbers]: the error of the differences between the numbers of a sample.
  double differences = std::numeric_limits<double>::quiet_NaN();
  double ratio = std::numeric_limits<double>::quiet_NaN();  ///< ||x|| / ||truth||
  /// The same numbers for the reference itself after its inputs and weights were moved by one ulp
  /// of the formats in which the lane reads them: how far apart correct results are.
  double spread = std::numeric_limits<double>::quiet_NaN();
  double worst_spread = std::numeric_limits<double>::quiet_NaN();
  double worst_channel_spread = std::numeric_limits<double>::quiet_NaN();
  double differences_spread = std::numeric_limits<double>::quiet_NaN();
  double ratio_spread = std::numeric_limits<double>::quiet_NaN();
  /// Outputs with larger errors than roundings usually cause: how far one ulp of fp32 moves the
  /// reference. If that is more than kNoise, the reference is not a truth, and there are no errors.
  double noise = std::numeric_limits<double>::quiet_NaN();
};
const char* deviation_name(Deviation::Of of) noexcept;  // "output"
std::optional<Deviation::Of> parse_deviation(std::string_view name) noexcept;

/// Effect of the reduction over data-parallel ranks on one variable's gradient in one step,
/// compared with the mean of the same gradients in double. With `ranks` below the run's number: the
/// same reduction over the first ranks only.
struct ReductionError {
  int64_t step = 0;
  int site = 0;       ///< SiteInfo::order of the reduced gradient
  int64_t ranks = 0;  ///< number of gradients that were summed
  int64_t n = 0;
  int64_t broken = 0;     ///< elements that are not finite although their mean is
  double error = 0.0;     ///< ||x - mean|| / ||mean||, 2-norms over elements finite in both
  double stored = 0.0;    ///< the same for a sum in fp32 that is stored once in the same format
  int64_t additions = 0;  ///< additions of nonzero numbers
  int64_t swamped = 0;    ///< the ones among them that did not change the larger number
};

/// A step in which the ranks did not all do the same, or after which their weights differ.
struct RankSpread {
  int64_t step = 0;
  int64_t ranks = 0, skipped = 0;  ///< number of ranks, and of those that skipped the step
  double distance =
      0.0;  ///< ||w - w_0|| / ||w_0|| over all weights, of the rank furthest from rank 0
};

/// A lane whose backend failed.
struct FailedLane {
  int64_t step = 0;  ///< first missing step; in inference, batch
  std::string why{};
  // Not stored in run files.
  std::string name{}, hint{};
  ErrorKind kind = ErrorKind::runtime;
};

/// The end of a run.
enum class RunEnd : uint8_t {
  complete,     ///< all steps
  interrupted,  ///< the user stopped it
  early_stop,   ///< the run's own rule stopped it
};

/// Receives a run while it is in progress. All calls come from one thread.
class TapSink {
 public:
  virtual ~TapSink() = default;
  /// Called once, before the first step.
  virtual void begin(const RunInfo& run) = 0;
  /// Called once per lane and step, in lane order. `stats` is indexed by SiteInfo::order and empty
  /// in steps that are not recorded. An entry with n == 0 was not measured in this step (updates of
  /// a skipped step).
  virtual void step(int lane, const StepRow& row, std::span<const TensorStats> stats) = 0;
  virtual void eval(int lane, const EvalRow& row) = 0;
  /// Called before the step() calls of a sampled step, once per compared site, in any order.
  virtual void error(int lane, const SiteError& error) = 0;
  /// Called like error(), once per tensor of sums of products whose accumulation has diagnostics.
  virtual void sums(int lane, const SiteSums& sums) = 0;
  /// Called like error(), once per tensor of a lane with its own kernels.
  virtual void kernel(int /*lane*/, const KernelCheck& /*check*/) {}
  /// Called like error(), once per variable and number of ranks, for lanes with several ranks.
  virtual void reduction(int /*lane*/, const ReductionError& /*error*/) {}
  /// Called between begin() and end(), at most once per lane and step.
  virtual void ranks(int /*lane*/, const RankSpread& /*spread*/) {}
  /// Called between begin() and end(), at most once per lane, step, kind and name.
  virtual void deviation(int /*lane*/, const Deviation& /*deviation*/) {}
  /// Called when a lane's backend failed in `step`. The lane gets no step() call for it and no
  /// further calls; the other lanes continue.
  virtual void lost(int /*lane*/, int64_t /*step*/, const std::string& /*why*/) {}
  /// Called once, at the end.
  virtual void end(RunEnd how) = 0;
};

}  // namespace halfscope
