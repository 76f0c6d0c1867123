// SPDX-License-Identifier: MIT
// unsafe_buffers: running statistics that a skipped step has corrupted, or that are larger than
// their format's largest number. A step whose gradients are not finite is skipped, but where the
// forward pass itself updates its running means, the infinities of that step stay in them and show
// at the next evaluation (PyTorch issues 88474 and 90342).
#include <fmt/format.h>

#include <algorithm>

#include "analysis/format_limits.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

constexpr const char* kCure =
    "Update them only with the weights: \"variables\": {\"buffers\": \"on_step\"} in the plan.";

bool commits_always(const LaneInfo& lane) {
  return plan_text(lane.plan_json, "/variables/buffers") == "always";
}

/// Returns skipped steps whose tensors were not recorded, as with --every N.
std::vector<int64_t> unseen_skips(const LaneFacts& lane) {
  std::vector<int64_t> steps;
  for (const StepRow& row : lane.steps()) {
    if (!row.skipped) continue;
    const auto& recorded = lane.recorded();
    const bool seen = std::any_of(recorded.begin(), recorded.end(), [&](const RecordedStep& step) {
      return step.step <= row.step && row.step < step.step + step.step_count;
    });
    if (!seen) steps.push_back(row.step);
  }
  return steps;
}

/// Reports a risk: nothing bad was seen, but nothing was recorded.
void suspect_unseen_skips(const LaneFacts& lane, std::vector<Finding>& findings) {
  const auto& sites = lane.info().sites;
  const auto buffer = std::find_if(sites.begin(), sites.end(), is_running_statistic);
  const std::vector<int64_t> steps = unseen_skips(lane);
  if (buffer == sites.end() || steps.empty()) return;
  Finding finding{.rule = "unsafe_buffers", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.site = buffer->name();
  finding.layer = buffer->path;
  finding.step = steps.front();
  finding.mechanism =
      fmt::format("{} may contain NaN or infinity from skipped steps", buffer->name());
  finding.evidence = {{"unrecorded_skips", static_cast<double>(steps.size())}};
  finding.text = fmt::format(
      "Batch-norm statistics may contain NaN or infinity. {} skipped (first: step {}), but the "
      "forward pass had already updated them. These steps were not recorded.",
      steps.size() == 1 ? "1 step was"
                        : counted(static_cast<int64_t>(steps.size()), "step") + " were",
      steps.front());
  finding.action = {.edit = PlanEdit::of(FixKind::buffers_on_step), .text = kCure};
  findings.push_back(std::move(finding));
}

/// Returns the first step at which a captured buffer is infinite although no tensor of the forward
/// pass, nor a loss, was NaN or infinite up to there; -1 if there is none. Then its own rounding
/// made it so: running statistics keep what an earlier step left in them.
int64_t rounded_to_infinity(const LaneFacts& lane, const SiteInfo& site) {
  if (!lane.infinity_is_overflow(site)) return -1;
  auto row = lane.steps().begin();
  for (const RecordedStep& record : lane.recorded()) {
    for (; row != lane.steps().end() && row->step < record.step + record.step_count; ++row) {
      if (!lane.loss_is_fine(*row)) return -1;
    }
    if (record.forward_bad) return -1;
    const std::optional<TensorStats> stats = lane.stats(site.order, record.step);
    if (stats && stats->pos_inf + stats->neg_inf > 0) return record.step;
  }
  return -1;
}

/// Reports statistics that do not fit their format, such as a variance above 65504.
void find_large_buffers(const LaneFacts& lane, std::vector<Finding>& findings) {
  std::vector<std::string> layers;
  const SiteInfo* worst = nullptr;
  double largest = 0.0;
  int64_t infinite_from = -1;  // of the worst
  for (const SiteInfo& site : lane.info().sites) {
    const TensorStats& stats = lane.run().total(lane.lane(), site.order);
    if (!is_running_statistic(site) || full_precision(site.format)) continue;
    const int64_t step = rounded_to_infinity(lane, site);
    if (stats.overflow == 0 && step < 0) continue;
    layers.push_back(site.path);
    // The numbers that became infinite before they were captured are unknown; the first counts.
    const double size = stats.overflow > 0 ? static_cast<double>(stats.max_abs) : 0.0;
    if (worst != nullptr && !(size > largest) && !(step >= 0 && step < infinite_from)) continue;
    worst = &site;
    largest = size;
    infinite_from = step;
  }
  if (worst == nullptr) return;
  layers = lane.in_order(std::move(layers));
  Finding finding{.rule = "unsafe_buffers", .lane = lane.lane()};
  finding.severity = Severity::error;
  finding.site = worst->name();
  finding.layer = worst->path;
  finding.cause = Mechanism::forward_overflow;
  const std::string format = format_name(worst->format);
  const std::string limit = short_number(worst->format.max_finite());
  finding.evidence = {{"layers", static_cast<double>(layers.size())}};
  if (infinite_from >= 0) {
    finding.step = infinite_from;
    finding.mechanism = fmt::format("{} is infinite: it is larger than {}, the largest {} number",
                                    worst->name(), limit, format);
    finding.text = finding.mechanism + ".";
  } else {
    finding.evidence["largest"] = largest;
    finding.mechanism = fmt::format("{} reaches {}, but the largest {} number is {}", worst->name(),
                                    short_number(largest), format, limit);
    finding.text = finding.mechanism + ", so it becomes infinite.";
  }
  finding.text +=
      " Training does not read it, but every evaluation does. A loss scale does not help.";
  finding.action = keep_in_fp32(std::move(layers));
  findings.push_back(std::move(finding));
}

void find_unsafe_buffers(const LaneFacts& lane, std::vector<Finding>& findings) {
  find_large_buffers(lane, findings);
  if (!commits_always(lane.info())) return;
  std::vector<std::string> layers;
  int first_site = -1;
  int64_t first_step = -1;
  for (const SiteInfo& site : lane.info().sites) {
    if (!is_running_statistic(site)) continue;
    for (const RecordedStep& step : lane.recorded()) {
      if (!step.skipped || !step.is_bad(site.order)) continue;
      layers.push_back(site.path);
      if (first_step < 0 || step.step < first_step) {
        first_step = step.step;
        first_site = site.order;
      }
      break;
    }
  }
  if (first_site < 0) return suspect_unseen_skips(lane, findings);
  layers = lane.in_order(std::move(layers));
  const SiteInfo& site = lane.site(first_site);
  Finding finding{.rule = "unsafe_buffers", .lane = lane.lane()};
  finding.severity = Severity::error;
  finding.site = site.name();
  finding.layer = site.path;
  finding.step = first_step;
  finding.mechanism =
      fmt::format("{} contains values from the skipped step {}", site.name(), first_step);
  finding.evidence = {{"layers", static_cast<double>(layers.size())}};
  finding.text = fmt::format(
      "Batch-norm statistics of {} contain NaN or infinity: step {} was skipped, but the forward "
      "pass had already updated them. Training is not affected, but every evaluation after that "
      "step is wrong.",
      name_list(layers), first_step);
  finding.action = {
      .edit = PlanEdit::of(FixKind::buffers_on_step), .layers = layers, .text = kCure};
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::unsafe_buffers{.id = "unsafe_buffers",
                                .run = find_unsafe_buffers,
                                .mechanism = Mechanism::spoiled_statistics,
                                .stands_alone = true};

}  // namespace halfscope
