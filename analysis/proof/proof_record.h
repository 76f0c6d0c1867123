// SPDX-License-Identifier: MIT
// What a proof came to, as run files and reports hold it. proof.h makes it by training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan_edit.h"

namespace halfscope {

struct Trial {
  enum class Kind : uint8_t { original, advised, leave_one_out };
  std::string name;  ///< of the lane
  Kind kind = Kind::original;
  std::string without = "";  ///< leave_one_out: the member that was taken away
  double gap = 0.0;          ///< see loss_gap(); infinite or NaN if the loss is not finite
  int64_t skipped = 0, calibration_skips = 0;
  bool passes = false;
};
const char* trial_name(Trial::Kind kind) noexcept;  // "leave_one_out"

struct Proof {
  std::string lane, advised;  ///< names of the lane and of the advised plan
  PlanEdit edit;              ///< what was tried, without the members that proved needless
  std::string plan_json;      ///< the plan with that edit
  bool holds = false;
  int64_t steps = 0;
  uint64_t seed = 0;
  double twin_spread = 0.0;  ///< the largest gap between fp32 and its twins
  double tolerance = 0.0;    ///< max(1 %, twice that)
  std::vector<Trial> trials;
  std::vector<std::string> dropped;  ///< members that proved needless
  std::string text;                  ///< one or two sentences
};

/// The object `proof` of the report's JSON (docs/contracts.md), which run files store.
std::string proof_json(const Proof& proof);
/// The inverse; nothing if the text is not a proof. Only the plan says whether the storage was part
/// of the edit.
std::optional<Proof> read_proof(const std::string& json);

}  // namespace halfscope
