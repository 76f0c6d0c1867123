// SPDX-License-Identifier: MIT
// StudyModel: a study prepared for drawing, from one snapshot of its file. It never changes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "analysis/study/study_facts.h"

namespace halfscope::gui {

class StudyModel {
 public:
  static std::shared_ptr<const StudyModel> make(std::string file, StudyView view) {
    return std::make_shared<const StudyModel>(std::move(file), std::move(view));
  }
  StudyModel(std::string file, StudyView view)
      : file_(std::move(file)), view_(std::move(view)), facts_(make_study_facts(view_)) {}

  const std::string& file() const noexcept { return file_; }
  const StudyView& view() const noexcept { return view_; }
  const StudyFacts& facts() const noexcept { return facts_; }
  /// A FileLoader reads live files again now and then, as a run whose writer has died looks
  /// different without a change of its file. A study does not.
  bool live() const noexcept { return false; }
  /// Returns the path of a trial's run file.
  std::string run_file(const TrialRow& trial) const {
    return (std::filesystem::path(file_).parent_path() / trial.run).string();
  }
  /// Returns the index of the trial with this hash; -1 if there is none.
  int find(const std::string& hash) const noexcept {
    for (const TrialRow& trial : view_.trials()) {
      if (trial.hash == hash) return trial.trial;
    }
    return -1;
  }

 private:
  std::string file_;
  StudyView view_;
  StudyFacts facts_;
};

}  // namespace halfscope::gui
