// SPDX-License-Identifier: MIT
// Harm: how far the results of a lane are from the truth, and whether that is more than correct
// results differ from each other. Every verdict starts here. The tolerance of a result is
//
//   max(floor, min(kHarmFactor x spread, cap))
//
// where `spread` is the same distance between the reference and the reference with its inputs and
// weights moved by one ulp of the lane's formats (core/observe/deviation.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/rules/lane_facts.h"

namespace halfscope {

/// A distance counts as harm beyond this many times the spread of correct results.
inline constexpr double kHarmFactor = 2.0;
/// For outputs, and the loss of one batch: distances below the floor are never harm (for formats
/// with few bits see harm_floor()), distances beyond the cap always are.
inline constexpr double kOutputFloor = 0.01, kOutputCap = 0.15;
/// The cap for lanes that read operands in formats with fewer bits than bf16.
inline constexpr double kNarrowOutputCap = 0.25;
/// For outputs that are indices: the share that differs.
inline constexpr double kDecisionFloor = 0.01, kDecisionCap = 0.03;
/// For gradients of one batch, by variable.
inline constexpr double kGradientFloor = 0.05;
/// For the loss at the end of training. Without twins, trainings whose losses are less than
/// kUnprovenGap apart may both be correct.
inline constexpr double kLossFloor = 0.01, kUnprovenGap = 0.10;
/// For how far training has moved the weights or their averages, compared with the reference.
/// Without twins, only the distances moved can be compared; single variables may differ by twice as
/// much.
inline constexpr double kMovementFloor = 0.10, kUnprovenMovement = 0.15;
/// Fewer steps say nothing about a training: curves start alike, and a dynamic loss scale may still
/// be coming down.
inline constexpr int64_t kLeastSteps = 20;
/// Shorter runs do not show yet how a loss scale develops, so conclusions from them are cautious.
inline constexpr int64_t kFewSteps = 50;

/// A result that is too far from the truth.
struct HarmItem {
  enum class Of : uint8_t {
    output,
    loss,  ///< of one batch
    gradient,
    weight,
    average,
    buffer,
    training,  ///< the loss at the end
    test_loss,
    accuracy,
    steps,  ///< all updates were skipped
  };
  Of of = Of::output;
  std::string name{};       ///< name of the output or the variable
  int64_t step = -1;        ///< where it first shows; -1: at the end
  double error = 0.0;       ///< relative error; infinite if the result is not finite
  double tolerance = 0.0;   ///< the tolerance that it exceeds
  bool severe = false;      ///< the result is useless
  bool unproven = false;    ///< its tolerance is a guess, because there were no twins
  bool from_start = false;  ///< of a batch: it was there before the first update of the weights
  std::string text{};       ///< "its loss is NaN at the end", for a sentence about the lane
};

/// Returns whether the result was compared for equal weights: an output, or loss or gradient of one
/// batch.
bool of_batch(const HarmItem& item) noexcept;

struct Harm {
  std::vector<HarmItem> items{};  ///< worst first; empty if none was found
  bool measured = false;          ///< some result was compared with the truth
  /// Sentences about results that could not be checked.
  std::vector<std::string> unchecked{};
  /// A sentence that says why the lane is not healthy although no harm was found; "" if it is.
  std::string inconclusive{};
  /// A sentence that says so if the reference itself did not learn; else "".
  std::string unlearned{};

  /// Some result has a larger error than rounding alone usually causes, though not more than
  /// correct results may have. Findings then stay warnings.
  bool doubtful = false;

  /// The loss ends worse than the reference's, and nothing shows whether correct runs differ as
  /// much.
  bool lags = false;

  /// How far apart twins end, if the lane ends about as far from the reference; else 0.
  double drift = 0.0;

  /// Results were compared with the same weights; the loss of a training alone hides much.
  bool probed = false;

  bool none() const noexcept { return probed && items.empty(); }
  bool severe() const noexcept { return !items.empty() && items.front().severe; }
  /// Returns whether a result is wrong for equal weights, or nothing was compared like that.
  bool in_batches() const noexcept;
};
const char* harm_name(HarmItem::Of of) noexcept;  // "output"

/// Returns the error that is tolerated whatever the spread: four roundings of the narrowest format
/// that the lane's layers write, or half of one of the narrowest that they read, at least
/// kOutputFloor. Roundings of operands average out in sums.
double harm_floor(const LaneInfo& lane);
/// Returns the same for the gradient of all weights. Its operands may have even fewer bits, as in
/// e5m2: two roundings of the narrowest.
double gradient_floor(const LaneInfo& lane);
/// Returns the distance beyond which outputs are wrong, however far apart correct ones may be.
double harm_cap(const LaneInfo& lane);

/// Returns how far below float32's accuracy, `right`, an accuracy may lie: 2 points, or the
/// difference that chance explains with this number of samples.
double accuracy_tolerance(double right, int64_t samples);

/// Returns the tolerance of an inference output.
double output_tolerance(const LaneInfo& lane, const Deviation& output);
/// Returns the outputs that are too far from the truth.
std::vector<HarmItem> wrong_outputs(const LaneInfo& lane, std::span<const Deviation> deviations);

/// Returns the harm done to a lane. For a reference, or without one, nothing is measured.
Harm harm_of(const LaneFacts& lane);

}  // namespace halfscope
