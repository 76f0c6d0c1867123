// SPDX-License-Identifier: MIT
// The verdict: one sentence that stands for the whole run, what else one has to know before
// acting on it, and how each lane fares by itself.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

/// "its loss ends at 0.31, that of float32 at 0.3"; a run that is not complete has no end yet.
std::string compared(const Report& report, const LaneReport& lane) {
  if (!lane.last_loss) return "";
  const LaneReport* reference =
      report.reference >= 0 ? &report.lanes[static_cast<size_t>(report.reference)] : nullptr;
  const bool ended = report.status == RunStatus::complete;
  std::string text =
      fmt::format("its loss {} {}", ended ? "ends at" : "stands at", short_number(*lane.last_loss));
  const bool other = reference != nullptr && reference != &lane;
  if (other && reference->last_loss && !reference->lost) {
    text += fmt::format(", that of {} at {}", reference->name, short_number(*reference->last_loss));
  }
  return text;
}

/// Skipped steps worry everybody who sees them first, so a sentence says when they are normal.
std::string calm_skips(const Report& report, int lane) {
  const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
  if (info.skipped == 0) return "";
  for (const Finding& finding : report.findings) {
    if (finding.lane != lane || finding.rule != "first_non_finite") continue;
    const std::string what = counted(info.skipped, "skipped step");
    const char* verb = info.skipped == 1 ? "is" : "are";
    if (info.last_skipped < 64) {
      return fmt::format("{} in the first {} {} the normal start of dynamic scaling.", what,
                         info.last_skipped + 1, verb);
    }
    return fmt::format("{} in {} {} normal: dynamic scaling now and then tries too large a scale.",
                       what, counted(info.steps, "step"), verb);
  }
  return "";
}

/// What a short run can not have shown yet: the scale's way down, its growth, slow drift.
std::string too_short(const Report& report) {
  if (report.steps >= kFewSteps || report.status == RunStatus::running) return "";
  if (report.run.inference) return "";
  return fmt::format("{} {} to judge by: train for at least {} before you rely on it.",
                     counted(report.steps, "step"), report.steps == 1 ? "is little" : "are few",
                     kFewSteps);
}

/// Says for which steps the verdict holds if the run did not reach its end.
std::string coverage(const Report& report) {
  const std::string steps = fmt::format("step {} of {}", report.steps, report.run.steps_planned);
  switch (report.status) {
    case RunStatus::complete:
      return "";
    case RunStatus::running:
      return fmt::format("The run is going on: this covers it up to {}.", steps);
    case RunStatus::interrupted:
      return fmt::format("The run was stopped after {}; the verdict covers these steps.", steps);
    case RunStatus::early_stop:
      return fmt::format(
          "The run stopped by its own rule after {}; the verdict covers these steps.", steps);
    case RunStatus::died:
      return fmt::format("The program died after {}; the verdict covers these steps.", steps);
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

std::string healthy_headline(const Report& report, int lane) {
  const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
  const std::string losses = compared(report, info);
  const bool early = report.steps < kFewSteps && !report.run.inference;
  return info.name + (early ? " is healthy so far" : " is healthy") +
         (losses.empty() ? "." : ": " + losses + ".");
}

bool judged(const Report& report, const LaneReport& lane) {
  return !lane.reference || report.lanes.size() == 1;
}

/// The first lane that was lost; -1 if none was.
int lost_lane(const Report& report) {
  const auto lost = std::find_if(report.lanes.begin(), report.lanes.end(),
                                 [](const LaneReport& lane) { return lane.lost.has_value(); });
  return lost == report.lanes.end() ? -1 : static_cast<int>(lost - report.lanes.begin());
}

/// The first lane that fares like this by what it computed; the worst of them if several do.
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
  const std::string losses = compared(report, lane);
  return lane.name + " is healthy" + (losses.empty() ? "." : ": " + losses + ".");
}

const char* fails(const Report& report) {
  return report.run.inference ? "does not work" : "does not train";
}

/// "cuda:mixed_float16 was lost at step 20: CUDA launch: unspecified launch failure."
std::string loss_of_lane(const Report& report, const LaneReport& lane) {
  return sentence(fmt::format("{} was lost at {} {}: {}", lane.name,
                              report.run.inference ? "batch" : "step", lane.lost->step,
                              lane.lost->why));
}

/// The other lanes in half a sentence each, so that nobody takes the fault of one for all.
std::string neighbours(const Report& report, int but, int also_but) {
  std::string text;
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
    } else {
      const Finding* finding = worst_of(report, index, Severity::warning);
      append(text, fmt::format("{} {}{}.", lane.name,
                               lane.state == State::broken
                                   ? std::string(fails(report)) + " like this either"
                                   : "loses information",
                               finding != nullptr ? ": " + finding->mechanism : ""));
    }
  }
  return text;
}

