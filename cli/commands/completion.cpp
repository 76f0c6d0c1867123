// SPDX-License-Identifier: MIT
// `halfscope completion`: see completion.h.
#include "cli/args/completion.h"

#include <memory>

#include "cli/args/arguments.h"
#include "cli/commands/command.h"
#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {

void add_completion(CLI::App& app, Invocation& call) {
  auto shell = std::make_shared<std::string>();
  CLI::App* sub = app.add_subcommand("completion", "Print a completion script for your shell");
  sub->footer("Example:  halfscope completion bash > hs.bash && source hs.bash");
  offer(sub->add_option("shell", *shell, "Shell: bash, zsh or fish")
            ->required()
            ->type_name("SHELL")
            ->group(group::kArguments),
        {.words = {"bash", "zsh", "fish"}});
  sub->callback([shell, &app, &call] {
    call.action = [shell, &app] {
      const std::vector<std::string> shells{"bash", "zsh", "fish"};
      if (*shell == "bash") {
        write_out(bash_completion(app));
      } else if (*shell == "zsh") {
        write_out(zsh_completion(app));
      } else if (*shell == "fish") {
        write_out(fish_completion(app));
      } else {
        throw usage_error("there is no completion for '" + *shell + "'",
                          did_you_mean(*shell, shells, "shells: " + comma_list(shells)));
      }
      return 0;
    };
  });
}

}  // namespace halfscope
