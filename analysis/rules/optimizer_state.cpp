// SPDX-License-Identifier: MIT
// optimizer_state: state of the optimizer kept in a format that cannot represent it. The case that
// ends runs is a second moment v that is flushed to zero where the first one is not: the step
// m / (sqrt(v) + eps) is then divided by eps alone and is thousands of times too large. It shows
// as flushed state beside updates far beyond those of the full-precision lane, or, without one,
// beyond the variable itself. A momentum that is flushed makes no step larger, so of other state
// only overflow counts, and neither counts where fp32 has it as well.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "analysis/format_limits.h"
#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/shown_rate.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// A state may flush up to this share of its values without a finding.
constexpr double kStateFlushedShare = 0.05;
/// Updates this many times the reference's largest are not explained by the course of training.
constexpr double kBlownUp = 16.0;
/// The limit without a reference: more than weights, which are around 1 at most, can take.
constexpr double kBlownUpAlone = 1.0;

struct State {
  int site = -1;
  int64_t non_zero = 0, flushed = 0, overflow = 0;
  int64_t infinite = 0;  ///< of them in captures, which show no larger values
  int64_t values = 0;
  int64_t first_step = -1;
  double share() const { return share_of(flushed, non_zero); }
};

/// Returns the first step that was taken although something in it was not finite. From then on the
/// state is corrupted from outside and says nothing about its format.
int64_t first_harm(const LaneFacts& lane) {
  for (const RecordedStep& step : lane.recorded()) {
    if (!step.skipped && (step.forward_bad || step.backward_bad)) return step.step;
  }
  return std::numeric_limits<int64_t>::max();
}

/// Measures which of the state's values are lost that fp32 keeps.
State measure_state(const LaneFacts& lane, const SiteInfo& site, int64_t harm) {
  State state{.site = site.order};
  for (const PackedWindow& window : lane.run().windows(lane.lane(), site.order)) {
    if (window.step >= harm) break;
    const TensorCounts counts = window.counts();
    const TensorCounts theirs =
        lane.reference_counts(site.order, window.step).value_or(TensorCounts{});
    const int64_t flushed = std::max<int64_t>(counts.underflow - theirs.underflow, 0);
    const int64_t infinite = lane.infinity_is_overflow(site) ? counts.pos_inf + counts.neg_inf : 0;
    const int64_t overflow = std::max<int64_t>(counts.overflow - theirs.overflow, 0) + infinite;
    state.infinite += infinite;
    state.values += counts.n;
    state.non_zero += non_zero_values(counts);
    state.flushed += flushed;
    state.overflow += overflow;
    if (flushed + overflow > 0 && state.first_step < 0) state.first_step = window.step;
  }
  return state;
}

/// The first update of a layer that is far too large.
struct BlowUp {
  int64_t step = -1;
  double update = 0.0;
  double usual = 0.0;  ///< the largest that the full-precision lane ever makes; 0 if unknown
  bool nan = false;    ///< most bad values are NaN, which 0 / 0 gives

  /// Returns "reach 17" or "become NaN".
  std::string text() const { return nan ? "become NaN" : "reach " + short_number(update); }
};

/// A non-finite update counts as infinitely large.
double largest_of(const TensorStats& stats) {
  return stats.non_finite() > 0 ? INFINITY : static_cast<double>(stats.max_abs);
}

/// Looks at the updates of the variables whose state is in the same layer.
BlowUp find_blow_up(const LaneFacts& lane, const std::string& path, int64_t harm) {
  BlowUp first;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::update || site.path != path) continue;
    const std::optional<int> theirs = lane.reference_site(site.order);
    // Over the whole run: near the end of training, updates of both may be tiny.
    const double usual = theirs ? largest_of(lane.run().total(lane.reference(), *theirs)) : 0.0;
    const double limit = usual > 0.0 ? kBlownUp * usual : kBlownUpAlone;
    for (const PackedWindow& window : lane.run().windows(lane.lane(), site.order)) {
      if (window.step >= harm) break;
      const TensorStats stats = window.stats();
      const double update = largest_of(stats);
      if (update <= limit) continue;
      if (first.step < 0 || window.step < first.step) {
        first = {window.step, update, usual, 2 * stats.nan > stats.non_finite()};
      }
      break;
    }
  }
  return first;
}

/// Advises changing the setting that keeps the state in a narrow format.
Action advise_wide_state(const LaneFacts& lane, std::vector<std::string> layers) {
  const std::string compute = plan_text(lane.info().plan_json, "/variables/update_compute");
  if (!compute.empty()) {  // state is kept no wider than that
    return {.text = fmt::format("Let the optimizer compute in fp32 instead of {}: remove "
                                "--optimizer-compute, or set \"update_compute\": \"fp32\" under "
                                "\"variables\" in the plan.",
                                compute)};
  }
  const std::optional<FloatFormat> stored = storage_format(lane.info());
  if (stored && full_precision(*stored)) {  // only the state is narrow
    return {.text = "Keep the optimizer state in fp32: remove --optimizer-state."};
  }
  return {.edit = PlanEdit::of(FixKind::weights_fp32),
          .layers = std::move(layers),
          .text =
              "Keep weights and optimizer state in fp32: "
              "\"variables\": {\"storage\": \"fp32\"} in the plan."};
}

