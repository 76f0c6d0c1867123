// SPDX-License-Identifier: MIT
// Finding: what a rule says about a run, with its evidence and what to do. Rules read values and
// structure from a RunView, never names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "analysis/run_view.h"
#include "core/plan/causes.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

enum class Severity : uint8_t { info, warning, error };
const char* severity_name(Severity severity) noexcept;

/// The advice of a rule. If the edit is empty, only the text says what to do.
struct Action {
  PlanEdit edit{};
  std::vector<std::string> layers{};  ///< node paths of its layers, in execution order
  std::string text{};                 ///< the same in words
};
/// Returns the word for the main part of an edit: "keep_fp32", "format", "reduce", "loss_scale" or
/// "none".
const char* action_name(const PlanEdit& edit) noexcept;
/// Returns "keep conv2 in fp32 and keep the output of fc1 in fp32".
std::string edit_text(const PlanEdit& edit);
/// Returns the same as a sentence.
std::string edit_sentence(const PlanEdit& edit);
/// Returns a removable part in words, for the name of a change (Change::name()): "conv2", "the fp32
/// output of fc1", "the loss scale".
std::string part_text(const std::string& name);
/// Returns " Also remove casts such as .half() inside norm." for an edit that keeps modules in fp32
/// whose own code runs: in a captured lane it may cast. "" if there are none.
std::string cast_note(const LaneInfo& lane, const PlanEdit& edit);
/// Returns the action "Keep conv1 and fc1 in fp32."
Action keep_in_fp32(std::vector<std::string> layers);

using Evidence = std::map<std::string, std::variant<double, std::string>>;

/// One result of a rule.
struct Finding {
  std::string rule{};  ///< "forward_overflow"
  int lane = 0;
  Severity severity = Severity::info;
  std::string site{};       ///< "conv2.activation"; "" if the finding is about the whole lane
  std::string layer{};      ///< "conv2"
  int64_t step = -1;        ///< first step that shows it; -1 if it has none
  std::string mechanism{};  ///< one line: what happens to the numbers
  /// The mechanism it shows, if its rule finds several; else see Rule::mechanism.
  Mechanism cause = Mechanism::unknown;
  /// How much is lost, where findings of one rule are independent of each other: the largest comes
  /// first, at the place of the earliest. 0: in execution order.
  double weight = 0.0;
  Evidence evidence{};
  std::string text{};  ///< the sentences a user reads
  Action action{};
  bool open = false;  ///< a remark, because the run does not show whether it does harm

  /// Returns an id that is stable across runs of the same setup:
  /// "forward_overflow:mixed_float16:conv2.activation".
  std::string id(const RunView& run) const;
};

}  // namespace halfscope
