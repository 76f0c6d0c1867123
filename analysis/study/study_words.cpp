// SPDX-License-Identifier: MIT
#include "analysis/study/study_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// Returns why a rule fires, in half a sentence: "conv2 overflows". Returns "" for rules that do
/// not know why.
std::string cause_text(const std::string& rule_id, const std::string& layer) {
  Finding finding;
  finding.rule = rule_id;
  const Rule* rule = rule_of(finding);
  if (rule == nullptr || rule->mechanism == Mechanism::unknown) return "";
  // Short texts that begin with the layer, for the mechanisms that have one.
  constexpr std::pair<Mechanism, const char*> kShort[] = {
      {Mechanism::forward_overflow, "{} overflows"},
      {Mechanism::gradient_overflow, "gradients of {} overflow"},
      {Mechanism::forward_flush, "outputs of {} underflow"},
      {Mechanism::gradient_flush, "gradients of {} underflow"},
      {Mechanism::stalled_sum, "sums in {} stop growing"},
      {Mechanism::lost_update, "updates of {} are lost"},
      {Mechanism::flushed_state, "the optimizer state of {} underflows"},
      {Mechanism::state_overflow, "the optimizer state of {} overflows"}};
  for (const auto& [mechanism, text] : kShort) {
    if (mechanism == rule->mechanism && !layer.empty()) {
      return fmt::format(fmt::runtime(text), layer);
    }
  }
  const std::string text = mechanism_text(rule->mechanism);
  return layer.empty() ? text : fmt::format("in {}, {}", layer, text);
}

/// Returns "conv2 (activation)".
std::string place_text(const FirstBad& bad) {
  return bad.role.empty() ? bad.layer : fmt::format("{} ({})", bad.layer, bad.role);
}

/// Returns " because conv2 overflows", or ", in 3 of them because conv2 overflows" if the other
/// trials fail for other reasons.
std::string because(const StudyFacts& facts, const StudyGroup& group) {
  const FailReason& first = group.reasons.front();
  if (first.trials == group.failing) return " because " + first.text;
  return fmt::format(", in {} because {}",
                     first.trials == 1 ? fmt::format("one {}", facts.unit())
                                       : fmt::format("{} of them", first.trials),
                     first.text);
}

std::string fails_in(const StudyFacts& facts, const StudyGroup& group) {
  return fmt::format("{} fails in {}", group.name,
                     seeds_text(facts, group.failing, group.finished));
}

/// Returns how large the failure rate of a group without failures may still be.
std::string hidden_rate_text(const StudyFacts& facts, const StudyGroup& group) {
  return fmt::format("0 failures in {} still allow a failure rate of up to {} (95% confidence).",
                     counted(group.finished, facts.unit()), percent(group.interval.high));
}

using Groups = std::vector<const StudyGroup*>;

/// Returns whether all failing trials of the groups have the same reason.
bool have_one_reason(const Groups& failing) {
  return std::all_of(failing.begin(), failing.end(), [&](const StudyGroup* group) {
    return group->reasons.size() == 1 && group->reasons[0].text == failing[0]->reasons[0].text;
  });
}

/// Returns "loss scale none".
std::string setting_text(const StudyAxis& axis, const std::string& value) {
  std::string name = axis.name;
  std::replace(name.begin(), name.end(), '_', ' ');
  return name + " " + value;
}

/// Returns the settings that all failing groups have and not all others, as ", all of them with
/// lr 2"; "" if there are none.
std::string common_settings(const StudyView& study, const StudyFacts& facts, const Groups& failing,
                            const Groups& safe) {
  std::vector<std::string> common;
  for (size_t axis = 0; axis < study.axes().size(); ++axis) {
    if (static_cast<int>(axis) == facts.seed_axis) continue;
    const int place = failing.front()->places[axis];
    const auto has_it = [&](const StudyGroup* group) { return group->places[axis] == place; };
    if (place < 0 || !std::all_of(failing.begin(), failing.end(), has_it)) continue;
    if (std::all_of(safe.begin(), safe.end(), has_it)) continue;
    const StudyAxis& of = study.axes()[axis];
    common.push_back(setting_text(of, of.values[static_cast<size_t>(place)]));
  }
  return common.empty() ? "" : ", all of them with " + name_list(common);
}

