// SPDX-License-Identifier: MIT
// A training that the viewer started: the demo run, or an edited plan to compare with its run. It
// is a separate process, so it cannot crash the viewer.
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
  /// Starts the demo run. `folder` for run and plan files is created. All of these throw Error.
  static std::unique_ptr<Trial> demo(const std::filesystem::path& folder);
  /// Trains the lane's plan with the edits. `reference` is an index into run.lanes, or -1.
  static std::unique_ptr<Trial> of_plan(const std::filesystem::path& folder, const RunInfo& run,
                                        int lane, int reference, const PlanEdit& edits);

  /// Starts any program that records to `run_file`; its output goes to a .log file next to that.
  Trial(const std::vector<std::string>& words, std::string run_file);

  const std::string& run_file() const noexcept { return run_file_; }
  const std::string& command() const noexcept { return command_; }
  /// Polls the process. Returns true once, when it has just ended.
  bool poll();
  bool running() const noexcept { return process_.running(); }
  bool failed() const noexcept { return process_.exit_code().value_or(0) != 0; }
  const std::string& output() const noexcept { return process_.output(); }
  void stop() noexcept { process_.interrupt(); }
  void kill() noexcept { process_.kill(); }
  /// Lets it continue without the viewer.
  void detach() noexcept { process_.detach(); }

 private:
  std::string run_file_, command_;
  ChildProcess process_;
};

}  // namespace halfscope::gui
