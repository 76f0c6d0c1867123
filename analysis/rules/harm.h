// SPDX-License-Identifier: MIT
// Harm: how far the results of a lane are from the truth, and whether that is more than right
// results differ from each other. Every verdict starts from it. The tolerance of a result is
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

/// A distance counts beyond this many times the spread of right results.
inline constexpr double kHarmFactor = 2.0;
/// Outputs, and the loss of one batch: distances below need no excuse (of formats with few bits see
/// harm_floor()), distances beyond the cap have none.
inline constexpr double kOutputFloor = 0.01, kOutputCap = 0.15;
/// Of lanes that read operands in formats of fewer bits than bf16.
inline constexpr double kNarrowOutputCap = 0.25;
/// Outputs that are indices, by the share that differs.
inline constexpr double kDecisionFloor = 0.01, kDecisionCap = 0.03;
/// Gradients of one batch, by variable.
inline constexpr double kGradientFloor = 0.05;
/// The loss at the end of training. Without twins, trainings whose losses are less than
/// kUnprovenGap apart may both be right.
inline constexpr double kLossFloor = 0.01, kUnprovenGap = 0.10;
/// How far training has moved the weights or their averages, against the reference. Without twins
/// only the lengths of the ways can be compared; single variables may differ by twice as much.
inline constexpr double kMovementFloor = 0.10, kUnprovenMovement = 0.15;
/// Fewer steps say nothing of a training: curves start alike, and a dynamic loss scale may still be
/// coming down.
inline constexpr int64_t kLeastSteps = 20;

/// One result that is too far from the truth.
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
  std::string name{};      ///< of the output or the variable
  int64_t step = -1;       ///< where it shows first; -1: at the end
  double error = 0.0;      ///< relative; infinite where a result is not finite
  double tolerance = 0.0;  ///< that it exceeds
  bool severe = false;     ///< the result is of no use
  bool unproven = false;   ///< its tolerance is a guess, as there were no twins
  std::string text{};      ///< "its output logits is 54% off", for a sentence about the lane
};

struct Harm {
  std::vector<HarmItem> items{};  ///< the worst first; empty: none that was found
  bool measured = false;          ///< some result was compared with the truth
  /// What could not be checked, in sentences.
  std::vector<std::string> unchecked{};
  /// Why the absence of harm does not make the lane healthy, a sentence; "" if it does.
  std::string inconclusive{};

  /// Some result is further off than roundings alone usually make it, though not further than right
  /// results may be: what rules find then stays a warning.
  bool doubtful = false;

  /// Results were compared at the same weights; the loss of a training alone hides much.
  bool probed = false;

  bool none() const noexcept { return probed && items.empty(); }
  bool severe() const noexcept { return !items.empty() && items.front().severe; }
};
const char* harm_name(HarmItem::Of of) noexcept;  // "output"

/// What a lane has to be forgiven whatever the spread: four roundings of the narrowest format that
/// its layers write, at least kOutputFloor.
double harm_floor(const LaneInfo& lane);
/// Beyond this distance outputs are wrong, however far apart right ones may be.
double harm_cap(const LaneInfo& lane);

/// The tolerance of an output of inference.
double output_tolerance(const LaneInfo& lane, const Deviation& output);
/// The outputs that are too far from the truth.
std::vector<HarmItem> wrong_outputs(const LaneInfo& lane, std::span<const Deviation> deviations);

/// Returns the harm done to a lane; of a reference, or without one, nothing is measured.
Harm harm_of(const LaneFacts& lane);

}  // namespace halfscope
