// SPDX-License-Identifier: MIT
// The steps of make_report that have a file of their own, and the sums and words several writers
// share. Private to the reports.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/fixes/fixes.h"
#include "analysis/report/report.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope::report {

using halfscope::Rates;

/// 0 if there is nothing to take a share of.
inline double share(int64_t part, int64_t whole) noexcept { return share_of(part, whole); }

/// Of one tensor over the whole run.
Rates rates_of(const SiteReport& site) noexcept;
/// The largest of each over the tensors of a layer.
Rates worst_rates(const LayerReport& layer) noexcept;
/// For choosing which layers to show first: an overflow spreads, so one weighs more than any
/// share that is flushed or lost. What it spread to is innocent.
double suffering(const LayerReport& layer) noexcept;
/// Shorter runs have not shown the way of a loss scale yet: what follows from them is said with
/// care.
inline constexpr int64_t kFewSteps = 50;
/// Layers below this are not worth a line where room is short.
inline constexpr double kWorthShowing = 0.01;

/// "0.4%"; "not finite" for an infinite or NaN gap.
std::string gap_text(double gap);
/// "Test loss"; "Test loss (averages)" where evaluations took the moving averages.
std::string of_evaluation(const RunInfo& run, const std::string& measure);
/// One line a rule, so that a plan can be read and pasted.
std::string compact_plan(const std::string& plan_json);

/// The advice, or what its proof left of it, as text to paste.
std::string fix_of(const Report& report, const Recommendation& advice, FixTarget target);

/// The findings' worst of a lane at or above a severity; null if none.
const Finding* worst_of(const Report& report, int lane, Severity at_least);

// What make_report adds to a report that has lanes, layers, findings and recommendation.
void add_lane_states(Report& report);
void find_cure(const RunView& run, Report& report);
/// The lane of this run that has the advice for `lane` in it already, if it is the cure: it keeps
/// `layers` in fp32.
const LaneReport* cure_with(const Report& report, int lane, std::span<const std::string> layers);
Verdict judge(const Report& report);
void add_errors(const RunView& run, Report& report);
void add_sums(const RunView& run, Report& report);
void add_kernels(const RunView& run, Report& report);
/// The sums that lose most, overflows first, of those where it is worth a line.
std::vector<const SumReport*> worst_sums(const Report& report, size_t limit);
void add_proofs(const RunView& run, Report& report);
/// Where a search has found another cure than the rules advise, that takes the advice's place, and
/// findings that know no cause get the one that was proved.
void add_diagnosis(const RunView& run, Report& report);
void add_events(const RunView& run, Report& report);
void add_actions(const RunView& run, Report& report);
void add_reproduction(const RunView& run, Report& report);

}  // namespace halfscope::report
