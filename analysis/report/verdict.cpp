// SPDX-License-Identifier: MIT
// The verdict: one sentence about the whole run, what else to know before acting on it, and the
// state of each lane.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/report/remarks.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope {

const char* verdict_name(Verdict::State state) noexcept {
  switch (state) {
    case Verdict::State::healthy:
      return "healthy";
    case Verdict::State::cured:
      return "cured";
    case Verdict::State::attention:
      return "attention";
    case Verdict::State::broken:
      return "broken";
    case Verdict::State::inconclusive:
      return "inconclusive";
  }
  return "unknown";
}

const char* lane_verdict(const LaneReport& lane) noexcept {
  if (lane.lost) return "lost";
  return lane.reference ? "reference" : verdict_name(lane.state);
}

namespace report {
namespace {

using State = Verdict::State;

constexpr const char* kTrainTwins =
    "Run halfscope diagnose to find out: it trains float32 again to see how far correct runs drift "
    "apart.";

/// Returns three significant digits, trailing zeros included, so that compared losses line up.
std::string loss_text(double loss) {
  const double size = std::fabs(loss);
  return size >= 1e-3 && size < 100.0 ? fmt::format("{:#.3g}", loss) : short_number(loss);
}

/// Returns the reference that `lane` can be compared with; null if there is none.
const LaneReport* reference_beside(const Report& report, const LaneReport& lane) {
  if (report.reference < 0) return nullptr;
  const LaneReport* reference = &report.lanes[static_cast<size_t>(report.reference)];
  return reference == &lane || reference->lost ? nullptr : reference;
}

/// Returns " is healthy: final loss 0.310 (float32: 0.300)", or " matches float32: final loss 0.310
/// in both"; without a colon where there are no losses.
std::string health_words(const Report& report, const LaneReport& lane, bool early) {
  const char* so_far = early ? " so far" : "";
  const LaneReport* reference = reference_beside(report, lane);
  if (!lane.last_loss) {
    const bool compares = reference != nullptr && lane.harm.unchecked.empty();
    return fmt::format(" is healthy{}{}", so_far,
                       compares && report.run.inference
                           ? fmt::format(": its outputs are close enough to {}'s", reference->name)
                           : "");
  }
  const char* final = report.status == RunStatus::complete ? "final loss" : "current loss";
  std::string loss = loss_text(*lane.last_loss);
  if (reference == nullptr || !reference->last_loss) {
    return fmt::format(" is healthy{}: {} {}", so_far, final, loss);
  }
  std::string theirs = loss_text(*reference->last_loss);
  // One batch says little where losses jump; the last fifth was compared.
  constexpr double kFar = 0.1;
  const double gap = std::fabs(*lane.last_loss - *reference->last_loss);
  if (gap > kFar * std::fabs(*reference->last_loss) && lane.end_loss && reference->end_loss) {
    final = "loss over the last fifth of the steps";
    loss = loss_text(*lane.end_loss);
    theirs = loss_text(*reference->end_loss);
  }
  return theirs == loss
             ? fmt::format(" matches {}{}: {} {} in both", reference->name, so_far, final, loss)
             : fmt::format(" is healthy{}: {} {} ({}: {})", so_far, final, loss, reference->name,
                           theirs);
}

/// Returns a sentence that says when skipped steps are normal, because they worry everyone who sees
/// them for the first time.
std::string calm_skips(const Report& report, int lane) {
  const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
  if (info.skipped == 0) return "";
  for (const Finding& finding : report.findings) {
    if (finding.lane != lane || finding.rule != "first_non_finite") continue;
    const char* verb = info.skipped == 1 ? "was" : "were";
    if (info.last_skipped < 64) {
      const int64_t first = info.last_skipped + 1;
      const std::string steps = first == 1 ? "step" : counted(first, "step");
      const std::string which = info.skipped == first
                                    ? "The first " + steps
                                    : fmt::format("{} of the first {}", info.skipped, steps);
      return fmt::format("{} {} skipped: that is the normal start of dynamic scaling.", which,
                         verb);
    }
    return fmt::format(
        "{} of {} {} skipped, which is normal: dynamic scaling sometimes tries a scale that is too "
        "large.",
        info.skipped, counted(info.steps, "step"), verb);
  }
  return "";
}

/// Returns why a loss that differs much from the reference's is no concern.
std::string drift_text(const LaneReport& lane) {
  constexpr double kMuch = 0.1;
  if (!(lane.harm.drift > kMuch)) return "";
  return fmt::format(
      "The loss of {} is as close as can be expected: correct float32 trainings{} end up to {} "
      "apart.",
      lane.name, lane.skipped > 0 ? " that start one ulp apart or skip the same steps" : "",
      percent(lane.harm.drift));
}

/// Returns a warning about short runs, which cannot show a falling or growing loss scale or slow
/// drift.
std::string too_short(const Report& report) {
  if (report.steps >= kFewSteps || report.status == RunStatus::running) return "";
  if (report.run.inference) return "";
  return fmt::format("Only {} so far. Train at least {} before relying on this verdict.",
                     counted(report.steps, "step"), kFewSteps);
}

/// Returns which steps the verdict covers if the run did not reach its end.
std::string coverage(const Report& report) {
  const bool runs = report.run.inference;
  const std::string steps = steps_text(report) + (runs ? " batches" : " steps");
  switch (report.status) {
    case RunStatus::complete:
      return "";
    case RunStatus::running:
      return fmt::format("Still {}. This covers {}.", runs ? "running" : "training", steps);
    case RunStatus::interrupted:
      return fmt::format("The run was stopped early. The verdict covers {}.", steps);
    case RunStatus::early_stop:
      return fmt::format("Early stopping ended the run. The verdict covers {}.", steps);
    case RunStatus::died:
      return fmt::format("The {} died. The verdict covers {}.",
                         runs ? "process" : "training process", steps);
  }
  return "";
}

std::string sentence(std::string text) {
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

void append(std::string& text, const std::string& more) {
  if (more.empty()) return;
  if (!text.empty()) text += ' ';
  text += more;
}

std::string capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
  return text;
}

/// Returns the text with a small first letter, as after a colon. Names keep their capitals.
std::string lowered(std::string text) {
  const bool word = text.size() > 1 && text[1] >= 'a' && text[1] <= 'z';
  if (word && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

std::string healthy_headline(const Report& report, int lane) {
  const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
  const bool early = report.steps < kFewSteps && !report.run.inference;
  return info.name + health_words(report, info, early) + ".";
}

bool judged(const Report& report, const LaneReport& lane) {
  return !lane.reference || report.lanes.size() == 1;
}

/// Returns the first lane whose backend failed; -1 if none did.
int lost_lane(const Report& report) {
  const auto lost = std::find_if(report.lanes.begin(), report.lanes.end(),
                                 [](const LaneReport& lane) { return lane.lost.has_value(); });
  return lost == report.lanes.end() ? -1 : static_cast<int>(lost - report.lanes.begin());
}

/// Returns the first judged lane in this state whose backend did not fail; -1 if there is none.
int lane_of(const Report& report, State state) {
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    if (report.lanes[i].lost) continue;
    if (report.lanes[i].state == state && judged(report, report.lanes[i])) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

std::string health_text(const Report& report, const LaneReport& lane) {
  return lane.name + health_words(report, lane, false) + ".";
}

/// Returns the finding that says what went wrong; null if none does.
const Finding* cause_of(const Report& report, int lane) {
  for (const Finding& finding : report.findings) {  // sorted: the worst of a lane comes first
    const bool matters = finding.lane == lane && finding.severity >= Severity::warning;
    if (matters && finding.rule != "harm") return &finding;
  }
  return nullptr;
}

/// The cause of a lane's trouble and its effect on the results.
struct Trouble {
  std::string
      why;  ///< "because conv2 overflows fp16", ": its output y differs by 54%"; may be empty
  std::string more;  ///< sentences
};

Trouble trouble_of(const Report& report, int lane) {
  const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
  const Finding* cause = cause_of(report, lane);
  if (info.harm.items.empty()) return {cause != nullptr ? " because " + cause->mechanism : "", ""};
  const std::string& harm = info.harm.items.front().text;
  const std::optional<Diagnosis>& known = report.diagnosis;
  if (known && known->lane == lane && known->verified && !known->cause.empty() &&
      known->mechanism != Mechanism::unknown &&
      (cause == nullptr || known->cause != sentence(mechanism_text(known->mechanism)))) {
    // Trials know more than rules, unless they only know which kind of change helps.
    return {" because " + known->cause.substr(0, known->cause.size() - 1),
            sentence(capitalized(harm))};
  }
  if (cause != nullptr) return {" because " + cause->mechanism, sentence(capitalized(harm))};
  for (const Finding& finding : report.findings) {
    const auto unknown = finding.evidence.find("unknown_cause");
    if (finding.lane == lane && unknown != finding.evidence.end()) {
      return {": " + harm, std::get<std::string>(unknown->second)};
    }
  }
  const std::optional<Diagnosis>& found = report.diagnosis;
  const bool is_found = found && found->lane == lane && found->verified;
  return {": " + harm, is_found ? cause_sentence(*found) : ""};
}

/// Returns all of a plan that is not about layers: storage, state, updates, sums.
nlohmann::json beside_layers(const LaneReport& lane) {
  nlohmann::json plan = nlohmann::json::parse(lane.plan_json, nullptr, false);
  for (const char* key : {"name", "default", "rules"}) {
    if (plan.is_object()) plan.erase(key);
  }
  return plan;
}

/// Returns "Keeping conv2 in fp32 fixes mixed_float16."; "" where the lanes differ in another way.
std::string kept_in_fp32(const Report& report, int cure, int sick) {
  constexpr size_t kFewLayers = 3;
  const LaneReport& well = report.lanes[static_cast<size_t>(cure)];
  const LaneReport& ill = report.lanes[static_cast<size_t>(sick)];
  if (beside_layers(well) != beside_layers(ill) || well.loss_scaling != ill.loss_scaling) return "";
  std::vector<std::string> kept;
  for (const LayerReport& layer : report.layers) {
    if (layer.lane != cure) continue;
    const auto other = std::find_if(
        report.layers.begin(), report.layers.end(),
        [&](const LayerReport& each) { return each.lane == sick && each.path == layer.path; });
    if (other == report.layers.end() || other->read == layer.read) continue;
    if (layer.read != kFp32) return "";
    kept.push_back(layer.path);
  }
  if (kept.empty() || kept.size() > kFewLayers) return "";
  return fmt::format("Keeping {} in fp32 fixes {}.", name_list(kept),
                     report.lanes[static_cast<size_t>(sick)].name);
}

/// Returns a sentence if a proof tested the advice on this lane and neither the original nor the
/// advised lane passed, else "".
std::string vain_advice(const Report& report, int lane) {
  if (!report.proof || report.proof_lane != lane || report.proof->holds) return "";
  if (std::isinf(report.proof->twin_spread)) return "";  // nothing could be shown
  const Trial* tried = nullptr;
  const Trial* original = nullptr;
  for (const Trial& trial : report.proof->trials) {
    if (trial.passes || std::isnan(trial.gap)) return "";
    if (trial.kind == Trial::Kind::advised) tried = &trial;
    if (trial.kind == Trial::Kind::original) original = &trial;
  }
  if (tried == nullptr) return "";
  if (!report.run.inference && tried->gap <= report.proof->tolerance) {
    return "The advised change was tested. It corrects the loss, but other results are still "
           "wrong.";
  }
  if (original != nullptr && tried->gap < 0.5 * original->gap) {
    return fmt::format(
        "The advised change was tested. It helps, but {} still differs from fp32's by {}.",
        report.run.inference ? "an output" : "the loss", difference_by(tried->gap));
  }
  return "The advised change was tested and did not help.";
}

const char* fails(State state) { return state == State::broken ? "fails" : "loses precision"; }
const char* fail(State state) { return state == State::broken ? "fail" : "lose precision"; }

/// Returns "cuda:mixed_float16 stopped at step 20: CUDA launch: unspecified launch failure."
std::string loss_of_lane(const Report& report, const LaneReport& lane) {
  return sentence(fmt::format("{} stopped at {} {}: {}", lane.name,
                              report.run.inference ? "batch" : "step", lane.lost->step,
                              lane.lost->why));
}

/// Returns half a sentence on each other lane, so that nobody takes the fault of one for all.
/// `why` is the trouble of the lane that the verdict is about.
std::string neighbours(const Report& report, int but, int also_but, const std::string& why) {
  std::string text;
  Remarks doubts;
  std::map<State, std::vector<std::string>> alike;  // in the same trouble
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    const LaneReport& lane = report.lanes[i];
    const int index = static_cast<int>(i);
    if (index == but || index == also_but) continue;
    if (lane.lost) {
      append(text, loss_of_lane(report, lane));
      continue;
    }
    if (lane.reference || lane.steps == 0) continue;
    if (lane.state == State::healthy) {
      append(text, health_text(report, lane));
    } else if (lane.state == State::inconclusive) {
      doubts.add(lane.name, lane.harm.inconclusive);
    } else if (const std::string other = trouble_of(report, index).why; other == why) {
      alike[lane.state].push_back(lane.name);
    } else {
      append(text, sentence(fmt::format("{} {}{}", lane.name, fails(lane.state), other)));
    }
  }
  std::string same;
  for (const auto& [state, names] : alike) {
    append(same, fmt::format("{} {} for the same reason.", name_list(names),
                             names.size() == 1 ? fails(state) : fail(state)));
  }
  append(same, text);
  append(same, doubts.text());
  return same;
}

Verdict of_trouble(const Report& report, int lane, State state) {
  const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
  if (info.lost) {
    return {state, loss_of_lane(report, info), neighbours(report, lane, -1, "none"), {}};
  }
  const Trouble trouble = trouble_of(report, lane);
  if (trouble.why.empty()) {
    return {state,
            fmt::format("{} has not updated its weights yet: {} skipped.", info.name,
                        info.steps == 1 ? "its only step was"
                                        : fmt::format("all {} steps were", info.steps)),
            "Train longer.",
            {}};
  }
  const std::string what = sentence(fmt::format("{} {}{}", info.name, fails(state), trouble.why));
  if (!report.cure) {
    Verdict verdict{state, what, info.harm.unlearned, {}};
    append(verdict.more, trouble.more);
    append(verdict.more, vain_advice(report, lane));
    append(verdict.more, neighbours(report, lane, -1, trouble.why));
    return verdict;
  }
  const LaneReport& cure = report.lanes[static_cast<size_t>(*report.cure)];
  Verdict verdict{State::cured, kept_in_fp32(report, *report.cure, lane), {}, {}};
  if (verdict.headline.empty()) {
    verdict.headline = fmt::format("{} works where {} {}.", cure.name, info.name, fails(state));
  }
  append(verdict.more, what);
  append(verdict.more, trouble.more);
  append(verdict.more, health_text(report, cure));
  append(verdict.more, neighbours(report, lane, *report.cure, trouble.why));
  return verdict;
}

/// Returns the verdict on lanes of which none is known to be wrong or right.
Verdict of_doubt(const Report& report) {
  std::vector<const LaneReport*> lanes;
  for (const LaneReport& lane : report.lanes) {
    if (judged(report, lane) && lane.state == State::inconclusive) lanes.push_back(&lane);
  }
  Verdict verdict{State::inconclusive, {}, {}, {}};
  const std::string& reason = lanes.front()->harm.inconclusive;
  verdict.headline = fmt::format("No verdict on {}: {}", lanes.front()->name, lowered(reason));
  Remarks others;
  std::vector<std::string> same;
  for (size_t i = 1; i < lanes.size(); ++i) {
    if (lanes[i]->harm.inconclusive == reason)
      same.push_back(lanes[i]->name);
    else
      others.add(lanes[i]->name, lanes[i]->harm.inconclusive);
  }
  if (!same.empty()) {
    append(verdict.more, fmt::format("{}: no verdict for the same reason.", name_list(same)));
  }
  append(verdict.more, others.text());
  const bool twins_may_tell =
      !report.run.inference && std::any_of(lanes.begin(), lanes.end(), [](const LaneReport* lane) {
        return !lane->harm.unchecked.empty();
      });
  append(verdict.more, twins_may_tell ? kTrainTwins : "Nothing that could be compared is wrong.");
  return verdict;
}

Verdict of_health(const Report& report) {
  std::vector<int> lanes;
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    const LaneReport& lane = report.lanes[i];
    if (!judged(report, lane) || lane.state != State::healthy) continue;
    lanes.push_back(static_cast<int>(i));
  }
  Verdict verdict;
  const bool all_checked = std::all_of(lanes.begin(), lanes.end(), [&](int lane) {
    return report.lanes[static_cast<size_t>(lane)].harm.unchecked.empty();
  });
  if (lanes.size() == 1) {
    verdict.headline = healthy_headline(report, lanes.front());
  } else if (!all_checked) {
    verdict.headline = "No precision problems found in what this run could compare.";
  } else {
    const std::string which = lanes.size() == 2 ? "both" : fmt::format("all {}", lanes.size());
    // Outputs are compared with a tolerance, losses with the spread of correct runs.
    verdict.headline =
        report.run.inference
            ? fmt::format(
                  "No precision problems found: the outputs of {} lanes are close enough "
                  "to float32's.",
                  which)
            : fmt::format("No precision problems found{}: {} lanes match float32.",
                          report.steps < kFewSteps ? " so far" : "", which);
  }
  Remarks doubts, unchecked, calm;
  for (const LaneReport& lane : report.lanes) {
    const bool doubted = judged(report, lane) && lane.state == State::inconclusive;
    if (doubted) doubts.add(lane.name, lane.harm.inconclusive);
  }
  for (const int lane : lanes) {
    const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
    for (const std::string& each : info.harm.unchecked) unchecked.add(info.name, each);
    calm.add(info.name, calm_skips(report, lane));
  }
  const auto say = [&](const Remarks& remarks) {
    // With one healthy lane there is nothing to mix it up with.
    if (lanes.size() > 1) return append(verdict.more, remarks.text());
    for (const Remarks::Remark& each : remarks.all()) append(verdict.more, each.text);
  };
  append(verdict.more, doubts.text());
  say(unchecked);
  if (!all_checked && !report.run.inference) append(verdict.more, kTrainTwins);
  say(calm);
  for (int lane : lanes) append(verdict.more, drift_text(report.lanes[static_cast<size_t>(lane)]));
  append(verdict.more, too_short(report));
  return verdict;
}

Verdict judge_lanes(const Report& report) {
  if (report.lanes.empty()) return {State::inconclusive, "The run has no lanes.", {}, {}};
  if (report.steps == 0 && lost_lane(report) < 0) {
    return {State::inconclusive, "No steps recorded yet.", {}, {}};
  }
  const bool reference_ended =
      report.reference >= 0 && !report.lanes[static_cast<size_t>(report.reference)].lost;
  if (reference_ended) {
    const Finding* finding = worst_of(report, report.reference, Severity::error);
    if (finding != nullptr) {
      return {
          State::broken,
          fmt::format("Not a precision problem: {} itself fails ({}).",
                      report.lanes[static_cast<size_t>(report.reference)].name, finding->mechanism),
          {},
          {}};
    }
  }
  const int broken = lane_of(report, State::broken), lost = lost_lane(report);
  if (broken >= 0) return of_trouble(report, broken, State::broken);
  if (lost >= 0) return of_trouble(report, lost, State::broken);
  const int ailing = lane_of(report, State::attention);
  if (ailing >= 0) return of_trouble(report, ailing, State::attention);
  const bool healthy = std::any_of(
      report.lanes.begin(), report.lanes.end(),
      [&](const LaneReport& lane) { return judged(report, lane) && lane.state == State::healthy; });
  if (!healthy && lane_of(report, State::inconclusive) >= 0) return of_doubt(report);
  return of_health(report);
}

bool same_or_wider(const LaneInfo& wide, const LaneInfo& narrow) {
  if (wide.backend == "float64" || wide.layers.size() != narrow.layers.size()) return false;
  for (size_t i = 0; i < wide.layers.size(); ++i) {
    const LayerInfo &a = wide.layers[i], &b = narrow.layers[i];
    if (a.path != b.path || !a.read.contains(b.read) || !a.write.contains(b.write)) return false;
  }
  return true;
}

/// Returns a finding of which the run does not show whether it does harm; null if there is none.
const Finding* open_finding(const Report& report, int lane) {
  for (const Finding& finding : report.findings) {
    if (finding.lane == lane && finding.open) return &finding;
  }
  return nullptr;
}

}  // namespace

const Finding* worst_of(const Report& report, int lane, Severity at_least) {
  for (const Finding& finding : report.findings) {  // sorted: the worst of a lane comes first
    if (finding.lane == lane && finding.severity >= at_least) return &finding;
  }
  return nullptr;
}

void add_lane_states(Report& report) {
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    LaneReport& lane = report.lanes[i];
    const Finding* worst = worst_of(report, static_cast<int>(i), Severity::warning);
    if (worst != nullptr) {
      lane.state = worst->severity == Severity::error ? State::broken : State::attention;
    } else if (lane.steps > 0 && lane.skipped == lane.steps) {
      lane.state = State::attention;  // it has learnt nothing, so it has proved nothing
    } else if (!lane.reference && (lane.steps == 0 || !lane.harm.inconclusive.empty())) {
      lane.state = State::inconclusive;
    } else if (const Finding* open = open_finding(report, static_cast<int>(i))) {
      lane.state = State::inconclusive;
      lane.harm.inconclusive = sentence(open->mechanism);
      for (const std::string& each : lane.harm.unchecked) append(lane.harm.inconclusive, each);
    }
  }
}

void find_cure(const RunView& run, Report& report) {
  int& sick = report.sick;
  sick = lane_of(report, State::broken);
  if (sick < 0) sick = lane_of(report, State::attention);
  if (sick < 0) return;
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    const int lane = static_cast<int>(i);
    const LaneReport& candidate = report.lanes[i];
    if (lane == sick || candidate.reference || candidate.state != State::healthy) continue;
    if (candidate.steps == 0) continue;
    const bool ends = candidate.last_loss && std::isfinite(*candidate.last_loss);
    if (!ends && !report.run.inference) continue;
    if (!same_or_wider(run.lane(lane), run.lane(sick))) continue;
    report.cure = lane;
    return;
  }
}

const LaneReport* cure_with(const Report& report, int lane, std::span<const std::string> layers) {
  if (!report.cure || report.sick != lane) return nullptr;
  for (const LayerReport& layer : report.layers) {
    const bool named = std::find(layers.begin(), layers.end(), layer.path) != layers.end();
    if (layer.lane != *report.cure || !named) continue;
    if (layer.read != kFp32 || layer.write != kFp32) return nullptr;
  }
  return &report.lanes[static_cast<size_t>(*report.cure)];
}

Verdict judge(const Report& report) {
  Verdict verdict = judge_lanes(report);
  if (report.steps > 0) append(verdict.more, coverage(report));
  verdict.text = verdict.headline;
  append(verdict.text, verdict.more);
  return verdict;
}

}  // namespace report
}  // namespace halfscope
