// SPDX-License-Identifier: MIT
// The actions of a report: each part of the advised plan with its effect, cost and confidence, and
// the same as text for PyTorch.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "analysis/proof/cost.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/lane_facts.h"
#include "analysis/rules/rank_facts.h"
#include "analysis/rules/text.h"

namespace halfscope::report {
namespace {

/// Returns the proof if it is about the action's lane (stored with it, or naming it), else null.
const Proof* proof_of(const Report& report, const ActionReport& action) {
  if (!report.proof) return nullptr;
  const std::string& name = report.lanes[static_cast<size_t>(action.lane)].name;
  const bool its = report.proof_lane == action.lane || report.proof->lane == name;
  return its ? &*report.proof : nullptr;
}

const LaneReport* cure_of(const Report& report, const ActionReport& action) {
  return cure_with(report, action.lane, action.edit.fp32_layers());
}

const Trial* trial_of(const Proof* proof, Trial::Kind kind) {
  if (proof == nullptr) return nullptr;
  for (const Trial& trial : proof->trials) {
    if (trial.kind == kind) return &trial;
  }
  return nullptr;
}

/// Returns what testing the advice has shown; "" if nobody did. A proof beats a lane of this run.
std::string tried(const Report& report, const ActionReport& action) {
  const Proof* proof = proof_of(report, action);
  const Trial* before = trial_of(proof, Trial::Kind::original);
  const Trial* after = trial_of(proof, Trial::Kind::advised);
  if (after != nullptr) {
    const bool runs = report.run.inference;
    const auto is = [runs](const Trial& trial) {
      if (!std::isfinite(trial.gap)) {
        return std::string(runs ? "the outputs are NaN or infinite"
                                : "the loss becomes NaN or infinite");
      }
      return fmt::format("{} from fp32's by {}", runs ? "the outputs differ" : "the loss differs",
                         by_text(trial.gap));
    };
    std::string text = "Tested: with the change, " + is(*after);
    text += fmt::format(" ({} is allowed)", percent(proof->tolerance));
    if (before != nullptr) text += "; without it, " + is(*before);
    return text + ".";
  }
  const LaneReport* cure = cure_of(report, action);
  if (cure == nullptr) return "";
  const LaneReport& lane = *cure;
  std::string text = fmt::format("Tested in this run as {}: ", lane.name);
  if (lane.loss_gap && std::isfinite(*lane.loss_gap)) {
    text += fmt::format("the loss differs from fp32's by {}, and ", by_text(*lane.loss_gap));
  }
  return text + fmt::format("{} of {} {} skipped.", lane.skipped, counted(lane.steps, "step"),
                            lane.skipped == 1 ? "was" : "were");
}

/// Returns "60 steps", or "1 batch" of inference.
std::string length_text(const Report& report, int64_t steps) {
  if (!report.run.inference) return counted(steps, "step");
  return fmt::format("{} batch{}", steps, steps == 1 ? "" : "es");
}

void judge_confidence(const Report& report, ActionReport& action) {
  const LaneReport& lane = report.lanes[static_cast<size_t>(action.lane)];
  const int64_t steps = lane.steps;
  if (lane.lost && action.edit.empty()) {
    action.confidence = "high";
    action.basis = "the backend reported the failure";
    return;
  }
  const LaneReport* cure = cure_of(report, action);
  if (const Proof* proof = proof_of(report, action)) {
    const bool runs = report.run.inference;  // once is enough: there is nothing to drift away
    const bool is_short = !runs && proof->steps < kFewSteps;
    const std::string how = (runs ? "on " : "for ") + length_text(report, proof->steps);
    action.confidence = !proof->holds ? "low" : is_short ? "medium" : "high";
    action.basis = proof->holds ? fmt::format("tested {}, and no part of it can be left out", how)
                                : "it was tested and is not enough";
  } else if (cure != nullptr) {
    action.confidence = cure->steps < kFewSteps ? "medium" : "high";
    action.basis = fmt::format("tested in this run as {}, for {} with one seed", cure->name,
                               counted(cure->steps, "step"));
  } else if (steps < kFewSteps) {
    action.confidence = "low";
    action.basis = fmt::format("not tested yet, and based on only {}", length_text(report, steps));
  } else {
    action.confidence = "medium";
    action.basis = fmt::format("based on {}, not tested yet", length_text(report, steps));
  }
}

/// Returns how far the worst tensor of the action's layers exceeds its format; "" if none does.
std::string overflow_effect(const Report& report, const ActionReport& action) {
  const SiteReport* worst = nullptr;
  for (const LayerReport& layer : report.layers) {
    if (layer.lane != action.lane) continue;
    if (!action.edit.keeps(layer.path)) continue;
    for (const SiteReport& site : layer.sites) {
      if (site.overflow == 0 || !site.max_abs || !site.scale.empty()) continue;  // codes saturate
      if (worst == nullptr || *site.max_abs > *worst->max_abs) worst = &site;
    }
  }
  if (worst == nullptr) return "";
  const int64_t skipped = report.lanes[static_cast<size_t>(action.lane)].skipped;
  std::string text = fmt::format(
      "{} reaches {}, {} times the largest {} value; fp32 has {:.0f} bits of headroom.",
      worst->name, short_number(*worst->max_abs),
      short_number(std::round(10.0 * *worst->max_abs / worst->format.max_finite()) / 10.0),
      format_name(worst->format), std::floor(std::log2(kFp32.max_finite() / *worst->max_abs)));
  if (skipped > 0) {
    if (report.cure == std::nullopt) {
      text += skipped == 1 ? " The skipped step should disappear."
                           : fmt::format(" The {} skipped steps should disappear.", skipped);
    }
  }
  return text;
}

/// Returns the finding's mechanism as the beginning of a sentence. A layer's name stays as it is.
std::string capitalized(const Finding& finding) {
  std::string text = finding.mechanism;
  if (!finding.layer.empty() && text.starts_with(finding.layer)) return text;
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

/// Returns what the finding that asks for the action has seen, for where nothing overflows in the
/// forward pass.
std::string reason(const Report& report, const ActionReport& action) {
  for (const Finding& finding : report.findings) {
    if (finding.lane != action.lane || finding.severity < Severity::warning) continue;
    const std::string_view kind = action_name(finding.action.edit);
    if (kind != action_name(action.edit) || finding.mechanism.empty()) continue;
    const bool widens = !action.edit.reduction();
    return capitalized(finding) + (widens ? ". fp32 does not have this limit." : ".");
  }
  return "";
}

/// Returns the tensor that the finding which asks for the action is about; null if it names none.
const SiteReport* blamed_tensor(const Report& report, const ActionReport& action) {
  const std::string_view kind = action_name(action.edit);
  for (const Finding& finding : report.findings) {
    if (finding.lane != action.lane || finding.severity < Severity::warning) continue;
    if (action_name(finding.action.edit) != kind || finding.site.empty()) continue;
    for (const LayerReport& layer : report.layers) {
      if (layer.lane != action.lane) continue;
      for (const SiteReport& site : layer.sites) {
        if (site.name == finding.site) return &site;
      }
    }
  }
  return nullptr;
}

/// Returns what a tensor loses now, of updates or of gradients, as the action requires: the one
/// that the advice is for, because others may lose as much in fp32; else the worst.
std::string share_effect(const Report& report, const ActionReport& action) {
  const bool updates = action.edit.has(FixKind::weights_fp32);
  const auto lost_in = [&](const SiteReport& site) {
    const bool gradient = site.role == Role::activation_grad || site.role == Role::weight_grad;
    if (updates ? site.role != Role::update : !gradient) return 0.0;
    const Rates rates = rates_of(site);
    return updates ? rates.lost : rates.underflow;
  };
  const SiteReport* told = blamed_tensor(report, action);
  double most = told == nullptr ? 0.0 : lost_in(*told);
  const bool is_blamed = most > 0.0;
  for (const LayerReport& layer : report.layers) {
    if (is_blamed || layer.lane != action.lane) continue;
    for (const SiteReport& site : layer.sites) {
      if (lost_in(site) <= most) continue;
      most = lost_in(site);
      told = &site;
    }
  }
  if (most == 0.0) return "";
  return fmt::format("{} should survive. In this run, {} of the non-zero {} of {} {}.",
                     updates ? "Weight updates" : "Gradients", percent(most),
                     updates ? "updates" : "values", told->name,
                     updates ? "are lost" : "underflow");
}

std::string what_would_speak_against(const Report& report, const ActionReport& action) {
  if (const Proof* proof = proof_of(report, action)) {
    if (report.run.inference) return "other samples give a different result";
    return fmt::format("a seed other than {} or a run longer than {} gives a different result",
                       proof->seed, counted(proof->steps, "step"));
  }
  const std::string reference =
      report.reference >= 0 ? report.lanes[static_cast<size_t>(report.reference)].name : "fp32";
  if (!action.edit.fp32_layers().empty()) {
    return fmt::format(
        "the advised plan diverges from {0}, or other data, other initial weights or a lower "
        "learning rate make the lane match {0} without {1} in fp32",
        reference, name_list(action.edit.fp32_layers(), 3));
  }
  if (action.edit.has(FixKind::weights_fp32))
    return fmt::format("a longer run matches {} although updates are lost", reference);
  if (action.edit.reduction()) return "the lane works as well with more ranks";
  if (action.edit.loss_scale()) return "the gradients of a longer run leave this scale window";
  return "the next run fails in the same way";
}

void finish(Report& report, ActionReport action) {
  const std::string seen = tried(report, action);
  if (!seen.empty()) action.effect += (action.effect.empty() ? "" : " ") + seen;
  if (action.effect.empty()) {
    action.effect = report.run.inference ? "The outputs should match fp32's again."
                                         : "The loss should match fp32's again.";
  }
  judge_confidence(report, action);
  action.change_my_mind = what_would_speak_against(report, action);
  report.actions.push_back(std::move(action));
}

/// Returns whether the advised plan keeps variables in fp32 and the lane's own plan does not.
bool widens_storage(const std::string& lane_plan, const std::string& advised_plan) {
  const std::string place = "/variables/storage", before = plan_text(lane_plan, place);
  return plan_text(advised_plan, place) == "fp32" && before != "fp32" && !before.empty();
}

}  // namespace

namespace {

/// Puts the plan of a healthy lane before advice that nobody has tried: the run itself has tested
/// it.
void prefer_cure(Report& report) {
  if (!report.cure || report.sick < 0 || reference_fails(report)) return;
  if (report.proof && report.proof_lane == report.sick) return;
  const int lane = report.recommendation ? report.recommendation->lane : report.sick;
  if (lane != report.sick) return;
  if (report.recommendation &&
      cure_with(report, lane, report.recommendation->edit.fp32_layers()) != nullptr) {
    return;
  }
  const LaneReport& cure = report.lanes[static_cast<size_t>(*report.cure)];
  ActionReport action{.lane = lane, .of_cure = true};
  action.text = fmt::format("Use the plan of {}.", cure.name);
  action.effect = fmt::format("{} is healthy in this run.", cure.name);
  const bool is_short = !report.run.inference && cure.steps < kFewSteps;
  action.confidence = is_short ? "medium" : "high";
  action.basis = "tested in this run, where it is healthy";
  action.change_my_mind = fmt::format("other data or another seed make {} fail, too", cure.name);
  for (ActionReport& other : report.actions) {
    other.text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(other.text[0])));
    other.text = "Or, not tested: " + other.text;
  }
  report.actions.insert(report.actions.begin(), std::move(action));
}

}  // namespace