void find_optimizer_state(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.full_precision()) return;
  const int64_t harm = first_harm(lane);
  std::vector<std::string> layers;
  State worst;
  BlowUp worst_blow_up;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::state || site.phase != Phase::update) continue;
    if (lane.is_average(site)) continue;  // training does not read it
    if (full_precision(site.format)) continue;
    BlowUp blow_up = divides_steps(site) ? find_blow_up(lane, site.path, harm) : BlowUp{};
    // The state after updates have blown up says nothing about why they did.
    State state = measure_state(lane, site, blow_up.step < 0 ? harm : blow_up.step + 1);
    if (state.share() < kStateFlushedShare) blow_up = {};
    if (blow_up.step < 0 && state.overflow == 0) continue;
    layers.push_back(site.path);
    const bool worse = state.share() != worst.share() ? state.share() > worst.share()
                                                      : state.overflow > worst.overflow;
    if (worst.site < 0 || worse) worst = state;
    const bool earlier = blow_up.step >= 0 && blow_up.step < worst_blow_up.step;
    if (worst_blow_up.step < 0 || earlier) worst_blow_up = blow_up;
  }
  if (worst.site < 0) return;
  layers = lane.in_order(std::move(layers));
  const SiteInfo& site = lane.site(worst.site);
  const std::string format = format_name(site.format);

  Finding finding{.rule = "optimizer_state", .lane = lane.lane()};
  finding.severity = Severity::error;
  finding.site = site.name();
  finding.layer = site.path;
  finding.step = worst_blow_up.step >= 0 ? worst_blow_up.step : worst.first_step;
  finding.evidence = {{"flushed_share", run_rates(lane.run(), lane.lane(), worst.site).underflow},
                      {"judged_flushed_share", worst.share()},
                      {"overflow", static_cast<double>(worst.overflow)},
                      {"layers", static_cast<double>(layers.size())},
                      {"storage", format}};
  if (worst_blow_up.step >= 0) {
    finding.evidence["largest_update"] = worst_blow_up.update;
    if (worst_blow_up.usual > 0.0) finding.evidence["usual_update"] = worst_blow_up.usual;
    const ShownRate rate = shown_rate(lane, worst.site, &Rates::underflow, worst_blow_up.step + 1);
    std::string flushed = fmt::format("{} of the non-zero values of {} become 0",
                                      percent(rate.peaks() ? rate.worst : rate.run), site.name());
    if (rate.peaks()) {
      flushed +=
          fmt::format(" at {} ({} over the run)", worst_steps(lane, rate), percent(rate.run));
    }
    finding.mechanism = fmt::format("the optimizer state of {} underflows {}: {}, and updates {}",
                                    site.path, format, flushed, worst_blow_up.text());
    const std::string usual =
        worst_blow_up.usual > 0.0
            ? fmt::format(" The largest update in fp32 is {}.", short_number(worst_blow_up.usual))
            : "";
    finding.text = fmt::format(
        "The optimizer state of {} underflows {}: {}. Updates are divided by its square root, so "
        "they {} at step {}.{} Later problems follow from this.",
        name_list(layers), format, flushed, worst_blow_up.text(), worst_blow_up.step, usual);
    if (lane.scales_loss()) {
      finding.text += " A loss scale does not help, because it is divided out before the update.";
    }
  } else {
    finding.cause = Mechanism::state_overflow;
    const ShownRate rate = shown_rate(lane, worst.site, &Rates::overflow);
    const std::string overflow =
        worst.infinite > 0
            ? fmt::format("{} of the values of {} are infinite{}",
                          percent(share_of(worst.infinite, worst.values)), site.name(),
                          divides_steps(site) ? ", so their updates are 0" : "")
            : fmt::format("{} of the values of {} are larger than {}", percent(rate.run),
                          site.name(), short_number(site.format.max_finite()));
    finding.mechanism =
        fmt::format("the optimizer state of {} overflows {}: {}", site.path, format, overflow);
    finding.text = fmt::format("The optimizer state of {} overflows {}: {}.", name_list(layers),
                               format, overflow);
    if (rate.peaks()) {
      finding.text +=
          fmt::format(" The worst is {}, with {}.", worst_steps(lane, rate), percent(rate.worst));
    }
  }
  finding.text += " fp32 can represent it.";
  finding.action = advise_wide_state(lane, layers);
  findings.push_back(std::move(finding));
}

}  // namespace

// State that its format cannot represent corrupts the weights and everything after them.
const Rule rule::optimizer_state{
    .id = "optimizer_state",
    .run = find_optimizer_state,
    .mechanism = Mechanism::flushed_state,
    .explains = "Caused by the optimizer state above. Fix that first."};

}  // namespace halfscope
