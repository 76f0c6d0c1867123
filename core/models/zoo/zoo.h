// SPDX-License-Identifier: MIT
// The zoo: documented failures of reduced precision, and healthy networks beside them, each a small
// network with data, settings and labels that say what goes wrong. docs/zoo.md has the list.
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

/// What a diagnosis should find, as paths of nodes and variables.
struct Labels {
  std::vector<std::string> root;    ///< any of them names the cause; none: a setting of the lane
  std::string first_symptom;        ///< where NaN, infinity or the visible error shows first
  std::vector<std::string> decoys;  ///< what is easily blamed, and must not be in any advice
  /// The smallest fix that a plan or a setting can hold: with all of these changes the case is
  /// healthy, without any of them it is not.
  PlanEdit fix;
};

/// A network and what it runs or trains on.
struct Setup {
  Model model;
  Dataset data;  ///< arrays; inference reads the test part
  bool trains = false;
  TrainConfig train{};  ///< optimizer, batch, steps and the like; without lanes
  Labels labels{};
};

/// By what the harm of a lane is judged against the same computation in double.
enum class Measure : uint8_t {
  outputs,   ///< of inference
  loss,      ///< mean of the last fifth of the steps
  weights,   ///< how far they moved
  averages,  ///< how far the moving averages moved
};

/// What is known of a failure without building its network.
struct About {
  Mechanism mechanism = Mechanism::unknown;
  /// Kinds of accepted fixes, the cheapest first.
  std::vector<FixKind> fixes{};
  std::string seen{};   ///< where it was reported
  std::string decoy{};  ///< what is easily blamed, in words
  /// Shows only where operators round inside: after elementary steps, or in their sums.
  bool stagewise = false;
};

struct Case {
  std::string id;     ///< "F8"; variants add a letter
  std::string what;   ///< goes wrong, or what the network is: one line
  bool fails = true;  ///< false for controls: no plan of theirs is meant to do harm
  std::function<Setup()> make;
  /// Plans (plans.h). Under each of `right` the failure shows; `plain` are what a user would try.
  std::vector<std::string> right, plain;
  Measure measure = Measure::outputs;
  /// Relative error up to which a result counts as healthy, and from which it counts as harmful.
  double ok = 0.02, harm = 0.05;
  /// What a plan's text stands for.
  std::function<LaneChoice(const std::string&)> lane = lane_choice;
  About about{};  ///< of failures
  /// The network with the documented fix where no plan can hold it, such as another constant.
  std::function<Setup()> repaired{};

  bool trains() const noexcept { return measure != Measure::outputs; }
};

/// A documented failure that a case shows by something else than its own mechanism, and why.
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

/// Returns all cases: failures with what is known of them, then controls.
const std::vector<Case>& all_cases();
/// Returns the case with that id, or throws Error (usage) that names the nearest one and all.
const Case& find_case(std::string_view id);
std::vector<StandIn> stand_ins();
std::vector<Absence> absences();
/// Returns 13 of "F13b", and 0 of names that are no documented failure's.
int failure_number(std::string_view id);

/// Returns what is known of a failure, which must be in the table.
const About& about_failure(std::string_view id);

/// The case as it is named on the command line: "zoo:F7".
inline constexpr std::string_view kPrefix = "zoo:";
inline bool is_zoo(std::string_view spec) { return spec.starts_with(kPrefix); }

}  // namespace halfscope::zoo
