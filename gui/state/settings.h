// SPDX-License-Identifier: MIT
// Settings that outlive a session: settings and recent files in one JSON file, and one view file
// for every run file that was open. Nothing is ever written into a run file or its folder. A
// settings file that cannot be read or written is ignored.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gui/state/view_state.h"

namespace halfscope::gui {

/// Widths and heights of the regions in pixels of a display of scale 1.
struct Layout {
  float left = 230, right = 410, bottom = 215, loss = 140, magnitudes = 150;
};

struct Settings {
  bool dark = true;
  float ui_scale = 1.0f;  ///< the user's, 0.75 to 3
  Layout layout{};
  int width = 1440, height = 900;
  std::vector<std::string> recent{};  ///< absolute paths, the newest first

  void add_recent(const std::string& file);
};

/// Returns $XDG_STATE_HOME/halfscope, else ~/.local/state/halfscope; empty without a home folder.
std::filesystem::path state_folder();

class SettingsFile {
 public:
  /// Stores files in `folder`; an empty one stores nothing (tests, scripted screenshots).
  explicit SettingsFile(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Settings load() const;
  void save(const Settings& settings) const;
  /// Returns the saved view of the run file at that path, or the default view.
  ViewState load_view(const std::string& run_file) const;
  void save_view(const std::string& run_file, const ViewState& view) const;
  const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  std::filesystem::path view_file(const std::string& run_file) const;

  std::filesystem::path folder_;
};

}  // namespace halfscope::gui
