// SPDX-License-Identifier: MIT
// first_non_finite: the first tensor of a lane with NaN or infinity, the path from there to the
// loss, and whether it was harmful or only the loss scaler finding its scale.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "analysis/format_limits.h"
#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/scale_ceiling.h"
#include "analysis/rules/site_words.h"
#include "analysis/rules/text.h"
#include "analysis/skipped_steps.h"

namespace halfscope {
namespace {

/// A dynamic scaler goes from 65536 to 1 in this many skipped steps; more is not calibration.
constexpr int64_t kCalibrationSkips = 16;
/// Until this step a dynamic scale may still be searching.
constexpr int64_t kCalibrationSteps = 4 * kCalibrationSkips;
constexpr double kRareSkips = 0.05;
/// The default start of dynamic scaling, as in torch's GradScaler.
constexpr double kUsualStart = 65536.0;
constexpr size_t kChainShown = 7;

struct Course {
  int64_t steps = 0, skipped = 0;
  int64_t first_skipped = 0;  ///< steps skipped at the very start, one after the other
  int64_t last_skipped = -1;  ///< index of the last skipped row
  /// Skips at a scale that had just grown: how a dynamic scale finds out that it is too large.
  int64_t probes = 0;
  int64_t last_other = -1;  ///< index of the last skipped row that was not a probe
  /// Other skips after a scale had worked for kSettledSteps steps in a row: gradients grew, or one
  /// of them was far larger than usual.
  int64_t late = 0, first_late = -1;
  bool loss_ends_finite = true;
  bool ends_skipped = false;
  bool harmed = false;  ///< a step that was not skipped had a non-finite loss
  double first_scale = 1.0, last_scale = 1.0;

