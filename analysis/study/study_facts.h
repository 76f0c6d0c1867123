// SPDX-License-Identifier: MIT
// StudyFacts: everything that the reports and the viewer say about a study, computed once from a
// StudyView. It reads no clock, no worker and no file: the same results give the same bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "analysis/report/report.h"
#include "analysis/study/intervals.h"
#include "analysis/study/study_view.h"

namespace halfscope {

/// Losses of a group's trials at one step. Losses that are not finite count as infinitely large.
struct LossBand {
  double step = 0.0;
  double low = 0.0, lower_quartile = 0.0, median = 0.0, upper_quartile = 0.0, high = 0.0;
  int trials = 0;  ///< that reached the step
};

/// A tensor with the first overflow or non-finite value of some trials.
struct FirstLayer {
  std::string layer{}, role{};
  int trials = 0;            ///< in which it came first
  int failing = 0;           ///< of these, how many fail
  double median_step = 0.0;  ///< of the first overflow or non-finite value in these trials
};

/// Why trials of a group fail, in half a sentence, and how many say so.
struct FailReason {
  std::string text{};  ///< "conv2 overflows"
  int trials = 0;
};

/// Trials that differ in the seed alone: a row of the heat map.
struct StudyGroup {
  std::string name{};  ///< "mixed_float16", "mixed_float16 (loss scale none)"
  bool baseline = false;
  std::vector<int> places{};  ///< by axis; -1: the axis does not apply, or it is the seed
  std::vector<int> trials{};  ///< by column: index into StudyView::trials(), -1 without a trial
  int planned = 0, finished = 0, failing = 0;
  int not_trained = 0;  ///< their command failed
  /// Finished trials whose loss ends further below the baseline's than the tolerance. If they are
  /// about as many as the failing ones, gaps are the noise of training rather than precision.
  int ahead = 0;
  Interval interval{};                ///< of the share of failing trials among the finished ones
  std::vector<FailReason> reasons{};  ///< the most frequent first
  // Medians over the finished trials. Empty if nothing was measured.
  std::optional<double> loss{}, test_loss{}, accuracy{}, bits{}, first_bad_step{};
  /// Gaps to the baseline's loss: median, smallest and largest. Infinite if the loss is not finite;
  /// 0 for baselines.
  std::optional<double> gap{}, least_gap{}, worst_gap{};
  bool on_front = false;  ///< of the Pareto front, see make_study_facts()
  /// Whether some baseline that it is compared with has learned. If none has, gaps and failures say
  /// nothing about its formats.
  bool comparable = true;
  std::vector<LossBand> fan{};
  std::vector<FirstLayer> first_layers{};  ///< most frequent first

  int waiting() const noexcept { return planned - finished - not_trained; }
  /// Returns whether its failures may be noise: all have finite losses, and at least half as many
  /// trials end as far below the baseline.
  bool may_be_noise(const StudyView& study) const;
  /// Returns whether the median loss ends within kLearnedPart of where it began, above or below: a
  /// loss may be maximized.
  bool ends_where_it_began() const noexcept;
  /// Returns the share of failing trials; NaN if none has finished.
  double failing_share() const noexcept;
};

/// Everything that is said about a study.
struct StudyFacts {
  Verdict verdict{};
  std::string title{};                 ///< the study's name, or the plans in it
  int seed_axis = -1;                  ///< index of the axis `seed`; -1 without one
  std::vector<std::string> columns{};  ///< its values; one empty text without the axis
  std::vector<StudyGroup> groups{};    ///< baselines first, then in the order of the study
  int cheapest = -1;  ///< the comparable group that never failed with the fewest bits, or -1
  int planned = 0, finished = 0, failing = 0, not_trained = 0;

  int waiting() const noexcept { return planned - finished - not_trained; }
  /// Returns "plan" if the plan is all that differs between groups, else "combination".
  std::string noun = "plan";
  /// Returns "seed" if the columns are seeds, else "trial".
  const char* unit() const noexcept { return seed_axis >= 0 ? "seed" : "trial"; }
  /// Returns what a trial and its baseline have in common: "seed", or "settings" without seeds.
  const char* common() const noexcept { return seed_axis >= 0 ? "seed" : "settings"; }
  /// Returns the group of a trial; -1 if it has none.
  int group_of(int trial) const noexcept;
};

/// Computes the facts. A group is on the Pareto front if it is comparable, none of its trials
/// fails, and no other such group has fewer bits and a smaller median gap.
StudyFacts make_study_facts(const StudyView& study);

/// Returns a group per plan, with its name, by the rules of make_study_facts(): the baselines, then
/// the trials of each plan in the order of their axis, whatever else differs between them.
std::vector<StudyGroup> plan_groups(const StudyView& study);

/// Returns why a failing trial fails, in half a sentence: "conv2 overflows".
std::string fail_reason(const TrialRow& trial);
/// Returns "3 of 10 seeds".
std::string seeds_text(const StudyFacts& facts, int part, int whole);
/// Returns a gap as "+3.2%", "not finite", or "-" if it was not measured.
std::string study_gap_text(const std::optional<double>& gap);
/// Returns a trial's result in a word: "waiting", "not trained", "fails", "ok".
const char* trial_word(const TrialRow& trial) noexcept;
/// Returns the trial's values, without the seed and with it: "mixed_float16, seed 3".
std::string trial_name(const StudyView& study, const StudyFacts& facts, const TrialRow& trial);
/// Returns the gap, infinite where the trial's loss is not finite; empty if it was not measured.
std::optional<double> trial_gap(const TrialRow& trial);

// The reports.
/// `folder` is the way from the page to the study's folder, for links: "" or "../study/".
std::string study_html(const StudyView& study, const StudyFacts& facts, const std::string& folder);
/// Returns that way.
std::string study_links_from(const std::filesystem::path& page,
                             const std::filesystem::path& study_file);
std::string study_markdown(const StudyView& study, const StudyFacts& facts);
std::string study_markdown_summary(const StudyView& study, const StudyFacts& facts);
std::string study_json(const StudyView& study, const StudyFacts& facts);
std::string study_csv(const StudyView& study, const StudyFacts& facts);

}  // namespace halfscope
