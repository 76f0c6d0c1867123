// SPDX-License-Identifier: MIT
// The words of a study: names of its groups, its verdict, and short texts for reports and the
// viewer.
#pragma once

#include "analysis/study/study_facts.h"

namespace halfscope::study_words {

/// Adds the title, the noun and the name of every group.
void add_names(const StudyView& study, StudyFacts& facts);

/// Returns the verdict from everything else in the facts.
Verdict judge(const StudyView& study, const StudyFacts& facts);

/// Returns all reasons of a group with their counts, most frequent first: "conv2 overflows (6),
/// its loss is not finite (1)"; "" if none of its trials fails.
std::string reasons_text(const StudyGroup& group);

/// Returns "12 of 40 trials have finished."; "" if all have.
std::string progress_text(const StudyFacts& facts);

/// Returns "70% (40% to 89%)", or "-" if no trial has finished.
std::string share_text(const StudyGroup& group);

}  // namespace halfscope::study_words
