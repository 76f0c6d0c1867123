// SPDX-License-Identifier: MIT
// One trajectory of gradients under several loss scalers: what scale each of them has in each step,
// which steps it skips, what it loses, and how it ends.
//
// A step asks two things of a loss scale S: below its ceiling no gradient overflows, and above its
// floor none of the gradients that are not zero becomes zero. For a gradient g in a format these
// are overflow_threshold / |g| and flush_threshold / |g| (format_limits.h).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/run_view.h"
#include "core/backend/loss_scaler.h"
#include "core/numeric/formats/float_format.h"

namespace halfscope {

/// Demands of one step.
struct ScaleDemand {
  /// The smallest scale at which a gradient overflows; 0: they are not finite at any scale.
  double ceiling = std::numeric_limits<double>::infinity();
  double floor = 0.0;  ///< the largest scale at which a non-zero gradient becomes 0
  int ceiling_site = -1, floor_site = -1;  ///< who sets them: indices of ScaleDemands::sites
  int forward_site = -1;  ///< where the forward pass is not finite, if it is not; the same indices
  bool forward_nan = false;  ///< there is NaN at this place, but nothing overflows
  int nan_site = -1;         ///< a gradient with NaN in a step in which no gradient overflows
  /// The magnitudes are hidden: at `ceiling` a gradient overflows, and perhaps at any scale below.
  bool hidden = false;
  int curve = -1;  ///< index of ScaleDemands::curves
};

/// Shares of non-zero gradients that become zero, by loss scale.
struct FlushCurve {
  int lowest = 0;              ///< shares[i] is at scales from 2^(lowest + i) on
  std::vector<double> shares;  ///< falling; 1 below, 0 above

  double at(double scale) const noexcept;
};

struct ScaleDemands {
  std::vector<ScaleDemand> steps;
  std::vector<std::string> sites;   ///< "conv1.weight_grad"; empty for made-up trajectories
  std::vector<std::string> layers;  ///< of the sites: "conv1"
  std::vector<FlushCurve> curves;
  /// The first step with a loss of NaN or infinity in a run that has finite losses, too; or -1.
  int64_t loss_lost = -1;
};

/// Largest and smallest non-zero magnitude of a step's gradients, without a loss scale. NaN or
/// infinity: not finite at any scale. A smallest of 0 means unknown.
struct GradientRange {
  double largest = 0.0, smallest = 0.0;
};

ScaleDemands demands_of(std::span<const GradientRange> gradients, const FloatFormat& format);
/// Returns the demands of a pattern: F for steps that are finite at any scale, O for steps that
/// overflow at any scale. It is repeated up to `steps`, or used once if that is 0. Throws Error
/// (usage) for other letters.
ScaleDemands demands_of_pattern(std::string_view pattern, int64_t steps);
/// Returns the gradients of a built-in trajectory; throws Error (usage) for unknown names.
std::vector<GradientRange> gradient_shape(std::string_view name, int64_t steps);
std::span<const std::string> gradient_shapes();  ///< "steady", "falling" ...
/// Reads "largest[,smallest]" per line, with or without a header. Throws Error.
std::vector<GradientRange> read_gradient_ranges(const std::string& file);
/// Returns whether a lane has gradients in a format with fewer exponents than fp32.
bool needs_loss_scale(const LaneInfo& lane);
/// Returns the demands of a recorded lane, from the statistics of all gradients in narrow formats.
/// Steps that were not recorded are like the recorded one before them. Where a gradient had
/// overflown, its magnitude comes from the lane's reference; without one, the ceiling is the scale
/// at which it overflowed (ScaleDemand::hidden). Gradients that are NaN without an overflow are so
/// at any scale. Throws Error (usage) if the lane records no such gradients.
ScaleDemands recorded_demands(const RunView& run, int lane);

/// How a scaler gets along with a trajectory.
enum class ScalerEnd : uint8_t {
  fits,         ///< it never skips a step
  calibrates,   ///< it skips steps at the start only
  searches,     ///< its scale still falls at the end, too early to tell whether it finds one
  rides,        ///< it skips a step now and then, as dynamic scalers do when they grow
  runaway,      ///< it grows and grows because nothing overflows
  stuck,        ///< at its floor or static scale it skips every step until the end
  collapses,    ///< its scale falls and falls, and every step is skipped
  stops,        ///< the framework raises an error
  nan_weights,  ///< the weights become NaN without a skipped step
  infinite,     ///< the scale is infinite and never recovers
};
const char* scaler_end_name(ScalerEnd end) noexcept;  // "nan_weights"
/// Returns whether training goes on well; not where nobody can tell (`searches`).
bool is_good(ScalerEnd end) noexcept;

struct ScaleChange {
  int64_t step = 0;  ///< the first one with this scale
  double scale = 0.0;
  friend bool operator==(const ScaleChange&, const ScaleChange&) = default;
};

struct ScalerTrace {
  std::string scaler;  ///< as --loss-scale takes it
  std::vector<ScaleChange> changes;
  int64_t steps = 0;  ///< run; fewer than asked for if the framework raises
  int64_t skipped = 0;
  int64_t updates = 0;  ///< steps that the optimizer counts
  int64_t flushed = 0;  ///< steps taken in which a non-zero gradient became zero
  double lost = std::numeric_limits<double>::quiet_NaN();  ///< mean share of non-zero gradients
                                                           ///< that became 0; NaN if unknown
  int64_t first_taken = -1, last_skipped = -1;
  double lowest = 0.0, highest = 0.0;
  ScalerEnd end = ScalerEnd::fits;
  int64_t at = -1;  ///< the step from which on `end` holds; -1 if it has none
  ScalerStop stop = ScalerStop::none;
  int64_t cause = -1;  ///< the step whose overflow causes a bad end; -1 if none does
  /// `searches`: after how many more steps like the last one a step is taken; 0: unknown.
  int64_t missing = 0;
  std::string about;  ///< `end` in a sentence
};

/// Runs the scaler over the trajectory. Takes a few nanoseconds per step.
ScalerTrace trace_scaler(const LossScalerConfig& scaler, const ScaleDemands& demands);
/// Returns the scalers of all frameworks with their defaults; an interval other than 0 replaces
/// theirs.
std::vector<LossScalerConfig> usual_scalers(int32_t interval = 0);

/// A site that sets the ceiling or the floor of some steps.
struct LimitSite {
  std::string site;
  int64_t steps = 0;      ///< in which it sets the limit
  double tightest = 0.0;  ///< the lowest ceiling, or the highest floor
};
/// Returns the largest power of two at which no step overflows that does not always; 0 if no step
/// limits the scale.
double fitting_static_scale(const ScaleDemands& demands);
/// Returns the sites that set ceilings or floors, most steps first.
std::vector<LimitSite> limiting_sites(const ScaleDemands& demands, bool ceilings);

}  // namespace halfscope
