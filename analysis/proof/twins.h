// SPDX-License-Identifier: MIT
// Twins: measure how far apart two correct trainings end. Float32 is trained on the same batches
// from the run's own weights, and beside it at least twice from weights moved by one ulp of the
// formats in which the judged lane reads them. Reduced precision may change loss, weights and
// averages as much as the twins do.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/rules/harm.h"
#include "core/data/dataset.h"
#include "core/train/trainer.h"

namespace halfscope {

/// Reports what is running and its latest step. `lane` counts from 1 and may keep growing.
using ProofProgress = std::function<void(const std::string& name, int lane, const StepRow& row)>;

inline constexpr int kTwins = 2;

/// Inputs of a training of twins.
struct TwinRequest {
  TrainConfig training;  ///< of the run; its lanes and recording are ignored
  Plan plan;             ///< of the judged lane
  const Backend* backend = nullptr;
  /// Recorded steps of the lane's reference; empty if not recorded. A training that does not
  /// reproduce these losses has other inputs, and shows nothing.
  std::vector<StepRow> recorded_reference = {};
  /// 0: all. A run that ended early is compared with twins of the same length.
  int64_t steps = 0;
  uint64_t first_seed = 1;  ///< of the moves; each twin has the next one
  int twins = kTwins;       ///< number of moved trainings
  /// Steps that the judged lane skipped in search of a loss scale. If there are any, one more twin
  /// starts from float32's own weights and skips them: it takes the lane's path without its
  /// formats.
  std::set<int64_t> skips = {};
  /// Further lanes beside the twins: the same training, computed in another way.
  std::vector<LaneConfig> others = {};
};

/// Results of the twins.
struct Twins {
  std::vector<StepRow> reference;             ///< steps of float32 from the run's own weights
  std::vector<std::vector<StepRow>> moved{};  ///< steps of each twin, and of `others`
  double spread = 0.0;                        ///< the largest loss_gap() of the twins
  /// Final distances of the twins' weights and averages from float32's, the largest of each:
  /// `error` and `ratio`.
  std::vector<Deviation> movements;
  int64_t steps = 0;     ///< number of trained steps
  double seconds = 0.0;  ///< time that all of it took
};

/// Trains float32 and its twins in lock step. Returns nothing if `stop` became true. Throws Error
/// if float32 does not reproduce the recorded losses.
std::optional<Twins> train_twins(const TwinRequest& request, const Dataset& data,
                                 const ProofProgress& progress, const std::atomic<bool>& stop);

/// Adds further twins of the same training, with other seeds.
void add_twins(Twins& twins, Twins others);

/// Returns whether more twins could change a verdict that rests on a few: all that speaks against
/// the lane is how its training ended, and not by far.
bool more_twins_may_matter(const RunView& run, int lane);

/// Returns whether twins could change the verdict on the lane: only an unproven tolerance speaks
/// against it, or something could not be checked. False if twins were trained before.
bool twins_may_matter(const RunView& run, int lane);

/// Returns the rows that compare a lane of a run with the twins, for store_deviations(): its final
/// loss and its recorded weights and averages, with their spreads.
std::vector<Deviation> rows_beside(const Twins& twins, std::span<const StepRow> lane,
                                   std::span<const StepRow> reference,
                                   std::span<const Deviation> recorded);

/// Throws the Error that says at which step a training differs from the recorded one.
[[noreturn]] void throw_not_repeated(const std::string& lane, const StepRow& now,
                                     const StepRow& recorded);

/// Finds the first step that differs from the recorded one, row by row.
class RepetitionCheck {
 public:
  explicit RepetitionCheck(std::span<const StepRow> recorded) : left_(recorded) {}
  /// Returns false from the first difference on.
  bool add(const StepRow& row);
  const std::optional<StepRow>& other() const noexcept { return other_; }

 private:
  std::span<const StepRow> left_;  ///< rows still to compare with
  std::optional<StepRow> other_;   ///< as recorded
};

}  // namespace halfscope
