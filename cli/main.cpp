// SPDX-License-Identifier: MIT
// `halfscope`: parses the command line, runs one subcommand, turns errors into one line and an
// exit code (docs/contracts.md).
#include <CLI/Error.hpp>
#include <iostream>
#include <new>

#include "cli/command.h"
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

int run(int argc, char** argv) {
  CLI::App app("Shows what reduced precision does to a neural network.", "halfscope");
  app.set_version_flag("--version", std::string(kVersion));
  app.require_subcommand(0, 1);  // its absence is told below, after a misspelt one was
  app.footer("Start with:  halfscope train && halfscope report run.hscope --html report.html");
  Command command;
  add_train(app, command, command_line(argc, argv));
  add_recommend(app, command);
  add_report(app, command);
  add_export(app, command);
  add_runs(app, command);
  add_doctor(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    const std::vector<CLI::App*> chosen = app.get_subcommands();
    return fail(e.what(), "halfscope " + (chosen.empty() ? "" : chosen.front()->get_name() + " ") + "--help lists what is known", 2);
  }
  if (!command) {
    return fail("a subcommand is required", "halfscope --help lists them; start with: halfscope train", 2);
  }
  return command();
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  halfscope::limit_spinning(argv);
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
