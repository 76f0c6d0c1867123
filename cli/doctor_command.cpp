// SPDX-License-Identifier: MIT
// `halfscope doctor`: see doctor.h.
#include <memory>
#include <sstream>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/output.h"

namespace halfscope {

void add_doctor(CLI::App& app, Command& command) {
  auto json = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand("doctor", "Say what this machine and this build offer");
  sub->footer("Example:  halfscope doctor");
  sub->add_flag("--json", *json, "Print it as JSON")->group(group::kOutput);
  sub->callback([json, &command] {
    command = [json] {
      if (*json) {
        write_json(doctor_json(kVersion));
        return 0;
      }
      std::ostringstream text;
      const int code = run_doctor(text, kVersion);
      write_out(text.view());
      return code;
    };
  });
}

}  // namespace halfscope
