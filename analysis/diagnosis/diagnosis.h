// SPDX-License-Identifier: MIT
// Diagnosis: the cause of a lane's wrong results, how it leads to the symptom, and the smallest
// change that fixes it. A pure function of a run and of the proof that is stored with it, so that
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

/// A place in the network with all its names.
struct Place {
  std::string layer{};  ///< path as in plans; the module's path where a file has modules
  std::string node{};   ///< its name in the model file; "" if it has none
  std::string site{};   ///< the tensor: "conv2.activation"; "" for all of the layer
};

/// A tensor on the path from the cause to the symptom.
struct Hop {
  std::string site{}, layer{};
  std::string text{};                 ///< "22% overflow", "not finite", "error 12%"
  std::optional<double> error{};      ///< relative error in the worst sampled step
  std::optional<double> largest{};    ///< magnitude, before rounding
  std::optional<double> reference{};  ///< the largest magnitude in the reference
};

struct Decoy {
  Place place{};
  std::string why{};  ///< a sentence: why it is not the cause
};

enum class Confidence : uint8_t { low, medium, high };
const char* confidence_name(Confidence confidence) noexcept;

struct Diagnosis {
  int lane = -1;
  bool harmed = false;  ///< some result is wrong; otherwise everything below is empty
  Mechanism mechanism = Mechanism::unknown;
  std::vector<Place> root{};
  std::string cause{};  ///< one sentence for each kind of fault
  std::optional<Place> first_symptom{};
  std::string symptom{};     ///< what it looks like there
  std::vector<Hop> chain{};  ///< from the root to the end of the network
  PlanEdit fix{};
  std::string fix_text{};  ///< one sentence, or two
  Cost fix_cost{};
  std::vector<PlanEdit> alternatives{};  ///< as small, and tried
  std::vector<Decoy> decoys{};
  std::vector<TriedEdit> does_not_help{};  ///< single changes that did not help
  Confidence confidence = Confidence::low;
  std::vector<std::string> reasons{};  ///< sentences that justify it
  bool verified = false;               ///< tried: the fix works, and all of it is needed
  bool likely = false;                 ///< neither a rule nor a trial confirms the cause
  int64_t trials = 0;
};

/// Returns the diagnosis of a lane. `findings` come from run_rules(), `proof` from the run file.
Diagnosis diagnose(const RunView& run, std::span<const Finding> findings, int lane,
                   const PlanEdit& advice, const std::optional<Proof>& proof);

/// Returns the object `diagnosis` of docs/reference/diagnosis.md.
std::string diagnosis_json(const Diagnosis& diagnosis);
/// Returns the cause as a sentence: with a capital letter unless it begins with the name of a layer
/// or of a setting. Says so if it is only likely.
std::string cause_sentence(const Diagnosis& diagnosis);

/// Returns "conv2 (/features/2/Conv in the model file) and fc1".
std::string places_text(const std::vector<Place>& places);
/// Returns the mechanism in half a sentence; "" if the cause says the same.
std::string mechanism_meaning(const Diagnosis& diagnosis);
/// Returns how sure the fix is: "proved by 12 trials", "tried, but not enough", "not tried yet".
std::string proof_words(const Diagnosis& diagnosis);
/// Returns each reason why layers are not the cause, with those layers.
std::vector<std::pair<std::string, std::vector<std::string>>> decoys_by_reason(
    const Diagnosis& diagnosis);
/// Returns the diagnosis as lines for a terminal. `instead`: its fix is an alternative to other
/// advice.
std::string diagnosis_lines(const Diagnosis& diagnosis, bool instead = false);

}  // namespace halfscope
