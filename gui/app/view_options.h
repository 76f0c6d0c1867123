// SPDX-License-Identifier: MIT
// The command line of the viewer, shared by `halfscope view` and `halfscope-view`.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace halfscope::gui {

struct ViewOptions {
  std::vector<std::string> runs{};              ///< the run, one to compare with, more to add
  std::string screenshot{}, script{}, share{};  ///< files
  std::string size = "1440x900";
  double scale = 0.0;  ///< 0: what the display says
  bool light = false, force = false;
  std::string lab{};               ///< "fp16 0.1"
  int width = 1440, height = 900;  ///< of `size`
};

void add_view_options(CLI::App& app, ViewOptions& options);
/// Throws Error for invalid values (usage) and missing files.
void check_view_options(ViewOptions& options);
/// Throws Error if `picture` is an input, or exists and --force is not given.
void check_picture(const ViewOptions& options, const std::string& picture);
/// Returns the options as command-line arguments.
std::vector<std::string> view_arguments(const ViewOptions& options);

}  // namespace halfscope::gui
