// SPDX-License-Identifier: MIT
// The zoo: documented failures of reduced precision, and healthy networks as controls. Each is a
// small network with data, settings and labels that say what goes wrong. docs/zoo.md lists them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/dataset.h"
#include "core/graph/model.h"
#include "core/models/zoo/plans.h"
#include "core/plan/causes.h"
#include "core/plan/plan_edit.h"
#include "core/train/trainer.h"

namespace halfscope::zoo {

/// The expected diagnosis of a case, as paths of nodes and variables.
struct Labels {
  std::vector<std::string> root;    ///< each names the cause; empty: a setting of the lane
  std::string first_symptom;        ///< where NaN, infinity or the visible error shows first
  std::vector<std::string> decoys;  ///< easily blamed, but must not be in any advice
  /// The smallest fix by a plan or a setting: with all of these changes the case is healthy,
  /// without any one of them it is not.
  PlanEdit fix;
};

/// A network, its data and its training settings.
struct Setup {
  Model model;
  Dataset data;  ///< arrays; inference reads the test part
  bool trains = false;
  TrainConfig train{};  ///< optimizer, batch, steps ...; without lanes
  Labels labels{};
};

/// Quantity that is compared with the same computation in double to judge the harm of a lane.
enum class Measure : uint8_t {
  outputs,   ///< of inference
  loss,      ///< mean of the last fifth of the steps
  weights,   ///< how far they moved
  averages,  ///< how far the moving averages moved
};

/// Facts about a failure that need no network.
struct About {
  Mechanism mechanism = Mechanism::unknown;
  /// Kinds of accepted fixes, cheapest first.
  std::vector<FixKind> fixes{};
  std::string seen{};   ///< where it was reported
  std::string decoy{};  ///< easily blamed part, in words
  /// Shows only if operators round inside: after elementary steps or in their sums.
  bool stagewise = false;
};

struct Case {
  std::string id;     ///< "F8"; variants add a letter
  std::string what;   ///< one line: what goes wrong, or for controls what the network is
  bool fails = true;  ///< false for controls, whose plans should do no harm
  std::function<Setup()> make;
  /// Plans (plans.h). The failure shows under each of `right`; a user would try those in `plain`.
  std::vector<std::string> right, plain;
  Measure measure = Measure::outputs;
  /// Relative errors: up to `ok` an output counts as healthy, from `harm` on as harmful.
  double ok = 0.02, harm = 0.05;
  /// Parses the text of a plan.
  std::function<LaneChoice(const std::string&)> lane = lane_choice;
  About about{};  ///< of failures
  /// Builds the network with the documented fix if no plan can express it, such as another
  /// constant.
  std::function<Setup()> repaired{};

  bool trains() const noexcept { return measure != Measure::outputs; }
};

/// A documented failure that its case shows in a different way, and why.
struct StandIn {
  std::string id, how;
};

/// A documented failure that no case shows, and why.
struct Absence {
  std::string id, why;
};

/// Documented failures are F1 to F52.
inline constexpr int kFailures = 52;

std::vector<Case> range_cases();     ///< overflow and underflow in the forward pass
std::vector<Case> loss_cases();      ///< overflow and underflow in losses and gradients
std::vector<Case> sum_cases();       ///< sums in few bits
std::vector<Case> rank_cases();      ///< data-parallel ranks
std::vector<Case> state_cases();     ///< optimizer, weights, averages, settings
std::vector<Case> rounding_cases();  ///< results in few bits
std::vector<Case> scaled_cases();    ///< fp8 and fp4
std::vector<Case> controls();        ///< healthy networks

/// Returns all cases: failures with About filled in, then controls.
const std::vector<Case>& all_cases();
/// Returns the case with that id. Throws Error (usage) that names the nearest id.
const Case& find_case(std::string_view id);
std::vector<StandIn> stand_ins();
std::vector<Absence> absences();
/// Returns 13 for "F13b", and 0 for ids that are not those of failures.
int failure_number(std::string_view id);

/// Returns the facts about a failure, which must be in the table.
const About& about_failure(std::string_view id);

/// Prefix of a case on the command line: "zoo:F7".
inline constexpr std::string_view kPrefix = "zoo:";
inline bool is_zoo(std::string_view spec) { return spec.starts_with(kPrefix); }

}  // namespace halfscope::zoo
