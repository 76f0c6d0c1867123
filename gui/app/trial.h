// SPDX-License-Identifier: MIT
// A training that the viewer has started: the demo run, or an edited plan beside the run that it
// came from. It is a process of its own, so that it cannot take the viewer down with it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/observe/recording.h"
#include "gui/app/child_process.h"
#include "gui/state/view_state.h"

namespace halfscope::gui {

class Trial {
 public:
  /// `folder` is where run and plan files of trials go; it is made. All throw Error.
  static std::unique_ptr<Trial> demo(const std::filesystem::path& folder);
  /// Trains the lane's plan with the edits. `reference` is an index into run.lanes, or -1.
  static std::unique_ptr<Trial> of_plan(const std::filesystem::path& folder, const RunInfo& run,
                                        int lane, int reference, const PlanEdit& edits);

  /// Any program that records to `run_file`; what it says goes into a .log file beside that.
  Trial(const std::vector<std::string>& words, std::string run_file);

  const std::string& run_file() const noexcept { return run_file_; }
  const std::string& command() const noexcept { return command_; }
  /// Looks after the process. True once, when it has just ended.
  bool poll();
  bool running() const noexcept { return process_.running(); }
  bool failed() const noexcept { return process_.exit_code().value_or(0) != 0; }
  const std::string& output() const noexcept { return process_.output(); }
  void stop() noexcept { process_.interrupt(); }
  void kill() noexcept { process_.kill(); }
  /// Lets it run on without the viewer.
  void detach() noexcept { process_.detach(); }

 private:
  std::string run_file_, command_;
  ChildProcess process_;
};

}  // namespace halfscope::gui
