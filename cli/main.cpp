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
#include "cli/mpi/job.h"
#include "cli/terminal/output.h"
#include "core/data/stored_array.h"
#include "core/error.h"
#include "core/memory.h"
#include "emulation/threads.h"

namespace halfscope {

namespace {

/// Messages repeat names from files, which must not act on a terminal.
int fail(const std::string& what, const std::string& hint, int code) {
  if (is_first_process() || !rank_prefix().empty()) {
    std::cerr << "halfscope: " << rank_prefix() << printable_name(what) << '\n';
    if (!hint.empty()) std::cerr << "hint: " << printable_name(hint) << '\n';
  }
  return leave_mpi_job(code, true);
}

/// Returns the command line, quoted for a shell.
std::string command_line(int argc, char** argv) {
  std::string line = "halfscope";
  for (int i = 1; i < argc; ++i) line += " " + shell_quoted(argv[i]);
  return line;
}

/// Returns the terminal's width, limited to what reads well.
size_t help_width() {
  constexpr size_t kUsual = 80, kLeast = 60, kMost = 100;
  const size_t width = output_width();
  return width == 0 ? kUsual : std::clamp(width, kLeast, kMost);
}

/// Returns the arguments with today's name of the command. `halfscope help train` becomes
/// `halfscope train --help`; `halfscope help plans` stays, for the command `help`.
std::vector<std::string> arguments(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words[0] == "help") {
    if (words.size() == 1 || words[1] == "help") return {"--help"};
    const std::string name = command_name(words[1]);
    for (const CLI::App* sub : subcommands_of(app)) {
      if (sub->get_name() == name) return {name, "--help"};
    }
  }
  if (!words.empty()) words[0] = command_name(words[0]);
  // Negative numbers are not flags. The number's parser drops the blank.
  if (!words.empty() && words[0] == "float") {
    for (std::string& word : words) {
      const bool number = word.size() > 1 && word[0] == '-' &&
                          (word[1] == '.' || word[1] == '(' || (word[1] >= '0' && word[1] <= '9'));
      if (number || word == "-inf" || word == "-nan") word.insert(word.begin(), ' ');
    }
  }
  return words;
}

int run(int argc, char** argv) {
  CLI::App app("Shows what reduced precision does to a neural network.", "halfscope");
  app.formatter(std::make_shared<HelpFormatter>(help_width()));
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag("--version", std::string(kVersion), "Print the version");
  app.require_subcommand(0, 1);
  app.footer(
      "Start with:  halfscope train --model lenet-hot --steps 60 --batch 32\n"
      "             halfscope diagnose run.hscope\n"
      "In PyTorch:  hs.watch(model, optimizer) records a run (see python/README.md)\n"
      "More about a command or topic:  halfscope help NAME");
  Invocation call{.line = command_line(argc, argv), .action = {}};
  add_commands(app, call);
  const std::vector<std::string> words = arguments(app, argc, argv);
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
  } catch (const CLI::ParseError& e) {  // check_arguments() missed it
    throw usage_error(e.what(), "see halfscope --help");
  }
  const std::string command = words.empty() ? "" : words[0];
  if (command != "train" && command != "diagnose" && command != "sweep") refuse_job(command);
  return call.action();
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  halfscope::limit_spinning(argv);
  halfscope::keep_freed_memory();
  // Writing to a closed pipe or past the file size limit must return an error, not kill us.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  using halfscope::Error;
  try {
    return halfscope::leave_mpi_job(halfscope::run(argc, argv), false);
  } catch (const halfscope::SilentEnd&) {
    return halfscope::leave_mpi_job(0, false);
  } catch (const Error& e) {
    return halfscope::fail(e.what(), e.hint(), e.kind() == halfscope::ErrorKind::usage ? 2 : 3);
  } catch (const std::bad_alloc&) {
    return halfscope::fail("out of memory", "use a smaller --batch or fewer lanes", 3);
  } catch (const std::exception& e) {
    return halfscope::fail(e.what(), "", 3);
  }
}