Verdict of_trouble(const Report& report, int lane, State state) {
  const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
  if (info.lost) {
    return {state, loss_of_lane(report, info), neighbours(report, lane, -1), {}};
  }
  const bool error = state == State::broken;
  const Finding* finding = worst_of(report, lane, error ? Severity::error : Severity::warning);
  if (finding == nullptr) {
    return {state,
            fmt::format("{} has made no update yet: all of its {} skipped.", info.name,
                        counted(info.steps, "step") + (info.steps == 1 ? " was" : " were")),
            "Train for longer.",
            {}};
  }
  const std::string what = error ? std::string(fails(report)) + " like this" : "loses information";
  if (!report.cure) {
    return {state,
            sentence(fmt::format("{} {}: {}", info.name, what, finding->mechanism)),
            neighbours(report, lane, -1),
            {}};
  }
  const LaneReport& cure = report.lanes[static_cast<size_t>(*report.cure)];
  Verdict verdict{State::cured, fmt::format("{} {}; {} does.", info.name, what, cure.name), {}, {}};
  if (!error) verdict.headline = fmt::format("{} {}; {} keeps it.", info.name, what, cure.name);
  verdict.more = sentence(info.name + ": " + finding->mechanism);
  append(verdict.more, health_text(report, cure));
  append(verdict.more, neighbours(report, lane, *report.cure));
  return verdict;
}

Verdict of_health(const Report& report) {
  std::vector<int> lanes;
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    if (judged(report, report.lanes[i])) lanes.push_back(static_cast<int>(i));
  }
  Verdict verdict;
  if (lanes.size() == 1) {
    verdict.headline = healthy_headline(report, lanes.front());
  } else {
    verdict.headline = fmt::format(
        "All {} lanes are healthy{}: nothing overflows, and nothing that matters is flushed or "
        "lost.",
        report.lanes.size(), report.steps < kFewSteps && !report.run.inference ? " so far" : "");
  }
  for (int lane : lanes) {
    const std::string calm = calm_skips(report, lane);
    if (calm.empty()) continue;
    const std::string& name = report.lanes[static_cast<size_t>(lane)].name;
    append(verdict.more, lanes.size() > 1 ? name + ": " + calm : calm);
  }
  append(verdict.more, too_short(report));
  return verdict;
}

Verdict judge_lanes(const Report& report) {
  if (report.lanes.empty()) return {State::attention, "The run holds no lanes.", {}, {}};
  if (report.steps == 0 && lost_lane(report) < 0) {
    return {State::attention, "Nothing to judge yet: the run holds no steps.", {}, {}};
  }
  const bool reference_ended =
      report.reference >= 0 && !report.lanes[static_cast<size_t>(report.reference)].lost;
  if (reference_ended) {
    const Finding* finding = worst_of(report, report.reference, Severity::error);
    if (finding != nullptr) {
      return {State::broken,
              fmt::format("Not a matter of precision: {} itself {} ({}).",
                          report.lanes[static_cast<size_t>(report.reference)].name, fails(report),
                          finding->mechanism),
              {},
              {}};
    }
  }
  const int broken = lane_of(report, State::broken), lost = lost_lane(report);
  if (broken >= 0) return of_trouble(report, broken, State::broken);
  if (lost >= 0) return of_trouble(report, lost, State::broken);
  const int ailing = lane_of(report, State::attention);
  if (ailing >= 0) return of_trouble(report, ailing, State::attention);
  const bool measured =
      std::any_of(report.layers.begin(), report.layers.end(), [](const LayerReport& layer) {
        return std::any_of(layer.sites.begin(), layer.sites.end(),
                           [](const SiteReport& site) { return site.n > 0; });
      });
  if (!measured) {
    return {State::attention,
            "Nothing was measured: only the losses can be compared, not what the format did.",
            {},
            {}};
  }
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