  int64_t others() const noexcept { return skipped - probes; }
};

Course course_of(const LaneFacts& lane) {
  Course course;
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

struct Start {
  int64_t step = 0;
  int site = -1;                         ///< -1: not recorded, only the loss shows it
  const RecordedStep* record = nullptr;  ///< statistics of that step, if there are any
  const StepRow* row = nullptr;
};

bool is_recorded(const LaneFacts& lane, int64_t step) {
  const std::vector<RecordedStep>& steps = lane.recorded();
  return std::any_of(steps.begin(), steps.end(), [&](const RecordedStep& record) {
    return record.step <= step && step < record.step + record.step_count;
  });
}

/// Returns whether infinities of this site are known to be harmless.
bool is_absorbed(const LaneFacts& lane, int site) {
  const std::vector<RecordedStep>& steps = lane.recorded();
  return std::any_of(steps.begin(), steps.end(), [&](const RecordedStep& step) {
    return std::binary_search(step.absorbed.begin(), step.absorbed.end(), site);
  });
}

/// Returns whether the lane never recovers.
bool is_lost(const Course& course) {
  return !course.loss_ends_finite || (course.ends_skipped && course.last_scale < 1.0);
}

/// The last step with a finite forward and backward pass before the loss was lost: skipped steps
/// before it were overcome. Its update may be what went wrong. -1 if there is none, or if nothing
/// was lost.
int64_t last_good_step(const LaneFacts& lane, const Course& course) {
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

std::optional<Start> find_start(const LaneFacts& lane, const Course& course) {
  const int64_t good = last_good_step(lane, course);
  std::optional<Start> start;
  if (const RecordedStep* record = find_record(lane, good, is_lost(course))) {
    start = Start{.step = record->step, .site = lane.first_bad(*record), .record = record};
  }
  for (const StepRow& row : lane.steps()) {
    if (start && row.step > start->step) break;
    if (start && row.step == start->step) {
      start->row = &row;
      break;
    }
    if (row.step < good || is_recorded(lane, row.step)) continue;
    const bool finite = lane.loss_is_fine(row);
    const bool site_counts = row.first_bad >= 0 && !is_absorbed(lane, row.first_bad) &&
                             row.first_bad < static_cast<int>(lane.info().sites.size()) &&
                             (row.skipped || !lane.sums_wider(lane.site(row.first_bad)));
    if (!site_counts && finite && !row.skipped) continue;
    start = Start{.step = row.step, .site = site_counts ? row.first_bad : -1, .row = &row};
    break;
  }
  if (start) return start;
  // The statistics clear every tensor: only the loss or the update shows it.
  for (const StepRow& row : lane.steps()) {
    if (row.step < good || lane.inference()) continue;
    if (lane.loss_is_fine(row) && !row.skipped) continue;
    return Start{.step = row.step, .site = -1, .row = &row};
  }
  return std::nullopt;
}

/// The loss scale is read in the forward pass, but it overflows gradients.
bool is_forward(const SiteInfo& site) {
  return site.phase == Phase::forward && !is_loss_scale(site);
}

/// Returns the forward sites that became NaN or infinite after the start and depend on it.
std::vector<int> spread_forward(const LaneFacts& lane, const Start& start) {
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
std::vector<int> spread_backward(const LaneFacts& lane, const Start& start) {
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
std::string chain_of(const LaneFacts& lane, const Start& start) {
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
bool is_calibration(const Course& course, bool dynamic) {
  const bool settles =
      course.others() <= kCalibrationSkips && course.last_other < kCalibrationSteps;
  return dynamic && settles &&
         static_cast<double>(course.late) <= kRareSkips * static_cast<double>(course.steps);
}

bool is_rare(const Course& course) {
  return static_cast<double>(course.skipped) <= kRareSkips * static_cast<double>(course.steps) &&
         !course.ends_skipped;
}

/// Returns whether steps were skipped because gradients overflowed, not the forward pass.
bool scale_skips(const LaneFacts& lane) {
  const std::vector<RecordedStep>& steps = lane.recorded();
  return std::any_of(steps.begin(), steps.end(), [](const RecordedStep& step) {
    return step.skipped && step.gradients_overflow;
  });
}

Severity severity_of(const LaneFacts& lane, const Course& course, bool forward, bool dynamic) {
  if (is_lost(course)) return Severity::error;
  if (course.harmed) return Severity::warning;
  // forward_overflow judges the forward pass.
  if (course.skipped == 0 || (forward && !scale_skips(lane))) return Severity::info;
  return is_calibration(course, dynamic) || is_rare(course) ? Severity::info : Severity::warning;
}

/// Advises a lower scale for a gradient that overflows again and again.
void advise_lower_scale(const LaneFacts& lane, const Start& start, Finding& finding) {
  if (finding.severity == Severity::info || start.record == nullptr || start.row == nullptr) return;
  if (is_forward(lane.site(start.site))) return;
  if (!lane.scales_loss() || lane.full_precision()) return;
  const bool dynamic = lane.scales_dynamically();
  const double used = start.row->loss_scale;
  const std::optional<double> scale = scale_that_fits(lane);
  if (!scale) {
    const char* why = "the recorded gradients do not show which static scale would work.";
    if (!dynamic) {
      finding.action.text = fmt::format("Use dynamic loss scaling: {}", why);
    } else if (used > kUsualStart) {
      finding.action.text = fmt::format("Start dynamic loss scaling at the usual {}: {}",
                                        scale_text(kUsualStart), why);
    }
    return;
  }
  if (*scale >= used) return;  // no scale fixes that
  const char* how = dynamic ? "Start dynamic loss scaling at or below "
                            : "Use dynamic loss scaling, or a static scale of at most ";
  finding.action = {.edit = PlanEdit::with_loss_scale(*scale),
                    .text = how + scale_text(*scale) + "."};
}

/// Names gradients that overflow without any loss scale as the cause.
void blame_gradients(const LaneFacts& lane, const Start& start, Finding& finding) {
  if (finding.severity == Severity::info || start.record == nullptr) return;
  if (finding.cause != Mechanism::unknown || !lane.captured() || lane.full_precision()) return;
  const RecordedStep& record = *start.record;
  if (!record.gradients_overflow || record.forward_bad || !record.loss_finite) return;
  finding.cause = Mechanism::gradient_overflow;
  if (!finding.action.text.empty()) return;
  finding.action.text =
      lane.scales_loss()
          ? "Lower the loss scale, and make the gradients smaller: take means instead of sums."
          : "Make the gradients smaller: take the mean over samples and micro-batches instead of "
            "the sum, or multiply the loss by less. torch.amp.GradScaler finds a factor that works "
            "and divides it out again.";
}

/// Names data that are not finite as the cause.
void blame_data(const LaneFacts& lane, const Start& start, Finding& finding) {
  if (start.record == nullptr || !lane.captured()) return;
  const SiteInfo& site = lane.site(start.site);
  const bool of_layer = lane.nodes()[static_cast<size_t>(lane.node_of(start.site))].layer >= 0;
  const std::optional<TensorStats> stats = lane.stats(start.site, start.record->step);
  if (site.role != Role::input || of_layer || !stats || stats->non_finite() == 0) return;
  if (stats->nan == 0 && lane.infinity_is_overflow(site)) return;  // the format's fault
  const char* what = stats->nan > 0 ? "NaN" : "infinity";
  finding.cause = Mechanism::bad_data;
  finding.mechanism = fmt::format("the data contain {} at step {}", what, start.step);
  finding.action.text =
      fmt::format("Clean the data: the batch of step {} contains {} ({} of {} numbers of {}).",
                  start.step, what, stats->non_finite(), stats->n, site.name());
}

/// Names what fails in full precision with the initial weights: neither a format nor the learning
/// rate is the cause.
void blame_formula(const LaneFacts& lane, const Start& start, Finding& finding) {
  if (!lane.captured() || !lane.full_precision() || start.record == nullptr) return;
  const bool untrained = !lane.inference() && start.step <= lane.first_update();
  if (!untrained || lane.site(start.site).role != Role::activation) return;
  const int node = lane.node_of(start.site);
  const std::string where =
      lane.is_function(node) ? code_words(lane, node) : lane.site(start.site).path;
  const std::optional<TensorStats> stats = lane.stats(start.site, start.record->step);
  finding.cause = Mechanism::invalid_result;
  finding.mechanism = fmt::format("{} gives {} at step {}, with the initial weights", where,
                                  stats && stats->nan == 0 ? "infinity" : "NaN", start.step);
  finding.action.text = fmt::format(
      "Look at the formulas of {}: a softmax of a row that is masked completely, 0 / 0, log(0), or "
      "infinity minus infinity has no result in any format.",
      where);
}

/// Returns whether all that modules gave in this step is finite and recorded, but not the loss.
bool loss_alone_fails(const LaneFacts& lane, const Start& start) {
  if (!lane.captured() || !lane.has_loss() || start.record == nullptr || start.row == nullptr) {
    return false;
  }
  if (start.record->forward_bad || lane.loss_is_fine(*start.row)) return false;
  return std::any_of(lane.info().sites.begin(), lane.info().sites.end(), [&](const SiteInfo& site) {
    const std::optional<TensorStats> stats = lane.stats(site.order, start.record->step);
    return site.role == Role::activation && stats && stats->n > 0;
  });
}

/// Describes a loss that is not finite although all outputs of the model are.
void blame_loss(const LaneFacts& lane, const Start& start, Finding& finding) {
  const bool infinite = std::isinf(start.row->loss);
  finding.layer = "loss";
  finding.cause = Mechanism::invalid_result;
  finding.mechanism = fmt::format(
      "the loss function gives {} at step {}, although all outputs of the model are finite",
      infinite ? "infinity" : "NaN", start.step);
  finding.text = fmt::format("First non-finite value: {}. ", finding.mechanism);
  finding.action.text = fmt::format(
      "{}Take the function of torch where there is one: F.cross_entropy, "
      "F.binary_cross_entropy_with_logits or logsumexp instead of log and exp.",
      lane.full_precision() ? ""
                            : "Compute the loss in fp32: call .float() on the outputs of the "
                              "model, and leave autocast before the loss function. ");
}

/// Names the loss function as the cause where the gradient that it gives to the network's output
/// overflows, and would without a loss scale.
void blame_loss_gradient(const LaneFacts& lane, const Start& start, Finding& finding) {
  if (finding.severity == Severity::info || start.record == nullptr || !lane.captured()) return;
  const SiteInfo& site = lane.site(start.site);
  const ForwardNode& node = lane.nodes()[static_cast<size_t>(lane.node_of(start.site))];
  if (site.role != Role::activation_grad || !node.readers.empty()) return;
  const std::optional<double> ceiling = scale_ceiling(lane);
  if (!start.record->gradients_overflow || !ceiling || *ceiling >= 1.0) return;
  finding.cause = Mechanism::gradient_overflow;
  finding.mechanism = fmt::format(
      "the loss function gives {} a gradient that overflows {}, even without a loss "
      "scale",
      site.path, format_name(site.format));
  finding.action = {
      .text =
          "Compute the loss in fp32, and with functions that are stable: "
          "F.binary_cross_entropy_with_logits or F.logsigmoid instead of the logarithm of "
          "torch.sigmoid, F.cross_entropy instead of the logarithm of a softmax. "
          "If its targets are large numbers, divide them by their size."};
}

/// Names the loss scale as the cause where a lower one is advised.
void blame_scale(const LaneFacts& lane, const Course& course, const Start& start,
                 Finding& finding) {
  if (finding.action.text.empty() || start.row == nullptr || start.record == nullptr) return;
  // Updates do not depend on the scale, and infinite gradients may come from the operators.
  if (!start.record->gradients_overflow || lane.site(start.site).phase != Phase::backward) return;
  const std::string scale = scale_text(start.row->loss_scale);
  std::string fault = "its loss scale is too large at " + scale;
  if (!lane.scales_dynamically()) {
    fault = fmt::format("its loss scale of {} is too large", scale);
  } else if (course.late > 0 && course.late == course.others()) {
    fault =
        fmt::format("gradients are larger from step {} on, so its loss scale of {} is too large",
                    start.step, scale);
  } else if (course.first_skipped > kCalibrationSkips) {
    fault = "its loss scale starts far too high, at " + scale;
  }
  finding.cause = Mechanism::loss_scale;
  finding.mechanism = fmt::format("{}: {}", fault, finding.mechanism);
}

/// Describes the updates that were skipped because a gradient overflowed.
std::string skips_text(const Course& course, Severity severity, bool dynamic) {
  const std::string steps = counted(course.steps, "step");
  const bool one = course.skipped == 1;
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

std::string outcome_text(const LaneFacts& lane, const Course& course, Severity severity,
                         bool forward) {
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
  return skips_text(course, severity, lane.scales_dynamically());
}

/// Returns "fc1 contains NaN at step 3".
std::string beginning(const LaneFacts& lane, const SiteInfo& site,
                      const std::optional<TensorStats>& stats, const std::string& when) {
  const bool rounded = lane.infinity_is_overflow(site);
  const TensorStats counts = stats.value_or(TensorStats{});
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
std::string fault_of_other_rank(const LaneFacts& lane, const Start& start) {
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
  const Course course = course_of(lane);
  const std::optional<Start> start = find_start(lane, course);
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
  const std::string when =
      fmt::format("at {} {}", lane.inference() ? "batch" : "step", start->step);
  if (const std::string other = fault_of_other_rank(lane, *start); !other.empty()) {
    // A skipped step is judged by the other rank's finding.
    if (!known) finding.severity = Severity::info;
    finding.mechanism = other + ", and the ranks share their gradients";
    finding.text = fmt::format("First non-finite value: {}. ", finding.mechanism);
  } else if (loss_alone_fails(lane, *start)) {
    blame_loss(lane, *start, finding);
  } else if (known) {
    const SiteInfo& site = lane.site(start->site);
    finding.site = site.name();
    finding.layer = site.path;
    const std::optional<TensorStats> stats =
        start->record != nullptr ? lane.stats(start->site, start->record->step) : std::nullopt;
    finding.mechanism = beginning(lane, site, stats, when);
    const std::string chain = chain_of(lane, *start);
    finding.evidence["chain"] = chain;
    finding.text = fmt::format("First non-finite value: {}. It spread through: {}. ",
                               finding.mechanism, chain);
    advise_lower_scale(lane, *start, finding);
    blame_loss_gradient(lane, *start, finding);
    if (finding.cause == Mechanism::unknown) blame_scale(lane, course, *start, finding);
    blame_formula(lane, *start, finding);
    blame_data(lane, *start, finding);
    blame_gradients(lane, *start, finding);
  } else {
    finding.mechanism = fmt::format(
        "{} {}", loss_lost ? "the loss is NaN or infinite" : "the update was skipped", when);
    finding.text = fmt::format(
        "First non-finite value: {}{}. ", finding.mechanism,
        is_recorded(lane, start->step) ? "" : " (the tensors of this step were not recorded)");
  }
  finding.text += outcome_text(lane, course, finding.severity, forward);
  if (reference_fails(lane, start->step)) {
    finding.text += fmt::format(" {}'s loss is not finite there either.",
                                lane.run().lane(lane.reference()).name);
  }
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::first_non_finite{.id = "first_non_finite", .run = find_first_non_finite};

}  // namespace halfscope
