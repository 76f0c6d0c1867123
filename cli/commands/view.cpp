// SPDX-License-Identifier: MIT
// `halfscope view`: starts the viewer, which is a program of its own, so that this one needs no
// libraries of a desktop.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/args/arguments.h"
#include "cli/commands/command.h"
#include "core/error.h"
#include "gui/app/view_options.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kViewer = "halfscope-view";

/// Beside this program, else wherever PATH has it.
std::string viewer_program() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path beside = self.parent_path() / kViewer;
    if (fs::is_regular_file(beside, error)) return beside.string();
  }
  return kViewer;
}

int view(gui::ViewOptions options) {
  check_view_options(options);
  std::vector<std::string> words = view_arguments(options);
  words.insert(words.begin(), viewer_program());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  if (errno == ENOENT) {
    throw Error("the viewer is not built yet",
                "build it with scripts/run --view, or build the target halfscope_view; it needs "
                "libimgui-dev libstb-dev libglfw3-dev libgl-dev libegl-dev");
  }
  throw Error("cannot start " + words[0] + ": " + std::strerror(errno));
}

}  // namespace

void add_view(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<gui::ViewOptions>();
  CLI::App* sub = app.add_subcommand("view", "Look at runs in a window, live");
  sub->footer("Example:  halfscope view run.hscope");
  gui::add_view_options(*sub, *options);
  offer(sub->get_option("run")->group(group::kArguments), {.files = "*.hscope"});
  offer(sub->get_option("--screenshot")->group(group::kOutput), {.files = "*.png"});
  offer(sub->get_option("--share")->group(group::kOutput), {.files = "*.png"});
  offer(sub->get_option("--script")->group(group::kOutput), {.files = "*.txt"});
  sub->callback([options, &call] { call.action = [options] { return view(*options); }; });
}

}  // namespace halfscope
