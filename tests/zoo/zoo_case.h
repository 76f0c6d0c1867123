// SPDX-License-Identifier: MIT
// The zoo: documented failures of reduced precision, and healthy networks beside them, each a small
// network with data and settings. docs/zoo.md has the list.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/graph/model.h"
#include "core/train/trainer.h"
#include "tests/zoo/plans.h"

namespace halfscope::zoo {

/// A network and what it runs or trains on.
struct Setup {
  Model model;
  Dataset data;  ///< arrays; inference reads the test part
  bool trains = false;
  TrainConfig train{};  ///< optimizer, batch, steps and the like; without lanes
};

/// By what the harm of a lane is judged against the same computation in double.
enum class Measure : uint8_t {
  outputs,   ///< of inference
  loss,      ///< mean of the last fifth of the steps
  weights,   ///< how far they moved
  averages,  ///< how far the moving averages moved
};

struct Case {
  std::string id;         ///< "F8"; variants add a letter
  std::string mechanism;  ///< one line
  bool fails = true;      ///< false for controls: no plan of theirs is meant to do harm
  std::function<Setup()> make;
  /// Plans (plans.h). Under each of `right` the failure shows; `plain` are what a user would try.
  std::vector<std::string> right, plain;
  Measure measure = Measure::outputs;
  /// Relative error up to which a result counts as healthy, and from which it counts as harmful.
  double ok = 0.02, harm = 0.05;
  /// What a plan's text stands for.
  std::function<LaneChoice(const std::string&)> lane = lane_choice;
};

/// A documented failure that a case shows by something else than its own mechanism, and why.
struct StandIn {
  std::string id, how;
};

std::vector<Case> range_cases();  ///< overflow and underflow: F1 to F7, F10 to F14, F23, F24, F31
std::vector<Case> sum_cases();    ///< sums in few bits: F8, F9, F20 to F22, F30, F43
std::vector<Case> state_cases();  ///< optimizer, weights, averages: F15 to F18, F42
std::vector<Case> rounding_cases();  ///< results in few bits: F19, F35, F39 to F41, F44
std::vector<Case> scaled_cases();    ///< fp8 and fp4: F28, F36 to F38, F45
std::vector<Case> controls();        ///< healthy networks, masks, F29, F46

std::vector<Case> all_cases();
std::vector<StandIn> stand_ins();

}  // namespace halfscope::zoo
