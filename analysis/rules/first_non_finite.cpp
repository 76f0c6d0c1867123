// SPDX-License-Identifier: MIT
// first_non_finite: the first tensor of a lane that left the finite numbers, the way from there to
// the loss, and whether it was harm or only the loss scaler finding its scale.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "analysis/format_limits.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/scale_ceiling.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// From 65536 a dynamic scaler reaches 1 after so many skipped steps; more is no calibration.
constexpr int64_t kCalibrationSkips = 16;
constexpr double kRareSkips = 0.05;
/// Where dynamic scaling starts if nobody says otherwise, as torch's GradScaler.
constexpr double kUsualStart = 65536.0;
constexpr size_t kChainShown = 7;

struct Course {
  int64_t steps = 0, skipped = 0;
  int64_t first_skipped = 0;  ///< steps skipped at the very start, one after the other
  int64_t last_skipped = -1;  ///< index of the last skipped row
  bool loss_ends_finite = true;
  bool ends_skipped = false;
  bool harmed = false;  ///< a step that was not skipped had a non-finite loss
  double first_scale = 1.0, last_scale = 1.0;
};

Course course_of(const LaneFacts& lane) {
  Course course;
  for (const StepRow& row : lane.steps()) {
    if (course.steps == 0) course.first_scale = row.loss_scale;
    if (row.skipped) {
      ++course.skipped;
      if (course.skipped == course.steps + 1) course.first_skipped = course.skipped;
      course.last_skipped = course.steps;
    }
    ++course.steps;
    course.loss_ends_finite = std::isfinite(row.loss);
    course.ends_skipped = row.skipped;
    course.harmed = course.harmed || (!row.skipped && !std::isfinite(row.loss));
    course.last_scale = row.loss_scale;
  }
  if (!lane.inference()) return course;
  course.loss_ends_finite = true;  // the outputs do that there
  course.harmed = false;
  for (const RecordedStep& record : lane.recorded()) {
    course.loss_ends_finite = record.loss_finite;
    course.harmed = course.harmed || !record.loss_finite;
  }
  return course;
}

struct Start {
  int64_t step = 0;
  int site = -1;                         ///< -1: not recorded, only the loss tells
  const RecordedStep* record = nullptr;  ///< statistics of that step, if there are any
  const StepRow* row = nullptr;
};

std::optional<Start> find_start(const LaneFacts& lane) {
  std::optional<Start> start;
  for (const RecordedStep& record : lane.recorded()) {
    if (record.bad.empty()) continue;
    start = Start{.step = record.step, .site = record.bad.front(), .record = &record};
    break;
  }
  for (const StepRow& row : lane.steps()) {
    if (start && row.step > start->step) break;
    if (start && row.step == start->step) {
      start->row = &row;
      break;
    }
    const bool finite = lane.inference() || std::isfinite(row.loss);
    if (row.first_bad < 0 && finite && !row.skipped) continue;
    start = Start{.step = row.step, .site = row.first_bad, .row = &row};
    break;
  }
  const int sites = static_cast<int>(lane.info().sites.size());
  if (start && start->site >= sites) start->site = -1;
  return start;
}

/// "conv2.activation -> relu2.activation -> loss": what depends on the start and left the finite
/// numbers in the same step.
std::string chain_of(const LaneFacts& lane, const Start& start) {
  std::vector<std::string> chain{lane.site(start.site).name()};
  const bool forward = lane.site(start.site).phase == Phase::forward;
  if (start.record != nullptr) {
    const std::vector<bool> below = lane.downstream(lane.node_of(start.site));
    for (int site : start.record->bad) {
      if (site <= start.site) continue;
      const SiteInfo& info = lane.site(site);
      // Gradients run against the graph: everything later in the pass may depend on the first.
      const bool next =
          forward ? info.role == Role::activation && below[static_cast<size_t>(lane.node_of(site))]
                  : info.phase == Phase::backward;
      if (next) chain.push_back(info.name());
    }
  }
  std::string text;
  for (size_t i = 0; i < chain.size() && i < kChainShown; ++i) {
    if (i > 0) text += " -> ";
    text += chain[i];
  }
  if (chain.size() > kChainShown) {
    text += fmt::format(" -> ({} more)", chain.size() - kChainShown);
  }
  if (start.row != nullptr) {
    if (forward && !lane.inference() && !std::isfinite(start.row->loss)) text += " -> loss";
    if (start.row->skipped) text += " -> update skipped";
  }
  return text;
}

Severity severity_of(const Course& course, bool forward, bool dynamic) {
  if (!course.loss_ends_finite) return Severity::error;
  if (course.ends_skipped && course.last_scale < 1.0) return Severity::error;
  if (course.harmed) return Severity::warning;
  if (forward) return Severity::info;  // forward_overflow weighs it
  const bool settling = dynamic && course.skipped <= kCalibrationSkips &&
                        course.last_skipped + 1 <= 4 * kCalibrationSkips;
  const bool rare =
      static_cast<double>(course.skipped) <= kRareSkips * static_cast<double>(course.steps);
  return settling || (rare && !course.ends_skipped) ? Severity::info : Severity::warning;
}

