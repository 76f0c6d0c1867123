// SPDX-License-Identifier: MIT
// A gate against a run, and against an older run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>

#include "analysis/distances.h"
#include "analysis/gate/gate.h"
#include "analysis/rules/lane_facts.h"
#include "analysis/rules/text.h"
#include "analysis/run_rates.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/plan/plan.h"

namespace halfscope {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
using State = GateCheck::State;

bool matches_lane(const GateRule& rule, const RunView& run, int lane) {
  return rule.lane.empty() ? !is_reference(run, lane) : glob_match(rule.lane, run.lane(lane).name);
}

bool matches_path(const GateRule& rule, const std::string& path) {
  return rule.path.empty() || glob_match(rule.path, path);
}

bool matches_site(const GateRule& rule, const SiteInfo& site) {
  return matches_path(rule, site.path) && (!rule.role || *rule.role == site.role);
}

/// Returns whether a tensor of a lane can have the measure at all. A copy that only this lane
/// makes, such as the input of a layer in a narrower format, has nothing to be compared with.
bool applies(GateMeasure measure, const SiteInfo& site, const RunView& run, int lane) {
  if (measure == GateMeasure::lost_updates) return site.role == Role::update;
  if (measure != GateMeasure::ulps && measure != GateMeasure::error) return true;
  if (site.phase == Phase::update) return false;
  const int reference = reference_lane(run, lane);
  return reference < 0 || run.find_site(reference, site.name()).has_value();
}

/// The largest distances of each tensor of a lane from its reference; NaN where none is measured.
struct Distances {
  std::vector<double> ulps, error;
};

Distances distances_of(const RunView& run, int lane) {
  const size_t sites = run.lane(lane).sites.size();
  Distances all{std::vector<double>(sites, kUnknown), std::vector<double>(sites, kUnknown)};
  const int reference = reference_lane(run, lane);
  for (const SiteError& error : run.errors(lane)) {
    if (error.other_lane != reference) continue;
    // NaN and infinity in one lane only are in neither measure of the run file.
    const bool apart = not_finite_in_one(run, lane, error) > 0;
    const auto raise = [apart](double& most, double value) {
      most = apart ? std::numeric_limits<double>::infinity() : std::fmax(most, value);
    };
    raise(all.ulps[static_cast<size_t>(error.site)], error.max_ulps);
    raise(all.error[static_cast<size_t>(error.site)], error.total);
  }
  return all;
}

/// Returns a share as a percentage, with as many digits as tell it from another one.
std::string share_text(double share, double other) {
  if (share == other || percent(share) != percent(other)) return percent(share);
  return fmt::format("{:.4f}%", 100.0 * share);
}

/// Returns a score and how far it fell as people write them: the area as a number, the others as
/// percentages and points.
std::string score_text(GateMeasure measure, double score, double other) {
  if (measure != GateMeasure::auc_drop) return share_text(score, other);
  const bool alike = score != other && area_text(score) == area_text(other);
  return alike ? fmt::format("{:.6f}", score) : area_text(score);
}

/// Returns the number that people write for a drop: the area as it is, the others in points.
double shown_drop(GateMeasure measure, double drop) {
  return measure == GateMeasure::auc_drop ? drop : 100.0 * drop;
}
std::string drop_text(GateMeasure measure, double drop) {
  const char* const unit = measure == GateMeasure::auc_drop ? "" : " points";
  return short_number(shown_drop(measure, drop)) + unit + " less";
}

/// Returns the value of a limit that is not about findings, as its check writes it.
std::string value_text(std::string_view of, double value) {
  if (of == measure_name(GateMeasure::ulps)) return short_number(value) + " ulps";
  for (const GateMeasure measure :
       {GateMeasure::accuracy_drop, GateMeasure::auc_drop, GateMeasure::mean_iou_drop}) {
    if (of == measure_name(measure)) return drop_text(measure, value);
  }
  return percent(value);
}

/// Checks one lane of a run.
class LaneGate {
 public:
  LaneGate(const RunView& run, int lane, std::span<const Finding> findings, GateResult& result)
      : run_(run),
        lane_(lane),
        info_(run.lane(lane)),
        findings_(findings),
        distances_(distances_of(run, lane)),
        result_(result) {}