/// Returns which of many failing groups fail most often.
std::string worst_sentence(const StudyFacts& facts, const Groups& failing) {
  const StudyGroup& worst = *failing.front();
  Groups equal;
  for (const StudyGroup* group : failing) {
    const bool as_often = group->failing == worst.failing && group->finished == worst.finished;
    if (as_often) equal.push_back(group);
  }
  const std::string seeds = seeds_text(facts, worst.failing, worst.finished);
  if (equal.size() == 1) {
    return fmt::format("{} fails most often: in {}{}.", worst.name, seeds, because(facts, worst));
  }
  const std::string why = have_one_reason(equal) ? because(facts, worst) : "";
  return equal.size() == failing.size()
             ? fmt::format("Each of them fails in {}{}.", seeds, why)
             : fmt::format("{} of them fail most often: in {}{}.", equal.size(), seeds, why);
}

/// Returns the first sentence: what fails how often, and why.
std::string failing_sentence(const StudyView& study, const StudyFacts& facts, const Groups& failing,
                             const Groups& safe) {
  if (failing.size() == 1) {
    return fails_in(facts, *failing[0]) + because(facts, *failing[0]) + ".";
  }
  if (failing.size() == 2) {
    const std::string& name = failing[1]->name;
    const std::string second = seeds_text(facts, failing[1]->failing, failing[1]->finished);
    return fmt::format("{} and {} in {}{}.", fails_in(facts, *failing[0]), name, second,
                       have_one_reason(failing) ? because(facts, *failing[0]) : "");
  }
  return fmt::format("{} of {} {}s fail in some {}s{}. {}", failing.size(),
                     failing.size() + safe.size(), facts.noun, facts.unit(),
                     common_settings(study, facts, failing, safe), worst_sentence(facts, failing));
}

/// Returns the second sentence: which groups never failed, or the cheapest of them.
std::string safe_sentence(const StudyFacts& facts, const Groups& safe, bool any_fails) {
  if (safe.empty()) return fmt::format("No {} is safe.", facts.noun);
  if (facts.cheapest < 0) {
    std::vector<std::string> names;
    for (const StudyGroup* group : safe) names.push_back(group->name);
    return any_fails ? name_list(names) + " never failed." : "";
  }
  const StudyGroup& best = facts.groups[static_cast<size_t>(facts.cheapest)];
  if (safe.size() == 1) return any_fails ? fmt::format("Only {} never failed.", best.name) : "";
  std::vector<std::string> as_cheap;
  for (const StudyGroup* group : safe) {
    if (group != &best && group->comparable && group->bits == best.bits) {
      as_cheap.push_back(group->name);
    }
  }
  const std::string others = as_cheap.empty() ? ""
                             : as_cheap.size() == 1
                                 ? fmt::format("; {} is as cheap", as_cheap[0])
                                 : fmt::format("; {} others are as cheap", as_cheap.size());
  return any_fails ? fmt::format("The cheapest {} that never failed is {}{}.", facts.noun,
                                 best.name, others)
                   : fmt::format("The cheapest {} is {}{}.", facts.noun, best.name, others);
}

std::string joined(std::initializer_list<std::string> sentences) {
  std::string text;
  for (const std::string& each : sentences) {
    if (each.empty()) continue;
    if (!text.empty()) text += ' ';
    text += each;
  }
  return text;
}

