// SPDX-License-Identifier: MIT
// The run file that `diagnose` works on: the user's, a recording that is made for it, or a copy of
// a file that cannot be written.
#pragma once

#include <optional>
#include <string>

#include "cli/args/settings.h"
#include "cli/terminal/stop.h"
#include "core/error.h"

namespace halfscope {

class DiagnosedRun {
 public:
  /// A run file that is there already. With `changes` results are to be stored in it; if it cannot
  /// be written, they go into a temporary copy. Throws Error.
  DiagnosedRun(const std::string& run, bool changes);
  /// A network that is recorded now, with a progress line: into the file `record`, or into a
  /// temporary one if that is empty. The caller has checked the files. Throws Error.
  DiagnosedRun(Settings settings, const std::string& record);

  /// Returns the run file to open.
  const std::string& file() const { return file_; }
  /// Returns its name as the user knows it; "" of a temporary recording.
  const std::string& name() const { return name_; }
  /// Returns whether it will be there afterwards, with all that was stored in it.
  bool is_kept() const { return !temporary_; }
  /// Returns why results cannot be stored in the user's file; "" if they can.
  const std::string& not_stored() const { return not_stored_; }
  /// Returns an error about lanes that were lost in the recording; nothing if none was.
  const std::optional<Error>& lost() const { return lost_; }

 private:
  std::optional<TemporaryFolder> temporary_{};
  std::string file_{}, name_{}, not_stored_{};
  std::optional<Error> lost_{};
};

}  // namespace halfscope
