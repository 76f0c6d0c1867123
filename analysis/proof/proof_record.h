// SPDX-License-Identifier: MIT
// The result of a proof, as stored in run files and shown in reports. proof.h computes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/observe/recording.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

/// One plan that was tested.
struct Trial {
  enum class Kind : uint8_t { original, advised, leave_one_out };
  std::string name;  ///< of the lane
  Kind kind = Kind::original;
  std::string without = "";  ///< leave_one_out: the member that was removed
  /// See loss_gap(); for inference, the largest error of an output. Infinite or NaN if the loss or
  /// an output is not finite.
  double gap = 0.0;
  int64_t skipped = 0, calibration_skips = 0;
  bool better = false;  ///< its loss ends on the better side of fp32's, so no gap is too large
  bool passes = false;
};
const char* trial_name(Trial::Kind kind) noexcept;  // "leave_one_out"

/// Returns a gap to follow "within": "0.07%", and "0.01%" for anything smaller.
std::string within_text(double gap);
/// Returns a gap to follow "by": "0.07%", "less than 0.01%".
std::string by_text(double gap);

/// The fault of one node, measured while all other members of an edit are in place.
struct Cause {
  std::string layer{};  ///< the member
  std::string site{};   ///< the tensor that shows it
  Mechanism mechanism = Mechanism::unknown;
  double weight = 0.0;  ///< see Suspect
  std::string text{};
};

/// An edit that a search tested, with its result.
struct TriedEdit {
  PlanEdit edit{};
  double gap = 0.0;  ///< this and the next four: see Trial
  bool better = false;
  bool passes = false;
  int64_t skipped = 0, calibration_skips = 0;
  double last_scale = 1.0;  ///< where the loss scale ended
  std::string why{};        ///< the fault if the gap does not show it, half a sentence
};

/// The result of a proof.
struct Proof {
  std::string lane, advised;  ///< names of the lane and of the advised plan
  PlanEdit edit;              ///< the tested edit without the members that are not needed
  std::string plan_json;      ///< the plan with that edit
  bool holds = false;
  int64_t steps = 0;
  uint64_t seed = 0;
  double twin_spread = 0.0;  ///< the largest gap between correct results
  double tolerance = 0.0;    ///< the largest gap that passes
  std::vector<Trial> trials;
  std::vector<std::string> dropped;  ///< members that are not needed
  // Results of a search.
  std::vector<TriedEdit> tried{};        ///< in the order of the trials
  std::vector<PlanEdit> alternatives{};  ///< other edits that pass and are not larger
  std::vector<Cause> causes{};           ///< faults of the edit's nodes without the edit
  bool exhausted = false;                ///< the budget ran out
  std::string text;                      ///< one or two sentences
  /// Measured deviations of the lane with the spread of correct trainings, for store_deviations().
  /// Not part of the JSON.
  std::vector<Deviation> deviations;
};

/// Returns the trials of a search as JSON, which run files keep during the search.
std::string tried_json(const std::vector<TriedEdit>& tried);
/// Reads that list and leaves out anything that is not a trial.
std::vector<TriedEdit> read_tried(const std::string& json);

/// Returns the object `proof` of the report's JSON (docs/reference/report-json.md), which run files store.
std::string proof_json(const Proof& proof);
/// Reads that object. Returns nothing if the text is not a proof.
std::optional<Proof> read_proof(const std::string& json);

}  // namespace halfscope