  void check(size_t index) {
    index_ = index;
    const GateRule& rule = result_.gate.rules[index];
    check_complete();
    for (const auto& [measure, limit] : rule.limits) {
      if (measure == GateMeasure::skipped_steps) check_skipped(limit);
      if (measure == GateMeasure::accuracy_drop)
        check_score(measure, quality_name(run_.info()), &EvalRow::accuracy, limit);
      if (measure == GateMeasure::auc_drop) check_score(measure, "AUC", &EvalRow::auc, limit);
      if (measure == GateMeasure::mean_iou_drop)
        check_score(measure, "mIoU", &EvalRow::mean_iou, limit);
      if (is_of_lane(measure)) continue;
      for (const SiteInfo& site : info_.sites) {
        if (matches_site(rule, site) && applies(measure, site, run_, lane_)) {
          check_site(site, measure, limit);
        }
      }
    }
    if (rule.judges_findings()) check_findings(rule);
  }

 private:
  GateCheck& add(std::string of) {
    GateCheck& check = result_.checks.emplace_back();
    check.rule = index_;
    check.lane = lane_;
    check.of = std::move(of);
    return check;
  }

  void not_measured(GateCheck& check, const std::string& why) {
    check.value = kUnknown;
    check.state = result_.gate.missing_passes ? State::not_measured : State::failed;
    check.text = check.of + " is not measured: " + why;
  }

  /// Steps that are missing at the end of a run were not measured either.
  void check_complete() {
    std::string why;
    if (run_.status() == RunStatus::running) why = "the run is still growing";
    if (run_.status() == RunStatus::died) why = "the program died before the run was complete";
    if (run_.lost(lane_)) {
      why = fmt::format("the lane failed at step {}: {}", run_.lost(lane_)->step,
                        run_.lost(lane_)->why);
    }
    if (!why.empty()) not_measured(add("the end of the run"), why);
  }

  void judge(GateCheck& check, double value, double limit, const std::string& text) {
    check.value = value;
    check.limit = limit;
    if (value <= limit) return;
    check.state = State::failed;
    check.text = text;
  }