/// Returns why trials could not be trained; "" if all could.
std::string not_trained_text(const StudyView& study, const StudyFacts& facts) {
  if (facts.not_trained == 0) return "";
  std::map<std::string, int> errors;
  for (const TrialRow& trial : study.trials()) {
    if (trial.status == TrialStatus::failed) ++errors[trial.error];
  }
  const auto most =
      std::max_element(errors.begin(), errors.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = counted(facts.not_trained, "trial") + " could not be trained";
  if (most->first.empty()) return text + ".";
  if (most->second < facts.not_trained) text += fmt::format(", {} of them", most->second);
  return fmt::format("{}: {}.", text, most->first);
}

/// Returns what baselines that fail mean for the rest; "" if none fails.
std::string baseline_text(const StudyFacts& facts) {
  int failing = 0, finished = 0;
  for (const StudyGroup& group : facts.groups) {
    if (!group.baseline) continue;
    failing += group.failing;
    finished += group.finished;
  }
  if (failing == 0) return "";
  return fmt::format("The baseline itself fails in {}: precision is not the only problem.",
                     seeds_text(facts, failing, finished));
}

/// Returns which baselines end with about the loss that they began with, so that gaps to them say
/// nothing; "" if all have learned.
std::string unlearned_text(const StudyFacts& facts) {
  std::vector<std::string> names;
  std::string change;
  for (const StudyGroup& group : facts.groups) {
    if (!group.baseline || !group.ends_where_it_began()) continue;
    names.push_back(group.name);
    change = fmt::format("its loss goes from {} to {}", short_number(group.fan.front().median),
                         short_number(*group.loss));
  }
  if (names.empty()) return "";
  return fmt::format("{} {} not learn: {}. Fix that before comparing formats.", name_list(names, 3),
                     names.size() == 1 ? "does" : "do",
                     names.size() == 1 ? change : "their losses end where they began");
}

/// Returns which groups fail in some trials but end as far below the baseline in others, so that
/// both may be noise; "" if none does.
std::string noise_text(const StudyView& study, const StudyFacts& facts) {
  std::vector<std::string> names;
  for (const StudyGroup& group : facts.groups) {
    if (!group.may_be_noise(study)) continue;
    names.push_back(
        fmt::format("{} in {}", group.name, seeds_text(facts, group.ahead, group.finished)));
  }
  if (names.empty()) return "";
  return fmt::format(
      "Some losses also end more than {} below the baseline's: {}. These gaps may "
      "be the noise of training, so train longer or raise the tolerance.",
      percent(study.info().tolerance), name_list(names));
}

/// Returns, by group of baselines and by axis, the places of the group and of the trials that are
/// compared with it.
std::map<size_t, std::vector<std::set<int>>> places_compared(const StudyView& study,
                                                             const StudyFacts& facts) {
  std::map<int, size_t> group_of;
  std::map<size_t, std::vector<std::set<int>>> places;
  const auto add = [&](size_t group, const std::vector<int>& more) {
    auto& axes = places[group];
    axes.resize(more.size());
    for (size_t axis = 0; axis < more.size(); ++axis) axes[axis].insert(more[axis]);
  };
  for (size_t group = 0; group < facts.groups.size(); ++group) {
    if (!facts.groups[group].baseline) continue;
    add(group, facts.groups[group].places);
    for (const int trial : facts.groups[group].trials) group_of[trial] = group;
  }
  for (const TrialRow& trial : study.trials()) {
    if (!trial.base) continue;
    const auto base = group_of.find(*trial.base);
    if (base != group_of.end()) add(base->second, trial.places);
  }
  return places;
}

/// Returns these values of an axis: "tree:format=bf16 and tree:format=fp16".
std::string axis_values_text(const StudyAxis& axis, const std::set<int>& places) {
  std::vector<std::string> values;
  for (const int place : places) {
    if (place >= 0) values.push_back(axis.values[static_cast<size_t>(place)]);
  }
  return name_list(values, 3);
}

}  // namespace

std::string seeds_text(const StudyFacts& facts, int part, int whole) {
  return fmt::format("{} of {}", part, counted(whole, facts.unit()));
}