/// A gradient that overflows again and again needs a lower scale.
void advise_lower_scale(const LaneFacts& lane, const Start& start, Finding& finding) {
  if (finding.severity == Severity::info || start.record == nullptr || start.row == nullptr) return;
  if (lane.site(start.site).phase != Phase::backward) return;
  const bool dynamic = lane.scales_dynamically();
  const double used = start.row->loss_scale;
  const std::optional<double> ceiling = scale_ceiling(lane);
  if (!ceiling) {
    const char* why = "nothing was recorded that a static scale could be worked out from.";
    if (!dynamic) {
      finding.action.text = fmt::format("Use dynamic loss scaling: {}", why);
    } else if (used > kUsualStart) {
      finding.action.text = fmt::format("Start dynamic loss scaling at the usual {}: {}",
                                        scale_text(kUsualStart), why);
    }
    return;
  }
  const double scale = scale_below(*ceiling);
  if (scale >= used) return;  // no scale mends that
  const char* how = dynamic ? "Start dynamic loss scaling at or below "
                            : "Use dynamic loss scaling, or a static scale of at most ";
  finding.action = {.edit = {.loss_scale = scale}, .text = how + scale_text(scale) + "."};
}

/// Of the updates that were left out because a gradient overflowed.
std::string skips_text(const Course& course, Severity severity, bool dynamic) {
  const std::string steps = counted(course.steps, "step");
  const bool all = course.skipped == course.steps;
  if (!dynamic) {
    return fmt::format("{} of {} {} skipped: at the static loss scale of {} gradients overflow.",
                       course.skipped, steps, course.skipped == 1 ? "was" : "were",
                       scale_text(course.last_scale));
  }
  if (all && course.last_scale >= 1.0) {
    return fmt::format(
        "All of {} {} skipped: the run ended while dynamic scaling was still "
        "looking for its scale, from {} downwards.",
        steps, course.steps == 1 ? "was" : "were", scale_text(course.first_scale));
  }
  if (severity == Severity::info) {
    return fmt::format("{} in the first {} {} the normal start of dynamic scaling.",
                       counted(course.skipped, "skipped step"), course.last_skipped + 1,
                       course.skipped == 1 ? "is" : "are");
  }
  if (!all && course.first_skipped > kCalibrationSkips) {
    return fmt::format("The first {} were skipped: dynamic scaling started far too high, at {}.",
                       counted(course.first_skipped, "step"), scale_text(course.first_scale));
  }
  return fmt::format("{} of {} were skipped: the scale does not settle.", course.skipped, steps);
}

std::string outcome_text(const LaneFacts& lane, const Course& course, Severity severity,
                         bool forward) {
  const bool dynamic = lane.scales_dynamically();
  if (lane.inference()) {
    return !course.loss_ends_finite ? "The outputs are not finite at the end."
           : course.harmed          ? "The outputs were finite again later."
                                    : "The outputs stayed finite.";
  }
  if (!course.loss_ends_finite)
    return "The loss is not finite at the end: the lane does not recover.";
  if (forward) {
    return course.harmed ? "The loss became finite again later."
                         : "The loss stayed finite or the steps were skipped.";
  }
  if (course.skipped == 0) return "No update was skipped, and the loss ends finite.";
  return skips_text(course, severity, dynamic);
}

void find_first_non_finite(const LaneFacts& lane, std::vector<Finding>& findings) {
  const std::optional<Start> start = find_start(lane);
  if (!start) return;
  const Course course = course_of(lane);
  const bool known = start->site >= 0;
  const bool forward = known ? lane.site(start->site).phase == Phase::forward
                             : start->row != nullptr && !std::isfinite(start->row->loss);

  Finding finding{.rule = "first_non_finite", .lane = lane.lane()};
  const bool dynamic = lane.scales_dynamically();
  finding.severity = severity_of(course, forward, dynamic);
  finding.step = start->step;
  finding.evidence = {{"skipped_steps", static_cast<double>(course.skipped)},
                      {"steps", static_cast<double>(course.steps)},
                      {"first_loss_scale", course.first_scale},
                      {"last_loss_scale", course.last_scale}};
  if (known) {
    const SiteInfo& site = lane.site(start->site);
    finding.site = site.name();
    finding.layer = site.path;
    const std::optional<TensorStats> stats =
        start->record != nullptr ? lane.stats(start->site, start->record->step) : std::nullopt;
    const bool overflowed = !stats || stats->overflow > 0;
    finding.mechanism = fmt::format(
        "{} {} at step {}", site.name(),
        overflowed ? "overflowed " + format_name(site.format) : std::string("was not finite"),
        start->step);
    const std::string chain = chain_of(lane, *start);
    finding.evidence["chain"] = chain;
    finding.text = fmt::format("First to leave the finite numbers: {}. The way it went: {}. ",
                               finding.mechanism, chain);
    advise_lower_scale(lane, *start, finding);
  } else {
    finding.mechanism =
        fmt::format("{} at step {}; no statistics of that step",
                    start->row != nullptr && start->row->skipped ? "the update was skipped"
                                                                 : "the loss was not finite",
                    start->step);
    finding.text = "First to leave the finite numbers: " + finding.mechanism + ". ";
  }
  finding.text += outcome_text(lane, course, finding.severity, forward);
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::first_non_finite{.id = "first_non_finite", .run = find_first_non_finite};

}  // namespace halfscope
