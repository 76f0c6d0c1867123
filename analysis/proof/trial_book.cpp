// SPDX-License-Identifier: MIT
#include "analysis/proof/trial_book.h"

#include <algorithm>
#include <limits>

#include "analysis/proof/side_by_side.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope {

TrialBook::TrialBook(LaneConfig original, TrialRunner& runner, const std::atomic<bool>& stop,
                     TrialBudget budget)
    : original_(std::move(original)), runner_(runner), stop_(stop), budget_(budget) {}

TrialBook::Key TrialBook::key_of(const PlanEdit& edit) {
  Key key;
  for (const Change& change : edit.changes) key.push_back(edit_to_json({.changes = {change}}));
  std::sort(key.begin(), key.end());
  return key;
}

LaneConfig TrialBook::lane(const PlanEdit& edit, const std::string& name) const {
  LaneConfig lane = original_;
  lane.plan = edit.apply(original_.plan);
  lane.plan.name = name;
  if (const std::optional<double> scale = edit.loss_scale()) {
    lane.scaler = {.kind = LossScalerConfig::Kind::constant,
                   .initial = static_cast<double>(static_cast<float>(*scale))};
  }
  return lane;
}

std::string TrialBook::name_of(const PlanEdit& edit, const std::string& wanted) const {
  if (!wanted.empty()) return wanted;
  return edit.empty() ? original_.plan.name : original_.plan.name + "+" + edit.member_name();
}

Outcome TrialBook::run(const PlanEdit& edit, const std::string& wanted) {
  const auto known = expected_.extract(key_of(edit));
  if (known.empty()) return runner_.run(lane(edit, name_of(edit, wanted)), edit.empty());
  if (known.mapped().error) std::rethrow_exception(known.mapped().error);
  return known.mapped().outcome;
}

const Outcome& TrialBook::outcome(const PlanEdit& edit, const std::string& wanted) {
  const auto [place, is_new] = outcomes_.try_emplace(key_of(edit));
  if (!is_new || stop_) return place->second;
  try {
    place->second = run(edit, wanted);
  } catch (const Error& error) {
    if (edit.empty() || error.kind() != ErrorKind::usage) {
      outcomes_.erase(place);
      throw;
    }
    // The plan cannot be changed like that: a scope has no format, and scaled results have to be
    // narrow, which they are not any more if another change keeps the operands in fp32.
    place->second.trial.gap = std::numeric_limits<double>::infinity();
    place->second.why = error.what();
    return place->second;
  } catch (...) {
    outcomes_.erase(place);
    throw;
  }
  ++trials_;
  Trial& trial = place->second.trial;
  if (stop_) trial.passes = false;
  if (strict_gap_) trial.passes = trial.passes && trial.gap <= 0.5 * *strict_gap_;
  tried_.push_back({.edit = edit,
                    .gap = trial.gap,
                    .better = trial.better,
                    .passes = trial.passes,
                    .skipped = trial.skipped,
                    .calibration_skips = trial.calibration_skips,
                    .last_scale = place->second.last_scale,
                    .why = place->second.why});
  if (on_trial && !stop_) on_trial();
  return place->second;
}

bool TrialBook::passes(const PlanEdit& edit) { return outcome(edit).trial.passes; }

int TrialBook::first_that_passes(const std::vector<PlanEdit>& edits) {
  const size_t at_once = static_cast<size_t>(std::max(runner_.at_once(), 1));
  for (size_t i = 0; i < edits.size(); ++i) {
    if (exhausted()) return -1;
    if (i % at_once == 0) {
      expect(std::span(edits).subspan(i, std::min(at_once, edits.size() - i)));
    }
    if (passes(edits[i])) return static_cast<int>(i);
  }
  return -1;
}

void TrialBook::expect(std::span<const PlanEdit> edits) {
  std::vector<const PlanEdit*> missing;
  for (const PlanEdit& edit : edits) {
    const bool is_left =
        budget_.trials <= 0 || trials_ + static_cast<int64_t>(missing.size()) < budget_.trials;
    const Key key = key_of(edit);
    if (is_left && !outcomes_.contains(key) && !expected_.contains(key)) missing.push_back(&edit);
  }
  if (missing.size() < 2 || runner_.at_once() < 2 || exhausted()) return;
  std::vector<Expected> results(missing.size());
  side_by_side(missing.size(), runner_.at_once(), [&](size_t i) {
    const PlanEdit& edit = *missing[i];
    if (stop_) return;
    try {
      results[i].outcome = runner_.run(lane(edit, name_of(edit, "")), edit.empty());
    } catch (...) {
      results[i].error = std::current_exception();
    }
  });
  if (stop_) return;
  for (size_t i = 0; i < missing.size(); ++i) {
    expected_.try_emplace(key_of(*missing[i]), std::move(results[i]));
  }
}

void TrialBook::ask_for_half_of(double gap) {
  strict_gap_ = gap;
  for (auto& [members, outcome] : outcomes_) {
    outcome.trial.passes = outcome.trial.passes && outcome.trial.gap <= 0.5 * gap;
  }
}

std::optional<std::vector<RunView>> TrialBook::record(const std::vector<PlanEdit>& edits) {
  if (stop_) return std::nullopt;
  std::vector<std::optional<RunView>> found(edits.size());
  std::vector<std::exception_ptr> errors(edits.size());
  side_by_side(edits.size(), runner_.at_once(), [&](size_t i) {
    try {
      found[i] = runner_.record(lane(edits[i], original_.plan.name));
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  trials_ += static_cast<int64_t>(edits.size());
  std::vector<RunView> views;
  for (size_t i = 0; i < edits.size(); ++i) {
    if (errors[i]) std::rethrow_exception(errors[i]);
    if (!found[i]) return std::nullopt;
    views.push_back(std::move(*found[i]));
  }
  return views;
}

std::optional<RunView> TrialBook::record(const PlanEdit& edit) {
  std::optional<std::vector<RunView>> views = record(std::vector<PlanEdit>{edit});
  if (!views) return std::nullopt;
  return std::move(views->front());
}

void TrialBook::add(const TriedEdit& tried) {
  if (tried.edit.empty()) return;
  Outcome outcome{.last_scale = tried.last_scale, .why = tried.why};
  outcome.trial.gap = tried.gap;
  outcome.trial.better = tried.better;
  outcome.trial.passes = tried.passes;
  outcome.trial.skipped = tried.skipped;
  outcome.trial.calibration_skips = tried.calibration_skips;
  if (outcomes_.try_emplace(key_of(tried.edit), outcome).second) tried_.push_back(tried);
}

bool TrialBook::exhausted() const {
  if (stop_) return true;
  if (budget_.trials > 0 && trials_ >= budget_.trials) return true;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
  return budget_.seconds > 0.0 && spent.count() >= budget_.seconds;
}

}  // namespace halfscope
