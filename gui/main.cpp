// SPDX-License-Identifier: MIT
// `halfscope-view`: the desktop viewer. `halfscope view` starts it.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>

#include "core/error.h"
#include "gui/app/view_options.h"
#include "gui/app/window.h"

namespace {

int fail(const std::string& what, const std::string& hint, int code) {
  std::cerr << "halfscope-view: " << what << '\n';
  if (!hint.empty()) std::cerr << "hint: " << hint << '\n';
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace halfscope::gui;
  CLI::App app("Show what reduced precision does to every layer of a run, live.", "halfscope-view");
  ViewOptions options;
  add_view_options(app, options);
  app.footer("Example:  halfscope-view run.hscope");
  try {
    app.parse(argc, argv);
    check_view_options(options);
    if (options.screenshot.empty() && options.share.empty()) {
      run_in_window(options);
    } else {
      take_screenshot(options);
    }
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return fail(error.what(), "halfscope-view --help", 2);
  } catch (const halfscope::Error& error) {
    return fail(error.what(), error.hint(), error.kind() == halfscope::ErrorKind::usage ? 2 : 3);
  } catch (const std::bad_alloc&) {
    return fail("not enough memory", "close other programs", 3);
  } catch (const std::exception& error) {
    return fail(error.what(), "", 3);
  }
}