std::string fail_reason(const TrialRow& trial) {
  if (std::string text = cause_text(trial.cause, trial.cause_layer); !text.empty()) return text;
  if (!trial.error.empty()) return trial.why;
  // An overflow that no rule reports may be harmless. It explains a loss that is not finite, but
  // not one that is only too high.
  const bool explains = !trial.cause.empty() || !std::isfinite(trial.loss);
  if (trial.first_bad && explains) {
    return place_text(*trial.first_bad) + " is the first to overflow or to become NaN" +
           (2 * trial.skipped > trial.steps ? ", and most steps are skipped" : "");
  }
  if (std::isfinite(trial.loss)) return "its loss ends above the baseline's";
  return "its loss is not finite";
}

std::string study_gap_text(const std::optional<double>& gap) {
  if (!gap) return "-";
  if (!std::isfinite(*gap)) return "not finite";
  const std::string size = percent(std::fabs(*gap));
  if (size == "0%") return size;
  if (size.starts_with("< ")) return "within " + size.substr(2);
  return (*gap < 0.0 ? "-" : "+") + size;
}

const char* trial_word(const TrialRow& trial) noexcept {
  switch (trial.status) {
    case TrialStatus::waiting:
      return "waiting";
    case TrialStatus::failed:
      return "not trained";
    case TrialStatus::done:
      return trial.fails ? "fails" : "ok";
  }
  return "";
}

std::string trial_name(const StudyView& study, const StudyFacts& facts, const TrialRow& trial) {
  const int group = facts.group_of(trial.trial);
  const std::string name = group < 0 ? "" : facts.groups[static_cast<size_t>(group)].name;
  if (facts.seed_axis < 0) return name;
  const std::string seed = study.value(trial, static_cast<size_t>(facts.seed_axis));
  return seed.empty() ? name : fmt::format("{}, seed {}", name, seed);
}

