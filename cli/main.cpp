// SPDX-License-Identifier: MIT
// `halfscope`: parses the command line, runs one subcommand, turns errors into one line and an
// exit code (docs/contracts.md).
#include <CLI/Error.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <new>

#include "cli/args/arguments.h"
#include "cli/args/help.h"
#include "cli/commands/command.h"
#include "cli/terminal/output.h"
#include "core/error.h"
#include "emulation/threads.h"

namespace halfscope {

namespace {

int fail(const std::string& what, const std::string& hint, int code) {
  std::cerr << "halfscope: " << what << '\n';
  if (!hint.empty()) std::cerr << "hint: " << hint << '\n';
  return code;
}

/// The arguments as a shell would take them again.
std::string command_line(int argc, char** argv) {
  std::string line = "halfscope";
  for (int i = 1; i < argc; ++i) line += " " + shell_quoted(argv[i]);
  return line;
}

/// Help as wide as the terminal, within limits that read well.
size_t help_width() {
  constexpr size_t kUsual = 80, kLeast = 60, kMost = 100;
  const size_t width = output_width();
  return width == 0 ? kUsual : std::clamp(width, kLeast, kMost);
}

/// The words with today's name of the command. `halfscope help train` is `halfscope train --help`.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words[0] == "help") {
    words = words.size() > 1 && words[1] != "help" ? std::vector<std::string>{words[1], "--help"}
                                                   : std::vector<std::string>{"--help"};
  }
  if (!words.empty()) words[0] = command_name(words[0]);
  return words;
}

int run(int argc, char** argv) {
  CLI::App app("Shows what reduced precision does to a neural network.", "halfscope");
  app.formatter(std::make_shared<HelpFormatter>(help_width()));
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag("--version", std::string(kVersion), "Print the version");
  app.require_subcommand(0, 1);
  app.footer(
      "Start with:  halfscope train && halfscope report run.hscope --html report.html\n"
      "More about a command:  halfscope COMMAND --help");
  Invocation call{.line = command_line(argc, argv), .action = {}};
  add_commands(app, call);
  const std::vector<std::string> words = arguments(argc, argv);
  check_arguments(app, words);
  if (const CLI::App* asked = asks_for_help(app, words)) {
    write_out(asked->help());
    return 0;
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    write_out(app.help());
    return 0;
  } catch (const CLI::CallForVersion& e) {
    write_out(std::string("halfscope ") + e.what() + "\n");
    return 0;
  } catch (const CLI::ParseError& e) {  // what check_arguments() does not know of
    throw usage_error(e.what(), "halfscope --help");
  }
  return call.action();
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  halfscope::limit_spinning(argv);
  // A closed pipe and a file of the largest size allowed are errors of a write, not our end.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  using halfscope::Error;
  try {
    return halfscope::run(argc, argv);
  } catch (const Error& e) {
    return halfscope::fail(e.what(), e.hint(), e.kind() == halfscope::ErrorKind::usage ? 2 : 3);
  } catch (const std::bad_alloc&) {
    return halfscope::fail("out of memory", "use a smaller --batch, or fewer lanes", 3);
  } catch (const std::exception& e) {
    return halfscope::fail(e.what(), "", 3);
  }
}
