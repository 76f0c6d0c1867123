// SPDX-License-Identifier: MIT
// Diagnosis: the cause of a lane's wrong results, how it leads to what one sees, and the smallest
// change that helps. A pure function of a run and of the proof that is stored with it, so that
// `diagnose`, reports and the viewer say the same.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/causes/evidence.h"
#include "analysis/finding.h"
#include "analysis/proof/cost.h"
#include "analysis/proof/proof_record.h"

namespace halfscope {

/// A place in the network, by all its names.
struct Place {
  std::string layer{};  ///< path, as plans name it: the module's where a file has modules
  std::string node{};   ///< its name in the network's own file; "" if it has none
  std::string site{};   ///< the tensor: "conv2.activation"; "" for all of the layer
};

/// One tensor on the way from the cause to the symptom.
struct Hop {
  std::string site{}, layer{};
  std::string text{};                 ///< "22% overflow", "not finite", "12% off fp32's"
  std::optional<double> error{};      ///< relative, of the sampled step that is worst
  std::optional<double> largest{};    ///< magnitude, before rounding
  std::optional<double> reference{};  ///< the largest magnitude in the reference
};

struct Decoy {
  Place place{};
  std::string why{};  ///< why it is not the cause, a sentence
};

enum class Confidence : uint8_t { low, medium, high };
const char* confidence_name(Confidence confidence) noexcept;

struct Diagnosis {
  int lane = -1;
  bool harmed = false;  ///< some result is wrong; without harm all that follows is empty
  Mechanism mechanism = Mechanism::unknown;
  std::vector<Place> root{};
  std::string cause{};  ///< one sentence; where faults of several kinds meet, one for each kind
  std::optional<Place> first_symptom{};
  std::string symptom{};     ///< what one sees there
  std::vector<Hop> chain{};  ///< from the root to the end of the network
  PlanEdit fix{};
  std::string fix_text{};  ///< one sentence
  Cost fix_cost{};
  std::vector<PlanEdit> alternatives{};  ///< as small, and tried
  std::vector<Decoy> decoys{};
  std::vector<TriedEdit> does_not_help{};  ///< single changes that were tried in vain
  Confidence confidence = Confidence::low;
  std::vector<std::string> reasons{};  ///< for that confidence, sentences
  bool verified = false;               ///< it was tried: the fix cures, and all of it is needed
  int64_t trials = 0;
};

/// Diagnoses a lane of a run. `findings` come from run_rules(), `proof` from the run file.
Diagnosis diagnose(const RunView& run, std::span<const Finding> findings, int lane,
                   const PlanEdit& advice, const std::optional<Proof>& proof);

/// The object `diagnosis` of docs/contracts.md.
std::string diagnosis_json(const Diagnosis& diagnosis);
/// "conv2 (/features/2/Conv in the network's file) and fc1".
std::string places_text(const std::vector<Place>& places);
/// The mechanism in half a sentence; "" if the cause says the same.
std::string mechanism_meaning(const Diagnosis& diagnosis);
/// How sure the fix is: "proved by 12 trials", "tried, but not enough", "not tried yet".
std::string proof_words(const Diagnosis& diagnosis);
/// Why layers are not the cause, each reason once, with those it is about.
std::vector<std::pair<std::string, std::vector<std::string>>> decoys_by_reason(
    const Diagnosis& diagnosis);
/// Some lines for a terminal.
std::string diagnosis_lines(const Diagnosis& diagnosis);

}  // namespace halfscope
