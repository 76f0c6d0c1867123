// SPDX-License-Identifier: MIT
// The folder of a study: study.sqlite and trials/HASH.hscope. A trial is finished if its run file
// is there: the file gets its name when it is complete. trials/HASH.error says why a trial could
// not be trained.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "cli/sweep/study.h"

namespace halfscope {

/// Returns the folder of a study without --out: its name without ".json", and "-study".
std::filesystem::path usual_folder(const std::filesystem::path& study_file);

std::filesystem::path error_file(const std::filesystem::path& run);
/// Does not throw: that a trial failed is known anyhow.
void write_trial_error(const std::filesystem::path& run, const std::string& what) noexcept;

class StudyFolder {
 public:
  explicit StudyFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path study_file() const { return study_file_of(folder_); }

  /// Makes the folder. Throws Error (usage) if it cannot be made or written to.
  void make() const;
  /// Throws Error, of kind usage if the folder has a study without any of these trials, or one that
  /// another version of the program made.
  void check_is_of(const StudyPlan& study) const;
  /// Returns whether the trial's run file is there and complete.
  bool is_finished(const StudyTrial& trial) const;
  /// Returns the results of all trials, in the order of the study. Trials that failed have the
  /// status `failed`; trials whose run file is cut off or damaged are waiting, whatever the study
  /// file says. Reads all run files. `damaged` gets the number of those that cannot be used.
  std::vector<TrialResult> results(const StudyPlan& study, int64_t* damaged = nullptr) const;
  /// Removes what killed processes have left of trials that are finished now.
  void remove_leftovers() const;

 private:
  std::set<std::string> files() const;

  std::filesystem::path folder_;
};

}  // namespace halfscope
