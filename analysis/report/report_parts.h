// SPDX-License-Identifier: MIT
// The steps of make_report that have their own file, and helpers that several writers share.
// Private to the reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/fixes/fixes.h"
#include "analysis/report/report.h"
#include "analysis/rules/harm.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope::report {

using halfscope::Rates;

/// Returns part / whole, or 0 if `whole` is 0.
inline double share(int64_t part, int64_t whole) noexcept { return share_of(part, whole); }

/// Returns the rates of one tensor over the whole run.
Rates rates_of(const SiteReport& site) noexcept;
/// Returns the largest of each rate over the tensors of a layer.
Rates worst_rates(const LayerReport& layer) noexcept;
/// Returns how much a layer loses, for choosing which layers to show first. Any overflow weighs
/// more than underflow or lost updates, because it spreads. Inherited NaN and infinity do not
/// count.
double suffering(const LayerReport& layer) noexcept;
/// Layers that lose less than this share get no row where space is short.
inline constexpr double kWorthShowing = 0.01;

/// Returns "0.4%"; "not finite" for an infinite or NaN gap.
std::string gap_text(double gap);
/// Returns "Test loss", or "Test loss (averages)" where evaluations used the moving averages.
std::string of_evaluation(const RunInfo& run, const std::string& measure);
/// Returns "test accuracy", of moving averages or not; "accuracy" for inference.
std::string score_name(const Report& report, const Score& score);
std::string sentence_case(std::string text);  ///< "Accuracy"
/// Returns the format of the tensor that suffering() is about; the layer's own if nothing is lost.
FloatFormat format_that_loses(const LayerReport& layer) noexcept;
/// From this number on, findings of a lane that say the same of several tensors are shown as one.
/// They have the same rule and severity.
inline constexpr size_t kAlike = 3;
/// Findings that a text shows as one.
struct FindingGroup {
  /// For each lane, indices into Report::findings: the first says it for all, the others say the
  /// same of other tensors.
  std::vector<std::vector<size_t>> lanes;
  std::string shared;  ///< sentences that all lanes have; see text_of()
};
/// Returns all findings in groups, the most severe first. A group is one problem in several tensors
/// of a lane, or in several lanes.
std::vector<FindingGroup> finding_groups(const Report& report);
/// Returns the names of a group's lanes.
std::vector<std::string> lanes_of(const Report& report, const FindingGroup& group);
/// Returns what a group says: the sentences that its lanes share, then those that only some have.
std::string text_of(const Report& report, const FindingGroup& group);
/// Returns "40 of 200", or "40" where the number of planned steps is not known.
std::string steps_text(const Report& report);
/// Returns the plan with one rule per line, to be read and pasted.
std::string compact_plan(const std::string& plan_json);

/// Returns the advice (the proved part of it, if a proof holds) as text to paste.
std::string fix_of(const Report& report, const Recommendation& advice, FixTarget target);

/// Returns whether the answer under the verdict is a plan that this run has tested, and not the
/// first of the report's actions.
bool answered_otherwise(const Report& report);

/// Returns a lane's worst finding at or above a severity; null if there is none.
const Finding* worst_of(const Report& report, int lane, Severity at_least);

// The steps of make_report, called once the report has lanes, layers, findings and recommendation.
void add_lane_states(Report& report);
void find_cure(const RunView& run, Report& report);
/// Returns the cure of `lane` in this run if it follows the advice already, that is, keeps `layers`
/// in fp32; else null.
const LaneReport* cure_with(const Report& report, int lane, std::span<const std::string> layers);
Verdict judge(const Report& report);
void add_errors(const RunView& run, Report& report);
void add_sums(const RunView& run, Report& report);
void add_kernels(const RunView& run, Report& report);
/// Returns the sums that lose most, overflows first, without those that lose next to nothing.
std::vector<const SumReport*> worst_sums(const Report& report, size_t limit);
void add_proofs(const RunView& run, Report& report);
/// Adds the diagnosis. If a search has found another cure than the rules advise, it replaces the
/// advice, and findings without a known cause get the proved one.
void add_diagnosis(const RunView& run, Report& report);
void add_events(const RunView& run, Report& report);
void add_actions(const RunView& run, Report& report);
void add_reproduction(const RunView& run, Report& report);

}  // namespace halfscope::report
