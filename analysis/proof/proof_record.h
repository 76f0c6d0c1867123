// SPDX-License-Identifier: MIT
// What a proof came to, as run files and reports hold it. proof.h makes it by training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/observe/recording.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

struct Trial {
  enum class Kind : uint8_t { original, advised, leave_one_out };
  std::string name;  ///< of the lane
  Kind kind = Kind::original;
  std::string without = "";  ///< leave_one_out: the member that was taken away
  /// See loss_gap(); of inference the largest error of an output. Infinite or NaN if the loss or an
  /// output is not finite.
  double gap = 0.0;
  int64_t skipped = 0, calibration_skips = 0;
  bool passes = false;
};
const char* trial_name(Trial::Kind kind) noexcept;  // "leave_one_out"

/// What a node does to the numbers, seen when all other members of an edit were in place.
struct Cause {
  std::string layer{};  ///< the member
  std::string site{};   ///< where it shows
  Mechanism mechanism = Mechanism::unknown;
  double weight = 0.0;  ///< see Suspect
  std::string text{};
};

/// An edit that was tried on the way, and what it came to.
struct TriedEdit {
  PlanEdit edit{};
  double gap = 0.0;  ///< this and the next three as of a Trial
  bool passes = false;
  int64_t skipped = 0, calibration_skips = 0;
  double last_scale = 1.0;  ///< where the loss scale ended
  std::string why{};        ///< what is wrong where the gap does not show it, half a sentence
};

struct Proof {
  std::string lane, advised;  ///< names of the lane and of the advised plan
  PlanEdit edit;              ///< what was tried, without the members that proved needless
  std::string plan_json;      ///< the plan with that edit
  bool holds = false;
  int64_t steps = 0;
  uint64_t seed = 0;
  double twin_spread = 0.0;  ///< the largest gap between right results
  double tolerance = 0.0;    ///< of the gap
  std::vector<Trial> trials;
  std::vector<std::string> dropped;  ///< members that proved needless
  // Of a search.
  std::vector<TriedEdit> tried{};        ///< in the order of the trials
  std::vector<PlanEdit> alternatives{};  ///< other edits, not larger, that pass
  std::vector<Cause> causes{};           ///< what members of the edit that are nodes do without it
  bool exhausted = false;                ///< the budget ended it
  std::string text;                      ///< one or two sentences
  /// What was measured of the lane, beside the spread of right trainings: for store_deviations(),
  /// no part of the JSON.
  std::vector<Deviation> deviations;
};

/// What a search has tried, as run files keep it while it goes on.
std::string tried_json(const std::vector<TriedEdit>& tried);
/// Reads that list again; leaves out anything that is not a trial.
std::vector<TriedEdit> read_tried(const std::string& json);

/// The object `proof` of the report's JSON (docs/contracts.md), which run files store.
std::string proof_json(const Proof& proof);
/// The inverse; nothing if the text is not a proof. Only the plan says whether the storage was part
/// of the edit.
std::optional<Proof> read_proof(const std::string& json);

}  // namespace halfscope
