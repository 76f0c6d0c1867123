// SPDX-License-Identifier: MIT
// Groups of trials that differ in the seed alone, and what their results have in common.
#include "analysis/study/study_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/rules/baseline.h"
#include "analysis/study/study_words.h"

namespace halfscope {
namespace {

/// Returns the quantile of ascending values, between two of them by linear interpolation (type 7
/// of R. J. Hyndman and Y. Fan, 1996).
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const double part = place - static_cast<double>(below);
  if (part == 0.0 || sorted[below] == sorted[below + 1]) return sorted[below];
  return sorted[below] + part * (sorted[below + 1] - sorted[below]);
}

std::optional<double> middle(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

/// Returns the loss of a curve at a step, between two points by linear interpolation; empty outside
/// of the curve.
std::optional<double> loss_at(const std::vector<CurvePoint>& curve, double step) {
  const auto after = std::lower_bound(
      curve.begin(), curve.end(), step,
      [](const CurvePoint& point, double at) { return static_cast<double>(point.step) < at; });
  if (after == curve.end()) return std::nullopt;
  const auto right = static_cast<double>(after->loss);
  if (static_cast<double>(after->step) == step) return right;
  if (after == curve.begin()) return std::nullopt;
  const auto before = std::prev(after);
  const auto left = static_cast<double>(before->loss);
  const auto from = static_cast<double>(before->step), to = static_cast<double>(after->step);
  return left + (right - left) * (step - from) / (to - from);
}

/// Returns the fan of these curves, at the steps of the longest one.
std::vector<LossBand> fan_of(const std::vector<const TrialRow*>& trials) {
  const TrialRow* longest = nullptr;
  for (const TrialRow* trial : trials) {
    if (trial->curve.empty()) continue;
    if (longest == nullptr || trial->curve.back().step > longest->curve.back().step)
      longest = trial;
  }
  std::vector<LossBand> fan;
  if (longest == nullptr) return fan;
  std::vector<double> losses;
  for (const CurvePoint& point : longest->curve) {
    const auto step = static_cast<double>(point.step);
    losses.clear();
    for (const TrialRow* trial : trials) {
      const std::optional<double> loss = loss_at(trial->curve, step);
      if (!loss) continue;
      losses.push_back(std::isfinite(*loss) ? *loss : std::numeric_limits<double>::infinity());
    }
    std::sort(losses.begin(), losses.end());
    fan.push_back({step, losses.front(), quantile(losses, 0.25), quantile(losses, 0.5),
                   quantile(losses, 0.75), losses.back(), static_cast<int>(losses.size())});
  }
  return fan;
}

std::vector<FirstLayer> first_layers_of(const std::vector<const TrialRow*>& trials) {
  std::map<std::pair<std::string, std::string>, std::pair<FirstLayer, std::vector<double>>> found;
  for (const TrialRow* trial : trials) {
    if (!trial->first_bad) continue;
    auto& [layer, steps] = found[{trial->first_bad->layer, trial->first_bad->role}];
    layer.layer = trial->first_bad->layer;
    layer.role = trial->first_bad->role;
    ++layer.trials;
    layer.failing += trial->fails ? 1 : 0;
    steps.push_back(static_cast<double>(trial->first_bad->step));
  }
  std::vector<FirstLayer> layers;
  for (auto& [name, entry] : found) {
    entry.first.median_step = *middle(entry.second);
    layers.push_back(std::move(entry.first));
  }
  std::stable_sort(layers.begin(), layers.end(), [](const FirstLayer& a, const FirstLayer& b) {
    return std::pair(a.failing, a.trials) > std::pair(b.failing, b.trials);
  });
  return layers;
}

std::vector<FailReason> reasons_of(const std::vector<const TrialRow*>& trials) {
  std::vector<FailReason> reasons;
  for (const TrialRow* trial : trials) {
    if (!trial->fails) continue;
    const std::string text = fail_reason(*trial);
    const auto known = std::find_if(reasons.begin(), reasons.end(),
                                    [&](const FailReason& each) { return each.text == text; });
    if (known != reasons.end()) {
      ++known->trials;
    } else {
      reasons.push_back({text, 1});
    }
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const FailReason& a, const FailReason& b) { return a.trials > b.trials; });
  return reasons;
}

/// Fills in everything that follows from the group's trials.
void summarize(const StudyView& study, StudyGroup& group) {
  std::vector<const TrialRow*> done;
  for (const int index : group.trials) {
    if (index < 0) continue;
    const TrialRow& trial = study.trials()[static_cast<size_t>(index)];
    ++group.planned;
    group.not_trained += trial.status == TrialStatus::failed ? 1 : 0;
    if (!trial.done()) continue;
    done.push_back(&trial);
    ++group.finished;
    group.failing += trial.fails ? 1 : 0;
    group.ahead += trial.gap < -study.info().tolerance ? 1 : 0;
  }
  group.interval = wilson_interval(group.failing, group.finished);
  group.reasons = reasons_of(done);
  group.fan = fan_of(done);
  group.first_layers = first_layers_of(done);
  const auto median_of = [&](const std::function<double(const TrialRow&)>& value) {
    std::vector<double> values;
    for (const TrialRow* trial : done) {
      if (!std::isnan(value(*trial))) values.push_back(value(*trial));
    }
    return middle(std::move(values));
  };
  group.test_loss = median_of([](const TrialRow& trial) { return trial.test_loss; });
  group.accuracy = median_of([](const TrialRow& trial) { return trial.accuracy; });
  group.bits = median_of([](const TrialRow& trial) { return trial.bits; });
  group.first_bad_step = median_of([](const TrialRow& trial) {
    return trial.first_bad ? static_cast<double>(trial.first_bad->step) : std::nan("");
  });
  group.loss = median_of([](const TrialRow& trial) {
    return std::isfinite(trial.loss) ? trial.loss : std::numeric_limits<double>::infinity();
  });
  std::vector<double> gaps;
  for (const TrialRow* trial : done) {
    if (const std::optional<double> gap = trial_gap(*trial)) gaps.push_back(*gap);
  }
  if (gaps.empty()) return;
  group.least_gap = *std::min_element(gaps.begin(), gaps.end());
  group.worst_gap = *std::max_element(gaps.begin(), gaps.end());
  group.gap = middle(std::move(gaps));
}

/// Finds the groups whose baselines have not learned.
void find_comparable(const StudyView& study, StudyFacts& facts) {
  for (StudyGroup& group : facts.groups) {
    bool learned = false, compared = false;
    for (const int index : group.trials) {
      if (index < 0) continue;
      const TrialRow& trial = study.trials()[static_cast<size_t>(index)];
      const int base = trial.baseline ? index : trial.base.value_or(-1);
      const int of = base < 0 ? -1 : facts.group_of(base);
      if (of < 0) continue;
      compared = true;
      learned = learned || !facts.groups[static_cast<size_t>(of)].ends_where_it_began();
    }
    group.comparable = learned || !compared;
  }
}

void find_front(StudyFacts& facts) {
  const auto candidate = [](const StudyGroup& group) {
    return group.comparable && group.finished > 0 && group.failing == 0 && group.bits &&
           group.gap && std::isfinite(*group.gap);
  };
  for (StudyGroup& group : facts.groups) {
    group.on_front =
        candidate(group) &&
        std::none_of(facts.groups.begin(), facts.groups.end(), [&](const StudyGroup& other) {
          return candidate(other) && *other.bits <= *group.bits && *other.gap <= *group.gap &&
                 (*other.bits < *group.bits || *other.gap < *group.gap);
        });
  }
  for (size_t i = 0; i < facts.groups.size(); ++i) {
    const StudyGroup& group = facts.groups[i];
    if (group.baseline || !group.comparable || group.finished == 0 || group.failing > 0) continue;
    if (!group.bits) continue;
    const bool cheaper =
        facts.cheapest < 0 || *group.bits < *facts.groups[static_cast<size_t>(facts.cheapest)].bits;
    if (cheaper) facts.cheapest = static_cast<int>(i);
  }
}

/// Puts each trial into one group and column.
void group_trials(const StudyView& study, StudyFacts& facts) {
  using Places = std::vector<int>;
  std::map<std::tuple<bool, Places, int>, size_t> known;
  // Trials of which even the seed is the same: each has a group for itself.
  std::map<std::tuple<bool, Places, size_t>, int> copies;
  const std::span<const TrialRow> trials = study.trials();
  for (size_t i = 0; i < trials.size(); ++i) {
    const bool baseline = trials[i].baseline;
    Places places = trials[i].places;
    size_t column = 0;
    if (facts.seed_axis >= 0) {
      int& place = places[static_cast<size_t>(facts.seed_axis)];
      column = static_cast<size_t>(std::max(std::exchange(place, -1), 0));
    }
    const int copy = copies[{baseline, places, column}]++;
    const auto [entry, is_new] = known.try_emplace({baseline, places, copy}, facts.groups.size());
    if (is_new) {
      StudyGroup group;
      group.baseline = baseline;
      group.places = std::move(places);
      group.trials.assign(facts.columns.size(), -1);
      facts.groups.push_back(std::move(group));
    }
    facts.groups[entry->second].trials[column] = static_cast<int>(i);
  }
  std::stable_partition(facts.groups.begin(), facts.groups.end(),
                        [](const StudyGroup& group) { return group.baseline; });
}

}  // namespace

