// SPDX-License-Identifier: MIT
// Twins: how far apart two right trainings end. Float32 is trained three times on the same batches:
// from the run's own weights, and twice with these moved by one ulp of the formats that the judged
// lane reads them in. What the twins do to loss, weights and averages, reduced precision may do.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/rules/harm.h"
#include "core/data/dataset.h"
#include "core/train/trainer.h"

namespace halfscope {

/// Tells what is being run, and how far that is. `lane` counts from 1 and may go on growing.
using ProofProgress = std::function<void(const std::string& name, int lane, const StepRow& row)>;

inline constexpr int kTwins = 2;

struct TwinRequest {
  TrainConfig training;  ///< of the run; its lanes and recording are left aside
  Plan plan;             ///< of the lane that is judged
  const Backend* backend = nullptr;
  /// What the run recorded of the lane's reference; empty if it did not. A training that does not
  /// give the same losses again has other inputs, and shows nothing.
  std::vector<StepRow> recorded_reference = {};
  /// 0: all. A run that ended early is compared with twins of the same length.
  int64_t steps = 0;
};

struct Twins {
  std::vector<StepRow> reference;  ///< of float32 from the run's own weights
  double spread = 0.0;             ///< the largest loss_gap() of the twins
  /// How far weights and averages of the twins end from float32's, the furthest of each: `error`
  /// and `ratio`.
  std::vector<Deviation> movements;
  int64_t steps = 0;     ///< that were trained
  double seconds = 0.0;  ///< that all of it took
};

/// Trains float32 and its twins in lock step; nothing if `stop` became true on the way. Throws
/// Error if float32 does not repeat what was recorded.
std::optional<Twins> train_twins(const TwinRequest& request, const Dataset& data,
                                 const ProofProgress& progress, const std::atomic<bool>& stop);

/// Whether twins could change what is said of the lane: nothing but an unproven tolerance speaks
/// against it, or something could not be checked. False if there have been twins.
bool twins_may_matter(const RunView& run, int lane);

/// The rows that put the twins beside a lane of a run, for store_deviations(): its loss at the end,
/// and what is recorded of its weights and averages, with their spreads.
std::vector<Deviation> rows_beside(const Twins& twins, std::span<const StepRow> lane,
                                   std::span<const StepRow> reference,
                                   std::span<const Deviation> recorded);

/// Throws the Error that says where a training did not repeat what was recorded.
[[noreturn]] void throw_not_repeated(const std::string& lane, const StepRow& now,
                                     const StepRow& recorded);

/// Finds the first step that came out differently than recorded, row by row.
class RepetitionCheck {
 public:
  explicit RepetitionCheck(std::span<const StepRow> recorded) : left_(recorded) {}
  /// False from the first difference on.
  bool add(const StepRow& row);
  const std::optional<StepRow>& other() const noexcept { return other_; }

 private:
  std::span<const StepRow> left_;  ///< what is left to compare with
  std::optional<StepRow> other_;   ///< as recorded
};

}  // namespace halfscope
