// SPDX-License-Identifier: MIT
#include "analysis/proof/trial_book.h"

#include <algorithm>

namespace halfscope {

TrialBook::TrialBook(LaneConfig original, TrialRunner& runner, const std::atomic<bool>& stop,
                     TrialBudget budget)
    : original_(std::move(original)), runner_(runner), stop_(stop), budget_(budget) {}

std::vector<std::string> TrialBook::key_of(const PlanEdit& edit) {
  std::vector<std::string> key;
  for (const Change& change : edit.changes) key.push_back(change.name());
  // A scale is no part of its name.
  if (const std::optional<double> scale = edit.loss_scale()) key.push_back(std::to_string(*scale));
  std::sort(key.begin(), key.end());
  return key;
}

LaneConfig TrialBook::lane(const PlanEdit& edit, const std::string& name) const {
  LaneConfig lane = original_;
  lane.plan = edit.apply(original_.plan);
  lane.plan.name = name;
  if (const std::optional<double> scale = edit.loss_scale()) {
    lane.scaler = {.kind = LossScalerConfig::Kind::constant, .initial = static_cast<float>(*scale)};
  }
  return lane;
}

const Outcome& TrialBook::outcome(const PlanEdit& edit, const std::string& wanted) {
  const auto [place, is_new] = outcomes_.try_emplace(key_of(edit));
  if (!is_new || stop_) return place->second;
  const std::string name = !wanted.empty() ? wanted
                           : edit.empty()  ? original_.plan.name
                                           : original_.plan.name + "+" + edit.member_name();
  try {
    place->second = runner_.run(lane(edit, name), edit.empty());
  } catch (...) {
    outcomes_.erase(place);
    throw;
  }
  ++trials_;
  if (stop_) place->second.trial.passes = false;
  Trial& trial = place->second.trial;
  if (strict_gap_) trial.passes = trial.passes && trial.gap <= 0.5 * *strict_gap_;
  tried_.push_back({edit, trial.gap, trial.passes});
  if (on_trial && !stop_) on_trial();
  return place->second;
}

bool TrialBook::passes(const PlanEdit& edit) { return outcome(edit).trial.passes; }

void TrialBook::ask_for_half_of(double gap) {
  strict_gap_ = gap;
  for (auto& [members, outcome] : outcomes_) {
    outcome.trial.passes = outcome.trial.passes && outcome.trial.gap <= 0.5 * gap;
  }
}

std::optional<RunView> TrialBook::record(const PlanEdit& edit) {
  if (stop_) return std::nullopt;
  ++trials_;
  return runner_.record(lane(edit, original_.plan.name));
}

void TrialBook::add(const TriedEdit& tried) {
  Outcome outcome;
  outcome.trial.gap = tried.gap;
  outcome.trial.passes = tried.passes;
  if (outcomes_.try_emplace(key_of(tried.edit), outcome).second) tried_.push_back(tried);
}

bool TrialBook::exhausted() const {
  if (stop_) return true;
  if (budget_.trials > 0 && trials_ >= budget_.trials) return true;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
  return budget_.seconds > 0.0 && spent.count() >= budget_.seconds;
}

}  // namespace halfscope