  void check_skipped(double limit) {
    GateCheck& check = add(measure_name(GateMeasure::skipped_steps));
    check.limit = limit;
    const std::span<const StepRow> rows = run_.steps(lane_);
    if (run_.info().inference) return not_measured(check, "the run only runs forward");
    if (rows.empty()) return not_measured(check, "the run has no steps");
    const int64_t skipped =
        std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.skipped; });
    const double share = share_of(skipped, static_cast<int64_t>(rows.size()));
    judge(check, share, limit,
          fmt::format("{} of {} steps are skipped: {} (limit {})", skipped, rows.size(),
                      percent(share), percent(limit)));
  }

  /// Compares the last evaluations, which must be of the same step.
  void check_score(GateMeasure measure, const char* name, double EvalRow::*score, double limit) {
    GateCheck& check = add(measure_name(measure));
    check.limit = limit;
    const int reference = reference_lane(run_, lane_);
    if (is_reference(run_, lane_)) return not_measured(check, "the lane is the reference");
    if (reference < 0) return not_measured(check, "the run has no reference");
    const std::span<const EvalRow> own = run_.evals(lane_), theirs = run_.evals(reference);
    if (own.empty() || theirs.empty() || own.back().step != theirs.back().step) {
      return not_measured(check, "the run has not evaluated the lane and its reference");
    }
    const double here = own.back().*score, there = theirs.back().*score;
    const std::string& other = run_.lane(reference).name;
    if (!std::isfinite(there)) return not_measured(check, other + " has no " + name);
    if (!std::isfinite(here)) {
      // Both were evaluated on the same samples, so this lane's results are to blame.
      check.state = State::failed;
      check.text = fmt::format("no {}, because results are NaN or infinite; {} has {}", name, other,
                               score_text(measure, there, there));
      return;
    }
    // Rounded: differences of shares are not exact.
    const double drop = there - here;
    const double points = std::max(std::round(1e9 * drop) * 1e-9, 0.0);
    judge(check, points, limit,
          fmt::format("{} {} instead of {} in {}: {} (limit {})", name,
                      score_text(measure, here, there), score_text(measure, there, here), other,
                      drop_text(measure, points), short_number(shown_drop(measure, limit))));
  }

  void check_site(const SiteInfo& site, GateMeasure measure, double limit) {
    GateCheck& check = add(measure_name(measure));
    check.layer = site.path;
    check.site = site.name();
    check.limit = limit;
    const size_t order = static_cast<size_t>(site.order);
    if (measure == GateMeasure::ulps || measure == GateMeasure::error) {
      const bool ulps = measure == GateMeasure::ulps;
      const int reference = reference_lane(run_, lane_);
      const double value = (ulps ? distances_.ulps : distances_.error)[order];
      if (reference < 0) return not_measured(check, "the run has no reference");
      if (std::isnan(value)) {
        return not_measured(check, "the tensor was never compared with the reference");
      }
      const std::string& name = run_.lane(reference).name;
      if (std::isinf(value)) {
        return judge(check, value, limit, "infinitely far from " + name + " in some element");
      }
      return judge(check, value, limit,
                   ulps ? fmt::format("{} ulps from {} (limit {})", short_number(value), name,
                                      short_number(limit))
                        : fmt::format("differs from {} by {} (limit {})", name,
                                      difference_by(value), percent(limit)));
    }
    if (run_.total(lane_, site.order).n == 0) {
      return not_measured(check, "the tensor has no statistics");
    }
    const Rates rates = run_rates(run_, lane_, site.order);
    const auto share = [&](double value, const char* of_what, const char* what) {
      judge(check, value, limit,
            fmt::format("{} {} {} (limit {})", percent(value), of_what, what, percent(limit)));
    };
    if (measure == GateMeasure::overflow) share(rates.overflow, kOfAllValues, "overflow");
    if (measure == GateMeasure::underflow) share(rates.underflow, kOfNonZeroValues, "underflow");
    if (measure == GateMeasure::lost_updates) share(rates.lost, kOfNonZeroUpdates, "are lost");
    const bool hidden = measures_after_rounding(info_.backend) && site.phase != Phase::update;
    if (hidden && check.state == State::passed) {
      not_measured(check, "the backend " + info_.backend + " may round before it measures");
    }
  }

  void check_findings(const GateRule& rule) {
    const size_t before = result_.checks.size();
    for (const Finding& finding : findings_) {
      if (finding.lane != lane_ || finding.severity < *rule.fail_on) continue;
      const std::vector<std::string>& ids = rule.findings;
      if (!ids.empty() && std::find(ids.begin(), ids.end(), finding.rule) == ids.end()) continue;
      if (!rule.path.empty() && !matches_path(rule, finding.layer)) continue;
      if (rule.role) {
        const std::optional<int> site = run_.find_site(lane_, finding.site);
        if (!site || info_.sites[static_cast<size_t>(*site)].role != *rule.role) continue;
      }
      GateCheck& check = add(finding.rule);
      check.finding = true;
      check.layer = finding.layer;
      check.site = finding.site;
      check.severity = finding.severity;
      check.state = State::failed;
      check.text = fmt::format("{}: {}", severity_name(finding.severity), finding.text);
    }
    if (result_.checks.size() == before) add("findings").finding = true;
  }

  const RunView& run_;
  int lane_;
  const LaneInfo& info_;
  std::span<const Finding> findings_;
  Distances distances_;
  GateResult& result_;
  size_t index_ = 0;
};

[[noreturn]] void throw_matches_nothing(const GateRule& rule, const std::string& why,
                                        const std::string& hint) {
  throw usage_error(fmt::format("gate: \"{}\" matches nothing: {}", rule.name, why), hint);
}