std::string fix_of(const Report& report, const Recommendation& advice, FixTarget target) {
  const bool proved = report.proof && report.proof->holds && report.proof_lane == advice.lane;
  LaneInfo lane;
  lane.plan_json = report.lanes[static_cast<size_t>(advice.lane)].plan_json;
  for (const LayerReport& each : report.layers) {
    if (each.lane != advice.lane) continue;
    LayerInfo layer;
    layer.path = each.path;
    layer.op = each.op;
    layer.read = each.read;
    layer.parameters = each.parameters;
    lane.layers.push_back(std::move(layer));
  }
  return fix_as(target, lane, proved ? report.proof->edit : advice.edit);
}

void add_actions(const RunView& run, Report& report) {
  if (!report.recommendation) {
    // No plan can be edited, yet a finding may know what to do.
    for (size_t i = 0; i < report.findings.size() && report.actions.size() < 3; ++i) {
      const Finding& finding = report.findings[i];
      if (finding.severity < Severity::warning || finding.action.text.empty()) continue;
      if (!finding.action.edit.empty()) continue;  // no change of the plan helps
      ActionReport action{.lane = finding.lane};
      action.text = finding.action.text;
      action.effect = capitalized(finding) + ".";
      judge_confidence(report, action);
      action.change_my_mind = what_would_speak_against(report, action);
      report.actions.push_back(std::move(action));
    }
    return prefer_cure(report);
  }
  const Recommendation& advice = *report.recommendation;
  const LaneInfo& lane = run.lane(advice.lane);
  const bool fp32_storage = widens_storage(lane.plan_json, advice.plan_json);
  const std::vector<std::string> layers = advice.edit.fp32_layers();
  if (!layers.empty()) {
    ActionReport action{.edit = PlanEdit::in_fp32(layers), .lane = advice.lane};
    action.text = keep_in_fp32(layers).text + cast_note(lane, action.edit);
    action.effect = overflow_effect(report, action);
    if (action.effect.empty()) action.effect = reason(report, action);
    action.cost = cost_of_fp32(lane, layers);
    finish(report, std::move(action));
  }
  if (fp32_storage) {
    ActionReport action{.edit = PlanEdit::of(FixKind::weights_fp32), .lane = advice.lane};
    action.text = "Keep fp32 master weights.";
    action.effect = share_effect(report, action);
    action.cost = cost_of_fp32_storage(lane);
    finish(report, std::move(action));
  }
  if (const std::optional<Change> change = advice.edit.reduction_change()) {
    ActionReport action{.edit = {.changes = {*change}}, .lane = advice.lane};
    action.text = reduction_advice(LaneFacts(run, advice.lane), *advice.edit.reduction()) + ".";
    action.text[0] = static_cast<char>(action.text[0] - 'a' + 'A');  // a small letter
    action.effect = reason(report, action);
    finish(report, std::move(action));
  }
  PlanEdit rest = advice.edit;
  std::erase_if(rest.changes, [](const Change& change) {
    return change.kind == FixKind::operator_fp32 || change.kind == FixKind::weights_fp32 ||
           change.kind == FixKind::loss_scale || PlanEdit{.changes = {change}}.reduction_change();
  });
  if (!rest.empty()) {
    ActionReport action{.edit = rest, .lane = advice.lane};
    action.text = edit_sentence(rest);
    if (report.diagnosis && report.diagnosis->lane == advice.lane) {
      action.effect = cause_sentence(*report.diagnosis);
    }
    finish(report, std::move(action));
  }
  if (advice.edit.loss_scale()) {
    ActionReport action{.edit = PlanEdit::with_loss_scale(*advice.edit.loss_scale()),
                        .lane = advice.lane};
    action.text = fmt::format("Use dynamic loss scaling, or a static scale of {}.",
                              scale_text(*advice.edit.loss_scale()));
    action.effect = share_effect(report, action);
    finish(report, std::move(action));
  }
  report.plan_text = compact_plan(advice.plan_json);
  prefer_cure(report);
}

}  // namespace halfscope::report
