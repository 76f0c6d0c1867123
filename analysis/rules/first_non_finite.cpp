// SPDX-License-Identifier: MIT
// first_non_finite: the first tensor of a lane with NaN or infinity, the path from there to the
// loss, and whether it was harmful or only the loss scaler finding its scale.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "analysis/rules/absorbed.h"
#include "analysis/rules/non_finite_cause.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "analysis/skipped_steps.h"

namespace halfscope {
namespace {

/// Until this step a dynamic scale may still be searching.
constexpr int64_t kCalibrationSteps = 4 * kCalibrationSkips;
constexpr double kRareSkips = 0.05;
constexpr size_t kChainShown = 7;

SkipCourse course_of(const LaneFacts& lane) {
  SkipCourse course;
  double taken_scale = std::numeric_limits<double>::infinity();  // of the last step that was taken
  int64_t taken = 0;                                             // in a row
  bool settled = false;
  for (const StepRow& row : lane.steps()) {
    if (course.steps == 0) course.first_scale = row.loss_scale;
    if (row.skipped) {
      ++course.skipped;
      if (course.skipped == course.steps + 1) course.first_skipped = course.skipped;
      course.last_skipped = course.steps;
      if (row.loss_scale > taken_scale) {
        ++course.probes;
      } else {
        course.last_other = course.steps;
        if (settled && course.late++ == 0) course.first_late = course.steps;
      }
      taken = 0;
    } else {
      taken_scale = row.loss_scale;
      settled = settled || ++taken >= kSettledSteps;
    }
    ++course.steps;
    course.loss_ends_finite = lane.loss_is_fine(row);
    course.ends_skipped = row.skipped;
    course.harmed = course.harmed || (!row.skipped && !lane.loss_is_fine(row));
    if (row.skipped && !lane.loss_is_fine(row)) course.last_loss_skipped = course.steps - 1;
    course.last_scale = row.loss_scale;
  }
  if (lane.has_loss()) return course;
  course.loss_ends_finite = true;  // the outputs do that there
  course.harmed = false;
  for (const RecordedStep& record : lane.recorded()) {
    course.loss_ends_finite = record.loss_finite;
    course.harmed = course.harmed || !record.loss_finite;
  }
  return course;
}

/// Returns the recorded window of a step; null if it was not recorded.
const RecordedStep* record_of(const LaneFacts& lane, int64_t step) {
  const std::vector<RecordedStep>& steps = lane.recorded();
  const auto found = std::find_if(steps.begin(), steps.end(), [&](const RecordedStep& record) {
    return record.step <= step && step < record.step + record.step_count;
  });
  return found == steps.end() ? nullptr : &*found;
}

/// Returns whether infinities of this site are known to be harmless.
bool is_absorbed(const LaneFacts& lane, int site) {
  const std::vector<RecordedStep>& steps = lane.recorded();
  return std::any_of(steps.begin(), steps.end(), [&](const RecordedStep& step) {
    return std::binary_search(step.absorbed.begin(), step.absorbed.end(), site);
  });
}

/// The last step with a finite forward and backward pass before the loss was lost: skipped steps
/// before it were overcome. Its update may be what went wrong. -1 if there is none, or if nothing
/// was lost.
int64_t last_good_step(const LaneFacts& lane, const SkipCourse& course) {
  if (lane.inference() || !(course.harmed || is_lost(course))) return -1;
  int64_t good = -1;
  auto record = lane.recorded().begin();
  for (const StepRow& row : lane.steps()) {
    if (course.harmed && !row.skipped && !lane.loss_is_fine(row)) break;
    while (record != lane.recorded().end() && record->step + record->step_count <= row.step) {
      ++record;
    }
    const bool known = record != lane.recorded().end() && record->step <= row.step;
    const bool bad = known ? record->forward_bad || record->backward_bad : row.first_bad >= 0;
    if (!row.skipped && lane.loss_is_fine(row) && !bad) good = row.step;
  }
  return good;
}

/// The recorded step at which it starts. A scale that only comes down does not count where
/// something else went wrong after it.
const RecordedStep* find_record(const LaneFacts& lane, int64_t good, bool lost) {
  const RecordedStep* first = nullptr;
  for (const RecordedStep& record : lane.recorded()) {
    if (record.bad.empty() || record.step < good) continue;
    const bool comes_down =
        record.skipped && record.gradients_overflow && !record.forward_bad && record.loss_finite;
    if (!lost || !comes_down) return &record;
    if (first == nullptr) first = &record;
  }
  return first;
}

std::optional<BadStart> find_start(const LaneFacts& lane, const SkipCourse& course) {
  const int64_t good = last_good_step(lane, course);
  std::optional<BadStart> start;
  if (const RecordedStep* record = find_record(lane, good, is_lost(course))) {
    start = BadStart{.step = record->step, .site = lane.first_bad(*record), .record = record};
  }
  for (const StepRow& row : lane.steps()) {
    if (start && row.step > start->step) break;
    if (start && row.step == start->step) {
      start->row = &row;
      break;
    }
    if (row.step < good || record_of(lane, row.step) != nullptr) continue;
    const bool finite = lane.loss_is_fine(row);
    const bool site_counts = row.first_bad >= 0 && !is_absorbed(lane, row.first_bad) &&
                             row.first_bad < static_cast<int>(lane.info().sites.size()) &&
                             (row.skipped || !lane.sums_wider(lane.site(row.first_bad)));
    if (!site_counts && finite && !row.skipped) continue;
    start = BadStart{.step = row.step, .site = site_counts ? row.first_bad : -1, .row = &row};
    break;
  }
  if (start) return start;
  // The statistics clear every tensor: only the loss or the update shows it.
  for (const StepRow& row : lane.steps()) {
    if (row.step < good || lane.inference()) continue;
    if (lane.loss_is_fine(row) && !row.skipped) continue;
    return BadStart{.step = row.step, .site = -1, .record = record_of(lane, row.step), .row = &row};
  }
  return std::nullopt;
}

/// Returns the forward sites that became NaN or infinite after the start and depend on it.
std::vector<int> spread_forward(const LaneFacts& lane, const BadStart& start) {
  std::vector<int> sites;
  const std::vector<bool> below = lane.downstream(lane.node_of(start.site));
  for (const int site : start.record->bad) {
    const bool depends = below[static_cast<size_t>(lane.node_of(site))];
    if (site > start.site && lane.site(site).role == Role::activation && depends)
      sites.push_back(site);
  }
  return sites;
}

/// Returns the same of gradients, which run against the graph: from the gradient of a node's output
/// to the output gradients of the nodes before it. No gradient depends on a parameter's gradient,
/// so that can only end a path; the last one does.
std::vector<int> spread_backward(const LaneFacts& lane, const BadStart& start) {
  const SiteInfo& first = lane.site(start.site);
  if (first.role == Role::weight_grad) return {};
  const std::vector<bool> above = lane.upstream(lane.node_of(start.site));
  const auto depends = [&](int site) {
    // The loss scale multiplies all gradients.
    return site > start.site && lane.site(site).phase == Phase::backward &&
           (is_loss_scale(first) || above[static_cast<size_t>(lane.node_of(site))]);
  };
  std::vector<int> sites;
  int parameter = -1;
  for (const int site : start.record->bad) {
    if (!depends(site)) continue;
    if (lane.site(site).role == Role::weight_grad) {
      parameter = site;
    } else {
      sites.push_back(site);
    }
  }
  if (parameter >= 0) sites.push_back(parameter);
  return sites;
}

/// Returns "conv2.activation -> relu2.activation -> loss": tensors that depend on the start and
/// became NaN or infinite in the same step.
std::string chain_of(const LaneFacts& lane, const BadStart& start) {
  std::vector<std::string> chain{lane.site(start.site).name()};
  const bool forward = is_forward(lane.site(start.site));
  if (start.record != nullptr) {
    for (const int site : forward ? spread_forward(lane, start) : spread_backward(lane, start))
      chain.push_back(lane.site(site).name());
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
    if (forward && !lane.loss_is_fine(*start.row)) text += " -> loss";
    if (start.row->skipped) text += " -> update skipped";
  }
  return text;
}

/// Returns whether a dynamic scale only comes down at the start, or sometimes tries a larger value.
/// A loss that contains scaled gradients, such as a gradient penalty, is not finite at first
/// either.
bool is_calibration(const SkipCourse& course, bool dynamic) {
  const bool settles =
      course.others() <= kCalibrationSkips && course.last_other < kCalibrationSteps;
  const bool loss_settles =
      course.last_loss_skipped < course.first_skipped &&
      (course.last_loss_skipped < 0 || course.steps - course.first_skipped >= kSettledSteps);
  return dynamic && settles && loss_settles &&
         static_cast<double>(course.late) <= kRareSkips * static_cast<double>(course.steps);
}

bool is_rare(const SkipCourse& course) {
  return course.last_loss_skipped < 0 &&
         static_cast<double>(course.skipped) <= kRareSkips * static_cast<double>(course.steps) &&
         !course.ends_skipped;
}

/// Returns whether steps were skipped because gradients overflowed, not the forward pass.
bool scale_skips(const LaneFacts& lane) {
  const std::vector<RecordedStep>& steps = lane.recorded();
  return std::any_of(steps.begin(), steps.end(), [](const RecordedStep& step) {
    return step.skipped && step.gradients_overflow;
  });
}

Severity severity_of(const LaneFacts& lane, const SkipCourse& course, bool forward, bool dynamic) {
  if (is_lost(course)) return Severity::error;
  if (course.harmed) return Severity::warning;
  // forward_overflow judges the forward pass.
  if (course.skipped == 0 || (forward && !scale_skips(lane))) return Severity::info;
  return is_calibration(course, dynamic) || is_rare(course) ? Severity::info : Severity::warning;
}

/// Describes the updates that were skipped because a gradient overflowed.
std::string skips_text(const SkipCourse& course, Severity severity, bool dynamic, bool overflow) {
  const std::string steps = counted(course.steps, "step");
  const bool one = course.skipped == 1;
  if (!overflow) {
    return fmt::format(
        "{} of {} {} skipped, because gradients are NaN, which no loss scale changes.",
        course.skipped, steps, one ? "was" : "were");
  }
  if (!dynamic) {
    return fmt::format(
        "{} of {} {} skipped, because gradients overflow at the static loss scale of {}.",
        course.skipped, steps, one ? "was" : "were", scale_text(course.last_scale));
  }
  if (course.skipped == course.steps && course.last_scale >= 1.0) {
    return fmt::format(
        "{} skipped. The run ended while dynamic scaling was still lowering its scale from {}.",
        course.steps == 1 ? "The only step was" : fmt::format("All {} were", steps),
        scale_text(course.first_scale));
  }
  if (severity == Severity::info && course.late > 0) {
    const std::string which =
        course.late == course.skipped ? "" : fmt::format("{} of them ", course.late);
    return fmt::format("{} of {} {} skipped, {}long after the start of dynamic loss scaling.",
                       course.skipped, steps, one ? "was" : "were", which);
  }
  if (severity == Severity::info && course.others() > 0 && course.last_other < kCalibrationSteps) {
    return fmt::format("{} skipped in the first {}: a normal start of dynamic loss scaling.",
                       counted(course.others(), "update"),
                       course.last_other == 0 ? "step" : counted(course.last_other + 1, "step"));
  }
  if (severity == Severity::info) {
    return fmt::format(
        "{} of {} {} skipped. This is normal: dynamic loss scaling sometimes tries too large a "
        "scale.",
        course.skipped, steps, one ? "was" : "were");
  }
  if (course.skipped < course.steps && course.first_skipped > kCalibrationSkips) {
    return fmt::format(
        "The first {} were skipped, because dynamic loss scaling started far too high, at {}.",
        counted(course.first_skipped, "step"), scale_text(course.first_scale));
  }
  if (course.late > 0 && course.late == course.others()) {
    return fmt::format(
        "{} of {} {} skipped, all of them after {} good ones: gradients are larger from there on. "
        "The loss scale went from {} to {}.",
        course.skipped, steps, one ? "was" : "were", course.first_late,
        scale_text(course.first_scale), scale_text(course.last_scale));
  }
  return fmt::format("{} of {} {} skipped, because the loss scale does not settle.", course.skipped,
                     steps, one ? "was" : "were");
}

std::string outcome_text(const LaneFacts& lane, const SkipCourse& course, Severity severity,
                         bool forward, bool overflow) {
  if (lane.inference()) {
    return !course.loss_ends_finite ? "The outputs are NaN or infinite."
           : course.harmed          ? "Some batches have NaN or infinite outputs."
                                    : "The outputs are finite.";
  }
  if (!course.loss_ends_finite)
    return "The lane does not recover: its loss is NaN or infinite at the end.";
  if (forward && !scale_skips(lane)) {
    return course.harmed         ? "The loss recovers later."
           : course.skipped == 0 ? "The loss stays finite."
                                 : "The loss stays finite in all steps that were not skipped.";
  }
  if (course.skipped == 0) return "No update was skipped, and the loss is finite at the end.";
  return skips_text(course, severity, lane.scales_dynamically(), overflow);
}

/// Returns "fc1 contains NaN at step 3".
std::string beginning(const LaneFacts& lane, const SiteInfo& site,
                      const std::optional<TensorStats>& stats, const std::string& when) {
  const bool rounded = lane.infinity_is_overflow(site);
  const TensorStats counts = stats.value_or(TensorStats{});
  if (rounded && site.phase == Phase::forward &&
      looks_masked(lane, site, counts)) {  // as log(0) does
    return fmt::format("{} contains -infinity {}", site.name(), when);
  }
  if (counts.overflow + (rounded ? counts.pos_inf + counts.neg_inf : 0) > 0) {
    return fmt::format("{} overflows {} {}", site.name(), format_name(site.format), when);
  }
  if (!stats) return fmt::format("{} is NaN or infinite {}", site.name(), when);
  const bool nan = stats->nan == stats->non_finite();
  return fmt::format("{} contains {} {}", site.name(), nan ? "NaN" : "infinity", when);
}

/// Returns the tensor of another rank that made this one fail, as "4.weight_grad of rank1 is NaN or
/// infinite at step 20": in the same step if all of this rank's own tensors are finite, else in the
/// update before. Ranks share their gradients; captures have several lanes only where these are the
/// ranks of one training. "" if there is none.
std::string fault_of_other_rank(const LaneFacts& lane, const BadStart& start) {
  if (!lane.captured() || start.row == nullptr) return "";
  if (start.site < 0 && !lane.loss_is_fine(*start.row)) return "";  // the loss is its own
  const int64_t step = start.site < 0 ? start.step : start.step - 1;
  for (const StepRow& own : lane.steps()) {
    const bool before = own.step == step && own.step < start.step;
    if (before && (own.skipped || own.first_bad >= 0)) return "";
  }
  for (int other = 0; other < lane.run().lane_count(); ++other) {
    const LaneInfo& info = lane.run().lane(other);
    if (other == lane.lane() || !is_capture(info.backend)) continue;
    for (const StepRow& row : lane.run().steps(other)) {
      if (row.step != step || row.first_bad < 0) continue;
      return fmt::format("{} of {} is NaN or infinite at step {}",
                         info.sites[static_cast<size_t>(row.first_bad)].name(), info.name, step);
    }
  }
  return "";
}

/// Returns whether the reference fails at this step, too.
bool reference_fails(const LaneFacts& lane, int64_t step) {
  if (lane.reference() < 0 || lane.inference()) return false;
  const std::span<const StepRow> rows = lane.run().steps(lane.reference());
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const StepRow& each) { return each.step == step; });
  return row != rows.end() && !std::isfinite(row->loss);
}

