// SPDX-License-Identifier: MIT
// The writer of the study file `study.sqlite`. One process at a time writes it; all it contains
// can be made again from study.json and the run files of the trials.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "analysis/study/study_view.h"

namespace halfscope {

class StudyFile {
 public:
  /// Opens the file, or creates it if it does not exist, and replaces its contents by this study
  /// without results. Calls `before_replacing` when no other process can write the file any more
  /// and nothing of it has been replaced; the file stays as it was if that throws. Throws Error if
  /// the file cannot be written, is not a study file or is being written by another process.
  StudyFile(const std::filesystem::path& file, const StudyInfo& info,
            std::span<const TrialSpec> trials, const std::function<void()>& before_replacing = {});
  /// Commits, and closes the file as one plain file.
  ~StudyFile();
  StudyFile(const StudyFile&) = delete;
  StudyFile& operator=(const StudyFile&) = delete;

  /// Sets the result of a trial. Readers see it after commit().
  void write(int trial, const TrialResult& result);
  /// Makes everything written so far visible to readers, in one transaction.
  void commit();

 private:
  class Writer;
  std::unique_ptr<Writer> writer_;
};

}  // namespace halfscope