namespace study_words {

void add_names(const StudyView& study, StudyFacts& facts) {
  std::vector<size_t> varying;
  bool plan_varies = false;
  for (size_t axis = 0; axis < study.axes().size(); ++axis) {
    if (static_cast<int>(axis) == facts.seed_axis || study.axes()[axis].values.size() < 2) continue;
    const bool is_plan = study.axes()[axis].name == "plan";
    plan_varies = plan_varies || is_plan;
    if (!is_plan) varying.push_back(axis);
  }
  facts.noun = varying.empty() ? "plan" : "combination";
  // Several values of an axis may share a baseline, which is then named after all of them.
  const auto compared = places_compared(study, facts);
  std::vector<std::string> plans;
  for (size_t i = 0; i < facts.groups.size(); ++i) {
    StudyGroup& group = facts.groups[i];
    const auto first = std::find_if(group.trials.begin(), group.trials.end(),
                                    [](int trial) { return trial >= 0; });
    const TrialRow& trial = study.trials()[static_cast<size_t>(*first)];
    std::string name = study.plan(trial);
    if (!name.empty() && std::find(plans.begin(), plans.end(), name) == plans.end()) {
      plans.push_back(name);
    }
    // With one plan in all groups its name would only be repeated.
    if (!plan_varies && !varying.empty() && !group.baseline) name.clear();
    std::vector<std::string> settings;
    for (const size_t axis : varying) {
      if (group.places[axis] < 0) continue;
      const auto others = compared.find(i);
      settings.push_back(setting_text(
          study.axes()[axis], others == compared.end()
                                  ? study.value(trial, axis)
                                  : axis_values_text(study.axes()[axis], others->second[axis])));
    }
    if (group.baseline) settings.emplace_back("baseline");
    std::string list;
    for (const std::string& each : settings) list += (list.empty() ? "" : ", ") + each;
    // In brackets, because names are parts of sentences and of lists.
    group.name = name.empty()       ? settings.empty() ? "all trials" : list
                 : settings.empty() ? name
                                    : fmt::format("{} ({})", name, list);
  }
  facts.title = study.info().name.empty() ? name_list(plans, 4) : study.info().name;
}

std::string reasons_text(const StudyGroup& group) {
  std::string text;
  for (const FailReason& reason : group.reasons) {
    if (!text.empty()) text += ", ";
    text += group.reasons.size() == 1 ? reason.text
                                      : fmt::format("{} ({})", reason.text, reason.trials);
  }
  return text;
}

std::string progress_text(const StudyFacts& facts) {
  if (facts.waiting() == 0) return "";
  return fmt::format("{} of {} finished.", facts.finished, counted(facts.planned, "trial"));
}

std::string share_text(const StudyGroup& group) {
  if (group.finished == 0) return "-";
  return fmt::format("{} ({} to {})", percent(group.failing_share()), percent(group.interval.low),
                     percent(group.interval.high));
}

Verdict judge(const StudyView& study, const StudyFacts& facts) {
  Verdict verdict;
  Groups failing, safe;
  for (const StudyGroup& group : facts.groups) {
    if (group.baseline || group.finished == 0) continue;
    (group.failing > 0 ? failing : safe).push_back(&group);
  }
  std::stable_sort(failing.begin(), failing.end(), [](const StudyGroup* a, const StudyGroup* b) {
    return a->failing_share() > b->failing_share();
  });
  const std::string progress = progress_text(facts);
  const std::string broken = not_trained_text(study, facts);
  const std::string baseline = baseline_text(facts);
  const std::string noise = noise_text(study, facts);
  const std::string unlearned = unlearned_text(facts);
  if (failing.empty() && safe.empty()) {
    verdict.state = Verdict::State::inconclusive;
    verdict.headline = facts.finished > 0   ? "Only baseline trials have finished so far."
                       : facts.planned == 0 ? "This study has no trials."
                       : facts.not_trained > 0 && facts.waiting() == 0
                           ? "No trial could be trained."
                           : "No trial has finished yet.";
    verdict.more = joined({progress, broken, baseline});
  } else if (failing.empty()) {
    // Healthy only after every trial has been trained, and compared with something.
    const bool open = facts.waiting() > 0 || facts.not_trained > 0 || !unlearned.empty();
    verdict.state = open ? Verdict::State::inconclusive : Verdict::State::healthy;
    const char* so_far = facts.waiting() > 0 ? " so far" : "";
    verdict.headline =
        safe.size() == 1
            ? fmt::format("{} fails in {} {}{}.", safe[0]->name,
                          safe[0]->finished == 1 ? "0 of" : "none of",
                          counted(safe[0]->finished, facts.unit()), so_far)
            : joined({fmt::format("No {} fails in any {}{}.", facts.noun, facts.unit(), so_far),
                      safe_sentence(facts, safe, false)});
    const auto least = std::min_element(
        safe.begin(), safe.end(),
        [](const StudyGroup* a, const StudyGroup* b) { return a->finished < b->finished; });
    verdict.more =
        joined({progress, unlearned, hidden_rate_text(facts, **least), broken, baseline});
  } else {
    verdict.state = safe.empty() ? Verdict::State::broken : Verdict::State::attention;
    verdict.headline =
        joined({failing_sentence(study, facts, failing, safe), safe_sentence(facts, safe, true)});
    std::string hidden;
    if (facts.cheapest >= 0) {
      hidden = hidden_rate_text(facts, facts.groups[static_cast<size_t>(facts.cheapest)]);
    }
    std::string reasons;
    if (failing.size() == 2 && !have_one_reason(failing)) {
      reasons = fmt::format("{}: {}. {}: {}.", failing[0]->name, reasons_text(*failing[0]),
                            failing[1]->name, reasons_text(*failing[1]));
    }
    verdict.more = joined({progress, unlearned, reasons, noise, hidden, broken, baseline});
  }
  verdict.text = joined({verdict.headline, verdict.more});
  return verdict;
}

}  // namespace study_words
}  // namespace halfscope
