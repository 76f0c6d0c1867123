// SPDX-License-Identifier: MIT
// Forward passes that may be recorded, from their settings to the end of the run file: what `run`
// and `diagnose` do alike.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/args/settings.h"
#include "cli/tasks/forward.h"
#include "core/error.h"
#include "core/train/runner.h"

namespace halfscope {

/// Throws Error (usage) unless the settings name samples in one way.
void check_sources(const Settings& settings);

class ForwardRun {
 public:
  /// Prepares everything up to the first batch. `command_line` repeats it. Throws Error.
  ForwardRun(const Settings& settings, const std::string& command_line);
  ForwardRun(const ForwardRun&) = delete;
  ForwardRun& operator=(const ForwardRun&) = delete;

  /// Runs, with a progress line, into the run file `settings.record` if there is one; ends early on
  /// Ctrl-C. Throws Error, but not for lanes that are lost.
  void run();

  const Runner& runner() const { return *runner_; }
  const RunInfo& info() const { return info_; }
  const Dataset& data() const { return work_.samples.data; }
  /// Every lane that was lost, with the hint of the first; nothing if none was.
  std::optional<Error> lost() const;

 private:
  Settings settings_;
  Work work_;  ///< without the network; the runner reads its samples
  std::unique_ptr<Runner> runner_;
  RunInfo info_;
};

}  // namespace halfscope
