// SPDX-License-Identifier: MIT
// `halfscope doctor`: see doctor.h.
#include <iostream>

#include "cli/command.h"
#include "cli/doctor.h"

namespace halfscope {

void add_doctor(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("doctor", "Say what this machine and this build offer");
  sub->footer("Example:  halfscope doctor");
  sub->callback([&command] { command = [] { return run_doctor(std::cout, kVersion); }; });
}

}  // namespace halfscope