void find_first_non_finite(const LaneFacts& lane, std::vector<Finding>& findings) {
  const SkipCourse course = course_of(lane);
  const std::optional<BadStart> start = find_start(lane, course);
  if (!start) return;
  const bool known = start->site >= 0;
  const bool loss_lost = start->row != nullptr && !lane.loss_is_fine(*start->row);
  const bool forward = known ? is_forward(lane.site(start->site)) : loss_lost;

  Finding finding{.rule = "first_non_finite", .lane = lane.lane()};
  const bool dynamic = lane.scales_dynamically();
  finding.severity = severity_of(lane, course, forward, dynamic);
  // The network's own infinities are not worth a finding where nothing follows from them.
  if (lane.full_precision() && finding.severity == Severity::info) return;
  finding.step = start->step;
  finding.evidence = {{"skipped_steps", static_cast<double>(course.skipped)},
                      {"steps", static_cast<double>(course.steps)},
                      {"first_loss_scale", course.first_scale},
                      {"last_loss_scale", course.last_scale}};
  // The gradients of a loss that is NaN are NaN, where the forward pass was not recorded.
  const bool loss_first = lane.captured() && loss_lost && !forward &&
                          (start->record == nullptr || !start->record->forward_bad);
  const std::string when =
      fmt::format("at {} {}", lane.inference() ? "batch" : "step", start->step);
  if (const std::string other = fault_of_other_rank(lane, *start); !other.empty()) {
    // A skipped step is judged by the other rank's finding.
    if (!known) finding.severity = Severity::info;
    finding.mechanism = other + ", and the ranks share their gradients";
    finding.text = fmt::format("First non-finite value: {}. ", finding.mechanism);
  } else if (loss_alone_fails(lane, *start)) {
    blame_loss(lane, *start, finding);
    if (finding.severity == Severity::info) {
      finding.action = {.text =
                            "Nothing to change: a loss that contains scaled gradients, such as "
                            "a gradient penalty, is finite once the loss scale fits."};
    }
  } else if (known && !loss_first) {
    const SiteInfo& site = lane.site(start->site);
    finding.site = site.name();
    finding.layer = site.path;
    const std::optional<TensorStats> stats =
        start->record != nullptr ? lane.stats(start->site, start->record->step) : std::nullopt;
    finding.mechanism = beginning(lane, site, stats, when);
    const std::string chain = chain_of(lane, *start);
    const int64_t good = last_good_step(lane, course);
    const bool earlier =
        start->step > good &&
        std::any_of(lane.recorded().begin(), lane.recorded().end(), [&](const RecordedStep& each) {
          return each.step < good && !each.bad.empty();
        });
    finding.evidence["chain"] = chain;
    finding.text =
        fmt::format("First non-finite value{}: {}. It spread through: {}. ",
                    earlier ? fmt::format(" after step {}", good) : "", finding.mechanism, chain);
    name_cause(lane, course, *start, finding);
  } else {
    finding.mechanism = fmt::format(
        "{} {}", loss_lost ? "the loss is NaN or infinite" : "the update was skipped", when);
    finding.text = fmt::format("First non-finite value: {}{}. ", finding.mechanism,
                               record_of(lane, start->step) != nullptr && !loss_first
                                   ? ""
                                   : " (the tensors of its forward pass were not recorded)");
  }
  const bool no_slope = known && !loss_first && slope_is_invalid(lane, course, *start);
  if (no_slope) finding.severity = std::max(finding.severity, Severity::warning);
  finding.text += outcome_text(lane, course, finding.severity, forward, !no_slope);
  if (reference_fails(lane, start->step)) {
    finding.text += fmt::format(" {}'s loss is not finite there either.",
                                lane.run().lane(lane.reference()).name);
  }
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::first_non_finite{.id = "first_non_finite", .run = find_first_non_finite};

}  // namespace halfscope
