// SPDX-License-Identifier: MIT
#include "analysis/rules/non_finite_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "analysis/format_limits.h"
#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/scale_ceiling.h"
#include "analysis/rules/site_words.h"
#include "analysis/rules/text.h"

namespace halfscope {

bool is_lost(const SkipCourse& course) {
  return !course.loss_ends_finite || (course.ends_skipped && course.last_scale < 1.0);
}

bool is_forward(const SiteInfo& site) {
  return site.phase == Phase::forward && !is_loss_scale(site);
}

bool loss_alone_fails(const LaneFacts& lane, const BadStart& start) {
  if (!lane.captured() || !lane.has_loss() || start.record == nullptr || start.row == nullptr) {
    return false;
  }
  if (start.record->forward_bad || lane.loss_is_fine(*start.row)) return false;
  return std::any_of(lane.info().sites.begin(), lane.info().sites.end(), [&](const SiteInfo& site) {
    const std::optional<TensorStats> stats = lane.stats(site.order, start.record->step);
    return site.role == Role::activation && stats && stats->n > 0;
  });
}

void blame_loss(const LaneFacts& lane, const BadStart& start, Finding& finding) {
  const bool infinite = std::isinf(start.row->loss);
  finding.layer = "loss";
  finding.cause = Mechanism::invalid_result;
  finding.mechanism =
      fmt::format("the loss function gives {} at step {}, although all outputs of the model are {}",
                  infinite ? "infinity" : "NaN", start.step,
                  start.record->absorbed.empty() ? "finite" : "finite or masked by -infinity");
  finding.text = fmt::format("First non-finite value: {}. ", finding.mechanism);
  const std::string advice = loss_advice(lane);
  finding.action.text = fmt::format(
      "{}{}{}Take the function of torch where there is one: F.cross_entropy, "
      "F.binary_cross_entropy_with_logits or logsumexp instead of log and exp. If you do that "
      "already, some targets have no finite loss: a row that is masked completely, a probability "
      "of 0, or for CTC a target that is longer than its input (zero_infinity=True).",
      advice, advice.empty() ? "" : " ",
      !infinite ? ""
      : lane.full_precision()
          ? "Infinite targets make the loss infinite, too. "
          : "Infinite targets make the loss infinite, too: keep them in fp32. ");
}

bool slope_is_invalid(const LaneFacts& lane, const SkipCourse& course, const BadStart& start) {
  if (!lane.captured() || lane.inference() || start.record == nullptr || start.row == nullptr) {
    return false;
  }
  const RecordedStep& record = *start.record;
  if (record.forward_bad || record.gradients_overflow || !lane.loss_is_fine(*start.row)) {
    return false;
  }
  const std::optional<TensorStats> stats = lane.stats(start.site, record.step);
  // A scale that had worked before is no reason.
  const bool worked =
      std::any_of(lane.steps().begin(), lane.steps().end(), [&](const StepRow& row) {
        return row.step < start.step && !row.skipped && row.loss_scale >= start.row->loss_scale;
      });
  const bool lasts = course.skipped == course.steps || is_lost(course) || worked;
  return lasts && lane.site(start.site).phase == Phase::backward && stats && stats->nan > 0 &&
         stats->nan == stats->non_finite();
}

namespace {

/// The default start of dynamic scaling, as in torch's GradScaler.
constexpr double kUsualStart = 65536.0;

/// Advises a lower scale for a gradient that overflows again and again.
void advise_lower_scale(const LaneFacts& lane, const BadStart& start, Finding& finding) {
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
void blame_gradients(const LaneFacts& lane, const BadStart& start, Finding& finding) {
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
void blame_data(const LaneFacts& lane, const BadStart& start, Finding& finding) {
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
void blame_formula(const LaneFacts& lane, const BadStart& start, Finding& finding) {
  if (!lane.captured() || !lane.full_precision() || start.record == nullptr) return;
  const bool untrained = !lane.inference() && start.step <= lane.first_update();
  if (!untrained || lane.site(start.site).role != Role::activation) return;
  const int node = lane.node_of(start.site);
  const std::string where = code_words(lane, node);
  const std::optional<TensorStats> stats = lane.stats(start.site, start.record->step);
  finding.cause = Mechanism::invalid_result;
  finding.mechanism = fmt::format("{} gives {} at step {}, with the initial weights", where,
                                  stats && stats->nan == 0 ? "infinity" : "NaN", start.step);
  finding.action.text = fmt::format(
      "Look at the formulas of {}: a softmax of a row that is masked completely, 0 / 0, log(0), or "
      "infinity minus infinity has no result in any format.",
      where);
}

/// Names the loss function as the cause where the gradient that it gives to the network's output
/// overflows, and would without a loss scale.
void blame_loss_gradient(const LaneFacts& lane, const BadStart& start, Finding& finding) {
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

/// Names a function without a slope as the cause, as the square root at 0.
void blame_slope(const LaneFacts& lane, const BadStart& start, Finding& finding) {
  const SiteInfo& site = lane.site(start.site);
  const ForwardNode& node = lane.nodes()[static_cast<size_t>(lane.node_of(start.site))];
  const bool of_loss = site.role == Role::activation_grad && node.readers.empty();
  finding.cause = Mechanism::invalid_result;
  finding.mechanism =
      of_loss ? fmt::format(
                    "the loss function gives {} a gradient that is NaN at step {}, although "
                    "the loss is finite",
                    site.path, start.step)
              : fmt::format("{} is NaN at step {}, although the loss is finite", site.name(),
                            start.step);
  finding.action.text = fmt::format(
      "Look in {} for a square root, a norm or a distance that is 0: its slope there is infinite, "
      "and infinity times 0 is NaN. Add a small number under the root, as in torch.sqrt(x + eps). "
      "A logsumexp or softmax of a row that is masked completely has no slope either.{}",
      of_loss ? "the loss function" : "the loss function and in what reads these values",
      lane.full_precision() ? ""
                            : " Compute it in fp32, where fewer squares and differences become 0.");
}

/// Names the loss scale as the cause where a lower one is advised.
void blame_scale(const LaneFacts& lane, const SkipCourse& course, const BadStart& start,
                 Finding& finding) {
  if (finding.action.text.empty() || start.row == nullptr || start.record == nullptr) return;
  // Updates do not depend on the scale, and infinite gradients may come from the operators.
  if (!start.record->gradients_overflow || lane.site(start.site).phase != Phase::backward) return;
  const std::string scale = scale_text(start.row->loss_scale);
  if (lane.captured() && start.row->loss_scale <= 1.0) {  // which makes no gradient larger
    finding.cause = Mechanism::gradient_overflow;
    finding.mechanism += fmt::format(", even at a loss scale of {}", scale);
    finding.action = keep_in_fp32({lane.site(start.site).path});
    return;
  }
  std::string fault = "its loss scale is too large at " + scale;
  if (!lane.scales_dynamically()) {
    fault = fmt::format("its loss scale of {} is too large", scale);
  } else if (course.late > 0 && course.late == course.others()) {
    fault =
        fmt::format("gradients are larger from step {} on, so its loss scale of {} is too large",
                    start.step, scale);
  } else if (course.first_skipped > kCalibrationSkips && &lane.steps().front() == start.row) {
    fault = "its loss scale starts far too high, at " + scale;
  }
  finding.cause = Mechanism::loss_scale;
  finding.mechanism = fmt::format("{}: {}", fault, finding.mechanism);
}

}  // namespace

void name_cause(const LaneFacts& lane, const SkipCourse& course, const BadStart& start,
                Finding& finding) {
  advise_lower_scale(lane, start, finding);
  blame_loss_gradient(lane, start, finding);
  if (finding.cause == Mechanism::unknown) blame_scale(lane, course, start, finding);
  blame_formula(lane, start, finding);
  blame_data(lane, start, finding);
  blame_gradients(lane, start, finding);
  if (finding.cause == Mechanism::unknown && slope_is_invalid(lane, course, start)) {
    blame_slope(lane, start, finding);
  }
}

}  // namespace halfscope