double StudyGroup::failing_share() const noexcept {
  if (finished == 0) return std::nan("");
  return static_cast<double>(failing) / static_cast<double>(finished);
}

bool StudyGroup::ends_where_it_began() const noexcept {
  if (fan.size() < 2 || !loss) return false;
  const double first = fan.front().median;
  return std::isfinite(first) && std::isfinite(*loss) &&
         std::fabs(first - *loss) <= kLearnedPart * std::fabs(first);
}

bool StudyGroup::may_be_noise(const StudyView& study) const {
  if (baseline || failing == 0 || 2 * ahead < failing) return false;
  return std::none_of(trials.begin(), trials.end(), [&](int index) {
    if (index < 0) return false;
    const TrialRow& trial = study.trials()[static_cast<size_t>(index)];
    return trial.fails && (!std::isfinite(trial.loss) || !trial.error.empty());
  });
}

int StudyFacts::group_of(int trial) const noexcept {
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::vector<int>& all = groups[i].trials;
    if (std::find(all.begin(), all.end(), trial) != all.end()) return static_cast<int>(i);
  }
  return -1;
}

std::optional<double> trial_gap(const TrialRow& trial) {
  if (!trial.done()) return std::nullopt;
  if (!std::isfinite(trial.loss)) return std::numeric_limits<double>::infinity();
  if (trial.baseline) return 0.0;
  return std::isnan(trial.gap) ? std::nullopt : std::optional(trial.gap);
}