/// Throws Error (usage) if the rule selects no tensor of the run that any of its limits is about.
void check_matches(const GateRule& rule, const RunView& run) {
  std::vector<std::string> lanes, paths;
  bool lane_matches = false, path_matches = false, site_matches = false;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    lanes.push_back(run.lane(lane).name);
    if (!matches_lane(rule, run, lane)) continue;
    lane_matches = true;
    for (const SiteInfo& site : run.lane(lane).sites) {
      if (paths.empty() || paths.back() != site.path) paths.push_back(site.path);
      path_matches = path_matches || matches_path(rule, site.path);
      if (!matches_site(rule, site)) continue;
      site_matches = site_matches || rule.judges_findings();
      for (const auto& [measure, limit] : rule.limits) {
        site_matches = site_matches || applies(measure, site, run, lane);
      }
    }
  }
  if (!lane_matches) {
    const std::string known = "lanes: " + comma_list(lanes);
    if (rule.lane.empty()) {
      throw_matches_nothing(rule, "the run has only reference lanes",
                            "name one with \"lane\"; " + known);
    }
    throw_matches_nothing(rule, "the run has no lane \"" + rule.lane + "\"",
                          did_you_mean(rule.lane, lanes, known));
  }
  if (!path_matches && !rule.path.empty()) {
    throw_matches_nothing(rule, "no layer is called \"" + rule.path + "\"",
                          did_you_mean(rule.path, paths, "list the layers with --csv -"));
  }
  // A limit on a whole lane, or on its findings, needs no tensor.
  const bool of_lane = std::any_of(rule.limits.begin(), rule.limits.end(),
                                   [](const auto& limit) { return is_of_lane(limit.first); }) ||
                       (rule.judges_findings() && rule.path.empty() && !rule.role);
  if (!site_matches && !of_lane) {
    throw_matches_nothing(
        rule, "its layers have no such tensor",
        rule.role
            ? fmt::format("choose another role than {}, or another path", role_name(*rule.role))
            : "remove the limits that do not apply, or choose another path");
  }
}

GateResult check_all(const Gate& gate, const RunView& run, std::span<const Finding> findings) {
  GateResult result;
  result.gate = gate;
  result.version = run.info().version;
  for (int lane = 0; lane < run.lane_count(); ++lane) result.lanes.push_back(run.lane(lane).name);
  std::vector<LaneGate> lanes;
  lanes.reserve(result.lanes.size());
  for (int lane = 0; lane < run.lane_count(); ++lane)
    lanes.emplace_back(run, lane, findings, result);
  for (size_t rule = 0; rule < gate.rules.size(); ++rule) {
    for (int lane = 0; lane < run.lane_count(); ++lane) {
      if (matches_lane(gate.rules[rule], run, lane)) lanes[static_cast<size_t>(lane)].check(rule);
    }
  }
  return result;
}

using Key = std::tuple<size_t, std::string, std::string, std::string>;
Key key_of(const GateResult& result, const GateCheck& check) {
  return {check.rule, result.lane_of(check), check.site, check.of};
}

/// Returns whether a violation is no worse than the older one.
bool no_worse(const GateCheck& now, const GateCheck& before, double tolerance) {
  if (now.finding) return now.severity <= before.severity;
  if (!now.measured() || !before.measured()) return now.measured() == before.measured();
  return now.value <= before.value * (1.0 + tolerance);
}

}  // namespace

const char* state_name(GateCheck::State state) noexcept {
  switch (state) {
    case State::passed:
      return "passed";
    case State::not_measured:
      return "not_measured";
    case State::known:
      return "known";
    case State::failed:
      return "failed";
  }
  return "";
}

int64_t GateResult::count(GateCheck::State state) const noexcept {
  return std::count_if(checks.begin(), checks.end(),
                       [state](const GateCheck& check) { return check.state == state; });
}

GateResult check_gate(const Gate& gate, const RunView& run, std::span<const Finding> findings) {
  for (const GateRule& rule : gate.rules) check_matches(rule, run);
  return check_all(gate, run, findings);
}

void compare_with_baseline(GateResult& result, const RunView& baseline,
                           std::span<const Finding> findings) {
  const GateResult old = check_all(result.gate, baseline, findings);
  std::map<Key, const GateCheck*> before;
  for (const GateCheck& check : old.checks) {
    const GateCheck*& worst = before[key_of(old, check)];
    if (worst == nullptr || check.severity > worst->severity) worst = &check;
  }
  for (GateCheck& check : result.checks) {
    const auto found = before.find(key_of(result, check));
    if (found == before.end()) continue;
    const GateCheck& then = *found->second;
    if (!check.finding && then.measured()) check.before = then.value;
    if (check.state != State::failed) continue;
    if (then.state == State::failed && no_worse(check, then, result.gate.tolerance)) {
      check.state = State::known;
    } else if (check.before && check.measured()) {
      check.text += fmt::format("; {} in the baseline", value_text(check.of, *check.before));
    }
  }
}

}  // namespace halfscope
