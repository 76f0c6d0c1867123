// SPDX-License-Identifier: MIT
// Scripts for screenshots: one command per line. They click and drag widgets by path, as a user
// would, or set the view directly.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gui/app/app.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {

/// The pointer and the keys that a script holds. The frame function passes them to Dear ImGui.
struct ScriptInput {
  ImVec2 mouse{-1, -1};
  bool down = false;
  float wheel = 0.0f;
  bool ctrl = false, shift = false, alt = false;
  std::string typed{};
};

/// The environment of a script.
struct ScriptStage {
  App& app;
  Tracker& tracker;
  ScriptInput& input;
  std::function<void()> frame;                           ///< draws one frame
  std::function<void(const std::string&)> save_picture;  ///< of the last frame
  /// Throws Error if the file may not be written.
  std::function<void(const std::string&)> check_file;
};

/// Runs the script. Throws a usage Error that names the line that failed.
///   lane NAME, other-lane NAME, layer NAME, tensor NAME, step N|last, steps FIRST LAST|all,
///   metric NAME, role NAME, rows layers|tensors, tab NAME, keep LAYER, scale-shift N, lens FORMAT,
///   theme dark|light, click PATH, double-click PATH, hover PATH, drag PATH DX DY, wheel PATH N,
///   type TEXT, wait run|report|trial, frames N, picture FILE, svg PANEL FILE
/// `#` begins a comment. Put names with blanks in quotes.
void run_script(const std::string& text, const ScriptStage& stage);

/// Draws frames until the run and, if requested, its report are loaded. Throws Error if the run
/// cannot be read.
void wait_for_run(const ScriptStage& stage, bool with_report);

}  // namespace halfscope::gui