std::vector<StudyGroup> plan_groups(const StudyView& study) {
  const std::optional<size_t> axis = study.find_axis("plan");
  const size_t plans = axis ? study.axes()[*axis].values.size() : 0;
  std::vector<StudyGroup> groups(1 + plans);
  groups[0].name = study.info().baseline;
  groups[0].baseline = true;
  for (size_t plan = 0; plan < plans; ++plan)
    groups[1 + plan].name = study.axes()[*axis].values[plan];
  for (const TrialRow& trial : study.trials()) {
    const int place = trial.baseline || !axis ? -1 : trial.places[*axis];
    if (trial.baseline || place >= 0)
      groups[static_cast<size_t>(1 + place)].trials.push_back(trial.trial);
  }
  if (groups[0].trials.empty()) groups.erase(groups.begin());
  for (StudyGroup& group : groups) summarize(study, group);
  return groups;
}

StudyFacts make_study_facts(const StudyView& study) {
  StudyFacts facts;
  if (const std::optional<size_t> axis = study.find_axis("seed")) {
    facts.seed_axis = static_cast<int>(*axis);
    facts.columns = study.axes()[*axis].values;
  }
  if (facts.columns.empty()) facts.columns = {""};
  group_trials(study, facts);
  for (StudyGroup& group : facts.groups) {
    summarize(study, group);
    facts.planned += group.planned;
    facts.finished += group.finished;
    facts.failing += group.failing;
    facts.not_trained += group.not_trained;
  }
  find_comparable(study, facts);
  find_front(facts);
  study_words::add_names(study, facts);
  facts.verdict = study_words::judge(study, facts);
  return facts;
}

}  // namespace halfscope
