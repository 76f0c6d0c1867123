// SPDX-License-Identifier: MIT
// The sections that study_html.cpp puts together. Private to the HTML report of a study.
#pragma once

#include <string>
#include <string_view>

#include "analysis/study/study_facts.h"

namespace halfscope::study_html_parts {

/// More rows would make the page too large to mail; the CSV report has all.
inline constexpr size_t kTrialRows = 2000;

// study_html_map.cpp
/// Returns the heat map: a row for each group with its share of failing trials.
std::string heat_map(const StudyView& study, const StudyFacts& facts);

// study_html_charts.cpp
/// Returns cost against loss gap; "" if no group has both.
std::string pareto_chart(const StudyView& study, const StudyFacts& facts);
/// Returns the losses of each group beside the baseline's; "" without losses.
std::string fans(const StudyView& study, const StudyFacts& facts);

// study_html_trials.cpp
std::string first_layers(const StudyFacts& facts);
std::string trial_table(const StudyView& study, const StudyFacts& facts, const std::string& folder);

/// Returns the group of the baseline that a group is compared with; -1 without one.
int baseline_of(const StudyView& study, const StudyFacts& facts, const StudyGroup& group);

}  // namespace halfscope::study_html_parts
