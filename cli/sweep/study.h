// SPDX-License-Identifier: MIT
// study.json (docs/reference/sweep.md): its settings and axes become a list of trials.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "analysis/study/study_view.h"
#include "cli/args/settings.h"
#include "core/error.h"

namespace halfscope {

/// A trial with everything that its training needs. It has one lane; files have absolute names.
struct StudyTrial {
  TrialSpec spec{};
  Settings settings{};
  /// The same for trials that differ in their seed only.
  std::string kind{};
};

struct StudyPlan {
  std::filesystem::path file{};  ///< absolute
  StudyInfo info{};
  int threads = 1;  ///< of each trial
  std::vector<StudyTrial> trials{};

  /// Returns what StudyFile takes.
  std::vector<TrialSpec> specs() const;
};

/// Reads study.json and lists its trials: the cross product of the axes, in the order of the file
/// and the last one fastest, then the baselines. Throws Error, of kind usage for whatever the file
/// says wrong: unknown keys, an axis without values, settings that do not fit together, trials that
/// are the same.
StudyPlan read_study(const std::string& file);

/// Returns the error with the name of the study file and of the key that caused it, if one did.
Error named_in_study(const StudyTrial& trial, const Error& error);

/// Statistics are recorded at about this many steps of a trial, unless the study has `every`.
inline constexpr int64_t kStudyRecordedSteps = 50;

}  // namespace halfscope
