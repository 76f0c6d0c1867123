// SPDX-License-Identifier: MIT
// A trial as a message to a worker, the worker's answer, and what a worker does.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/study/study_view.h"
#include "cli/sweep/study.h"
#include "cli/sweep/trial_workers.h"
#include "core/data/dataset.h"
#include "core/error.h"

namespace halfscope {

struct TrialTask {
  enum class Work {
    check,  ///< prepare the training without running it, to see whether it can be done
    train,
  };
  Work work = Work::train;
  int trial = 0;
  std::string hash{}, command{};
  std::vector<std::string> words{};  ///< settings_words() and lane_settings_words()
  std::filesystem::path run{};       ///< the run file
  int threads = 1;

  std::string text() const;
  /// Throws Error for other texts.
  static TrialTask parse(const std::string& text);
};
TrialTask task_of(const StudyPlan& study, int trial, const std::filesystem::path& folder,
                  TrialTask::Work work);

struct TrialAnswer {
  TrialResult result{};          ///< of `train`
  std::optional<Error> error{};  ///< why a trial failed, or cannot be trained

  std::string text(const std::string& hash) const;
  static TrialAnswer parse(const std::string& hash, const std::string& text);
};

/// Does tasks one after the other and keeps data sets between them. A task writes its run file
/// under another name and renames it when it is complete.
class TrialTrainer final : public TrialServer {
 public:
  std::string answer(const std::string& message) override;
  /// Does not throw Error: see TrialAnswer::error.
  TrialAnswer do_task(const TrialTask& task);

 private:
  std::shared_ptr<const Dataset> data_for(const Settings& settings);
  TrialResult train(const TrialTask& task, const Settings& settings);

  /// The last few that were needed, by the settings that load them.
  std::deque<std::pair<std::string, std::shared_ptr<const Dataset>>> data_;
};

}  // namespace halfscope
